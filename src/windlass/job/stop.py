"""SIGTERM as a question a training loop can ask, so that it can save and leave in the grace."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, List, Optional

_asked_to_stop = threading.Event()
_watching: List[bool] = []


def watch() -> None:
    """From now on SIGTERM makes `should_stop()` true instead of ending the process.

    A handler that was there before is still called, after ours. Call it from the main thread:
    Python lets no other one set handlers.
    """
    if _watching:
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "windlass.context(watch_stop=True) must be called from the main thread: "
            "Python lets no other thread handle signals"
        )
    previous: Any = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: Optional[FrameType]) -> None:
        _asked_to_stop.set()
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGTERM, handle)
    _watching.append(True)


def should_stop() -> bool:
    """True once SIGTERM came, if `windlass.context(watch_stop=True)` was called before."""
    return _asked_to_stop.is_set()
