"""Where a member sits: its number in its role, its device, whom it can meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch

from windlass.train.comm.meeting import Meeting
from windlass.train.counters import Counters


@dataclass
class Seat:
    role: Literal["worker", "server"]
    rank: int
    """Among its role: 0 … workers-1, or 0 … servers-1."""
    workers: int
    servers: int
    meeting: Meeting
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    deadline_seconds: float = 30.0
    """The longest wait for a peer that says nothing."""
    seed: int = 0
    host: str = "127.0.0.1"
    """The address under which the others reach this member."""
    together: int = 1
    """Workers that hold one model together: 0 … together-1, and so on. They are lost as one."""
    least: int = 1
    """Workers with fewer than which there is no going on."""
    regroups: bool = False
    """Of a training whose workers form anew when one is lost or comes (`elastic.py`): they are
    those of one generation."""
    counters: Counters = field(default_factory=Counters)
    formed: Counter[str] = field(default_factory=Counter)
    """How many groups of collectives it has formed in each scope of the meeting: part of their
    names."""

    @property
    def name(self) -> str:
        return f"{self.role} {self.rank}"

    @property
    def leader(self) -> str:
        """The first worker that is not lost, with all that hold a model together with it: what one
        alone does for all (a checkpoint, the report) it does."""
        lost = self.meeting.roster.lost
        return next(
            (
                f"worker {n}" for n in range(self.workers)
                if not any(name in lost for name in self.group_of(n))
            ),
            "worker 0",
        )  # fmt: skip

    def group_of(self, rank: int) -> list[str]:
        """The workers that are lost as one with this one."""
        first = rank - rank % self.together
        return [f"worker {n}" for n in range(first, first + self.together)]

    def falls_with(self, missing: Iterable[str]) -> bool:
        """Whether this worker is of no use without them."""
        if self.role != "worker" or self.together == 1:
            return False
        return bool(set(missing) & set(self.group_of(self.rank)))

    @property
    def leads(self) -> bool:
        return self.name == self.leader
