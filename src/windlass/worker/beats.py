"""What a beat says of each rank: where it is, what it used, how it ended."""

from __future__ import annotations

import time

from windlass.worker import processes
from windlass.worker.pump import Pump
from windlass.worker.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set


class Beats:
    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._told_dropped: Set[int] = set()
        self.began: Optional[float] = None
        """When the ranks were started, by the monotonic clock: what a limit of time counts from,
        since no wall clock that is set meanwhile moves it."""

    def of(
        self, ranks: List[Rank], note: Callable[[Dict[str, Any]], None]
    ) -> List[Dict[str, Any]]:
        """One entry for each rank; `note` hears once of a rank that went over its log rate."""
        usage = processes.tree_usage([rank.pid for rank in ranks if rank.running])
        found = []
        for rank in ranks:
            dropped = self._pump.dropped(rank.number)
            if dropped and rank.number not in self._told_dropped:
                self._told_dropped.add(rank.number)
                note({"kind": "dropped", "rank": rank.number, "bytes": dropped})
            cpu_ms, rss_bytes = usage.get(rank.pid, (0, 0))
            rank.spent(cpu_ms)
            entry: Dict[str, Any] = {
                "rank": rank.number,
                "pid": rank.pid,
                "output_bytes": self._pump.received(rank.number),
                "step": rank.step,
                "cpu_ms": rank.cpu_ms,
                "rss_bytes": rss_bytes,
            }
            if self.began is not None:
                entry["ran_ms"] = int((time.monotonic() - self.began) * 1000)
            if rank.restarts:
                entry["restarts"] = rank.restarts
            if rank.ended_ms is not None:
                entry["exit"] = rank.exit if rank.signal is None else -rank.signal
            found.append(entry)
        return found
