"""Time as an argument, so that tests and the simulation can own it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """UTC milliseconds that never go back while this process lives."""


class SystemClock:
    """Wall time read once, then carried on by the monotonic clock: a step of the wall clock
    fires no timer early and makes no lease older than it is. `now_ms`: what was read just now
    from a clock that several share."""

    def __init__(self, now_ms: int | None = None) -> None:
        first_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._base_ms = first_ms - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._base_ms + time.monotonic_ns() // 1_000_000


def iso(ms: int | None) -> str | None:
    """UTC milliseconds as ISO-8601."""
    return None if ms is None else stamp(ms)


def stamp(ms: int) -> str:
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(4096)  # what is shown together happened together: most seconds come again and again
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]
