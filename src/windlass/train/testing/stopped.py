"""A member that is stopped, not dead: no connection of its breaks, only its signs of life end.

Waiting for that would take as long as a busy machine may keep a member that is well from beating,
and a test of both would then be right only most of the time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from windlass.train.group import Group

_PATIENCE_SECONDS = 120.0


def stop(group: Group, name: str) -> None:
    """SIGSTOP, and `silent`."""
    group.kill(name, signal.SIGSTOP)
    silent(group, name)


def silent(group: Group, name: str) -> None:
    """Once its process is stopped: for this member alone, as if the longest silence that the
    gathering bears had gone by."""
    gathering = group.gathering

    def is_missed() -> bool:
        for guest in list(gathering._guests.values()):
            if guest.name == name:
                guest.heard -= gathering._silent
        return name in gathering.lost  # a last beat of it may have been under way

    _until(lambda: _is_stopped(group.pid(name)), f"{name} is stopped")
    _until(is_missed, f"{name} is missed")


def strike(group: Group, name: str, how: signal.Signals) -> None:
    """Either way to go: killed, or stopped."""
    if how == signal.SIGSTOP:
        stop(group, name)
    else:
        group.kill(name, how)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def _until(look: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + _PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < ends, f"not in time: {what}"
        time.sleep(0.05)
