"""Threads that are inside of torch's own code, where nothing can wake them.

Such a thread cannot outlive the interpreter unharmed: when it comes back from torch into a Python
that is ending, it is unwound through code that must not be, and the process aborts after all its
work was done. So the end of the process waits for them, though not for long.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Any

_LAST_SECONDS = 3.0
_running: set[threading.Thread] = set()
_lock = threading.Lock()


def begin(function: Callable[..., None], *arguments: Any) -> threading.Thread:
    """Runs it in a thread that the end of the process waits for, for a while."""

    def run() -> None:
        try:
            function(*arguments)
        finally:
            with _lock:
                _running.discard(thread)

    thread = threading.Thread(target=run, name="torch", daemon=True)
    with _lock:
        _running.add(thread)
    thread.start()
    return thread


@atexit.register
def _wait() -> None:
    ends = time.monotonic() + _LAST_SECONDS
    with _lock:
        threads = list(_running)
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
