"""When all others of a pipeline wait for one that does nothing: only then deadlines are short, so
that none of them is missed because the machine was slow."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Mapping

from windlass.train.runners.flushing import PipelineRunner
from windlass.train.testing.town import Town

_WAITS = ("_await", "_wait_one")
"""Of a post; of a group of collectives."""
_STILL_SECONDS = 1.0


def hurry(
    town: Town, runners: Mapping[str, PipelineRunner], idle: str, deadline_seconds: float
) -> None:
    """Until all but `idle` wait and nothing moves; then the deadline is this one, also of the
    waits that are under way."""
    others = [name for name in runners if name != idle]
    ends, since, seen = time.monotonic() + 60, time.monotonic(), -1
    while time.monotonic() - since < _STILL_SECONDS:
        assert time.monotonic() < ends, "they do not come to wait"
        done = sum(runners[name].post.done for name in others)
        if done != seen or not _all_wait(others):
            since, seen = time.monotonic(), done
        time.sleep(0.02)
    for name, runner in runners.items():
        town.seats[name].deadline_seconds = deadline_seconds
        for each in (runner.slices._group, *(one.group for one in runner.sharing._shared)):
            if each is not None:
                each.deadline_seconds = deadline_seconds
        runner.post._wake()


def _all_wait(names: Iterable[str]) -> bool:
    frames = sys._current_frames()
    at = {each.name: frames.get(each.ident or 0) for each in threading.enumerate()}
    for name in names:
        frame = at.get(f"town {name}")
        while frame is not None and frame.f_code.co_name not in _WAITS:
            frame = frame.f_back
        if frame is None:
            return False
    return True
