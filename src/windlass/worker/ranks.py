"""One rank: a process that the worker started, and how it ended."""

from __future__ import annotations

import os
import sys
import time

from windlass.worker.launch import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional


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
        self.limit = ""
        """The limit that it had reached when it failed, in words."""
        self.peak_bytes = 0
        self.cpu_ms = 0
        self._cpu_before_ms = 0
        self.step: Optional[int] = None
        self.restarts = 0
        """How often it was started again within this attempt."""
        self.again_at: Optional[float] = None
        """When it is to be started again, by the monotonic clock; it failed, the gang goes on."""
        self.given_up = False
        """It failed, is not started again, and the gang goes on without it."""
        self.first_loss: Optional[Dict[str, Any]] = None
        """How it failed the first time that the gang went on without it: of several that fail,
        one after the other, that is the cause."""

    @property
    def name(self) -> str:
        return "%s-%d" % (self.member.name, self.local_rank)

    @property
    def running(self) -> bool:
        return self.pid != 0 and self.ended_ms is None

    @property
    def lives(self) -> bool:
        """It runs, or will again."""
        return self.running or self.again_at is not None

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
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        self.peak_bytes = max(self.peak_bytes, peak)
        self.spent(int((usage.ru_utime + usage.ru_stime) * 1000))

    def spent(self, cpu_ms: int) -> None:
        """CPU time so far. What is seen of a tree falls when a child of it ends; this never."""
        self.cpu_ms = max(self.cpu_ms, self._cpu_before_ms + cpu_ms)

    def be_lost(self, matched: List[str]) -> None:
        """It failed, and the gang goes on."""
        if self.first_loss is None:
            self.first_loss = {
                "exit": self.exit,
                "signal": self.signal,
                "oom": self.oom,
                "limit": self.limit,
                "ended_ms": self.ended_ms,
                "matched": matched,
            }

    def begin_again(self) -> None:
        """As before its first start, but for what it has used so far."""
        self.restarts += 1
        self.again_at = None
        self._cpu_before_ms = self.cpu_ms
        self.pid = self.start_time = 0
        self.ended_ms = self.exit = self.signal = None
        self.oom, self.limit = False, ""

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
            return "%s ran out of memory: %s" % (self.name, self.limit)
        after = ", and %s" % self.limit if self.limit else ""
        if self.signal is not None:
            return "%s was killed by signal %d%s" % (self.name, self.signal, after)
        return "%s ended with exit code %s%s" % (self.name, self.exit, after)
