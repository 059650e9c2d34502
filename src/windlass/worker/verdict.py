"""What follows from the state of the ranks. Pure: ranks in, one word out.

some rank failed by itself                          → failed (the attempt is over here)
no rank runs any more                               → over
the deciding ranks ended well, others run, 1 node   → over (the others are ended)
the deciding ranks ended well, others run, n nodes  → decided (the server tells when to end)
otherwise                                           → go on
"""

from __future__ import annotations

from windlass.worker.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

GO_ON = "go on"
OVER = "over"
DECIDED = "decided"
FAILED = "failed"


def judge(ranks: List[Rank], nodes: int) -> Tuple[str, Optional[Rank]]:
    """The word and, for `failed`, the rank that failed first."""
    failures = [rank for rank in ranks if rank.failed]
    if failures:
        return FAILED, min(failures, key=lambda rank: (rank.ended_ms or 0, rank.number))
    if not any(rank.running for rank in ranks):
        return OVER, None
    deciding = [rank for rank in ranks if rank.decides]
    if deciding and not any(rank.running for rank in deciding):
        return (OVER if nodes <= 1 else DECIDED), None
    return GO_ON, None


def outcome_of(rank: Rank) -> str:
    return "oom" if rank.oom else "failed"
