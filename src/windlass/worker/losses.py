"""A rank that failed while its gang goes on (`on_member_loss: continue`): again, or given up.

The rules are the job's own for tries (`retry`): what is tried again, how often for each rank
within this attempt, and after what pause. Pure, but for a byte of chance that spreads restarts.

    runs ──failed, a rule names it──► awaits ──pause──► runs (`restarts` + 1)
      └───failed, no rule, or spent──► given up: the server tells whether enough are left
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set

    from windlass.worker.ranks import Rank


class Respawn:
    """`respawn` of `launch.json`."""

    def __init__(self, told: Dict[str, Any]) -> None:
        self._times: int = told.get("times") or 0
        self._on: List[str] = told.get("on") or []
        self._never: List[str] = told.get("never") or []
        self._backoff: float = (told.get("backoff_ms") or 0) / 1000
        self._cap: float = (told.get("backoff_cap_ms") or 0) / 1000

    def pause(
        self, rank: Rank, matched: List[str], chance: Optional[float] = None
    ) -> Optional[float]:
        """Seconds until it is started again; None: it is given up. `matched` are the patterns
        of the log rules that were seen in its output."""
        facts = facts_of(rank, matched)
        if facts & set(self._never) or not facts & set(self._on) or rank.restarts >= self._times:
            return None
        step = min(self._backoff * 2.0 ** min(rank.restarts, 30), self._cap)
        if chance is None:
            chance = os.urandom(1)[0] / 256
        return step * (0.5 + chance / 2)


def facts_of(rank: Rank, matched: List[str]) -> Set[str]:
    """How it failed, in the words of `retry.on`."""
    facts = {"failed", *("log:" + each for each in matched)}
    if rank.oom:
        facts.add("oom")
        return facts
    if rank.signal is not None:
        facts.add("signal")
    elif rank.exit is not None:
        facts.add("exit:%d" % rank.exit)
        if rank.exit > 128:
            facts.add("signal")
    return facts
