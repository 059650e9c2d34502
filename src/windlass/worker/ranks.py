"""One rank: a process that the worker started, and how it ended."""

from __future__ import annotations

import os
import sys
import time

from windlass.worker.launch import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


class Rank:
    def __init__(self, member: Member, local_rank: int, number: int, finish: str) -> None:
        self.member = member
        self.local_rank = local_rank
        self.number = number
        self.finish = finish
        self.pid = 0
        self.start_time = 0
        self.started_ms = 0
        self.ended_ms: Optional[int] = None
        self.exit: Optional[int] = None
        self.signal: Optional[int] = None
        self.ended_by = "itself"
        self.oom = False
        self.peak_bytes = 0
        self.step: Optional[int] = None

    @property
    def name(self) -> str:
        return "%s-%d" % (self.member.name, self.local_rank)

    @property
    def running(self) -> bool:
        return self.pid != 0 and self.ended_ms is None

    @property
    def decides(self) -> bool:
        """Whether the gang waits for this rank to end well."""
        return self.finish == "all" or (self.finish == "first" and self.member.index == 0)

    @property
    def failed(self) -> bool:
        """Ended badly, and not because we ended it."""
        return self.ended_ms is not None and self.ended_by == "itself" and self.exit != 0

    def ended(self, status: int, usage: Any, told: Optional[str]) -> None:
        """Take the status that `wait4` gave. `told`: the outcome we were ending it with, if any.

        One that was told to stop and left with 0 did not end well by itself: it saved and went,
        and must be cancelled, preempted or timed out, never succeeded.
        """
        self.ended_ms = int(time.time() * 1000)
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        else:
            self.exit = os.WEXITSTATUS(status)
        well = told == "succeeded" and self.decides and self.exit == 0
        if told is not None and not well:
            self.ended_by = "worker"
        self.peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def place(self) -> Dict[str, Any]:
        return {
            "rank": self.number,
            "role": self.member.role,
            "index": self.member.index,
            "local_rank": self.local_rank,
        }

    def sentence(self) -> str:
        """How it ended, for people."""
        if self.oom:
            return "%s ran out of memory" % self.name
        if self.signal is not None:
            return "%s was killed by signal %d" % (self.name, self.signal)
        return "%s ended with exit code %s" % (self.name, self.exit)
