"""Removal leaves the writer to others, and goes on all the same."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import Any, cast

import pytest

from windlass.server.clock import SystemClock
from windlass.server.jobs.expire import _BUSY_SHARE, _QUIET_SECONDS, Expire
from windlass.server.store.inline import InlineStore


class Asked(InlineStore):
    """A store of which others want something now and then."""

    def __init__(self, quiet_seconds: float) -> None:
        super().__init__()
        self._quiet_seconds = quiet_seconds

    def quiet_seconds(self) -> float:
        return self._quiet_seconds


@pytest.mark.parametrize(
    ("quiet_seconds", "at_least", "at_most"),
    [
        (math.inf, _QUIET_SECONDS, 0.5),  # nobody else: the next batch follows soon
        (0.0, 0.01 / _BUSY_SHARE * 0.9, 0.01 / _BUSY_SHARE * 5),  # others all the time
    ],
)
def test_removal_waits_longer_while_others_write(
    quiet_seconds: float, at_least: float, at_most: float
) -> None:
    async def main() -> None:
        store = Asked(quiet_seconds)
        expire = Expire(
            store, cast(Any, None), SystemClock(), {}, guard=lambda conn: None,
            job_folder=lambda job: Path(job),
        )  # fmt: skip
        began = time.monotonic()
        await expire._leave_room(0.01)
        assert at_least <= time.monotonic() - began <= at_most
        await store.close()

    asyncio.run(main())
