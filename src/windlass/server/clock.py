"""Time as an argument, so that tests and the simulation can own it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """UTC milliseconds that never go back while this process lives."""


class SystemClock:
    """Wall time read once, then carried on by the monotonic clock: a step of the wall clock
    fires no timer early and makes no lease older than it is."""

    def __init__(self) -> None:
        self._base_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._base_ms + time.monotonic_ns() // 1_000_000


def iso(ms: int | None) -> str | None:
    """UTC milliseconds as ISO-8601."""
    return None if ms is None else stamp(ms)


def stamp(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
