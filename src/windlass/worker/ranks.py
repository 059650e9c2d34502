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

    def ended(self, status: int, usage: Any, by_worker: bool) -> None:
        """Take the status that `wait4` gave."""
        self.ended_ms = int(time.time() * 1000)
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        else:
            self.exit = os.WEXITSTATUS(status)
        # A rank that ends well on its own account just as we end the others did so itself.
        if by_worker and self.exit != 0:
            self.ended_by = "worker"
        elif by_worker:
            self.ended_by = "worker" if not self.decides else "itself"
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
