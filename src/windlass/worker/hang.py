"""The hang watch: who has made no progress for too long. Pure; the clock comes from outside.

Progress is output, spool lines or a heartbeat. Two rules, since many a script prints on one rank:

    no rank of the node makes progress                  → hung (the whole node)
    one rank makes none, and uses hardly any CPU        → hung (that rank: stopped, or stuck)

Roles that never end by themselves may wait for work as long as they like.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, NamedTuple, Optional

    class Sample(NamedTuple):
        """One rank now: anything that changes with progress, and the CPU used so far."""

        rank: int
        evidence: object
        cpu_ms: int
        serves: bool

    class Hang(NamedTuple):
        rank: int
        idle_seconds: float
        whole_node: bool
else:
    from collections import namedtuple

    Sample = namedtuple("Sample", "rank evidence cpu_ms serves")
    Hang = namedtuple("Hang", "rank idle_seconds whole_node")

IDLE_CPU_SHARE = 0.005


class HangWatch:
    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._evidence: Dict[int, object] = {}
        self._moved: Dict[int, float] = {}
        self._cpu_then: Dict[int, int] = {}
        self._told = False

    def look(self, samples: List[Sample], now: float) -> Optional[Hang]:
        """The hang, once for each; None while all goes on."""
        for each in samples:
            if self._evidence.get(each.rank, self) != each.evidence:
                self._evidence[each.rank] = each.evidence
                self._moved[each.rank] = now
                self._cpu_then[each.rank] = each.cpu_ms
        hang = self._hang(samples, now)
        if hang is None:
            self._told = False
            return None
        if self._told:
            return None
        self._told = True
        return hang

    def _hang(self, samples: List[Sample], now: float) -> Optional[Hang]:
        watched = [each for each in samples if not each.serves]
        if not watched:
            return None
        last = max(self._moved[each.rank] for each in samples)
        if now - last >= self._idle_seconds:
            first = min(watched, key=lambda each: (self._moved[each.rank], each.rank))
            idle = all(self._rests(each, now) for each in watched)
            return Hang(first.rank, now - self._moved[first.rank], not idle)
        for each in watched:
            silent = now - self._moved[each.rank]
            if silent >= self._idle_seconds and self._rests(each, now):
                return Hang(each.rank, silent, False)
        return None

    def _rests(self, sample: Sample, now: float) -> bool:
        silent_ms = (now - self._moved[sample.rank]) * 1000
        used = sample.cpu_ms - self._cpu_then[sample.rank]
        return used <= silent_ms * IDLE_CPU_SHARE
