"""What follows from the state of the ranks. Pure: ranks in, one word out.

some rank failed by itself                          → failed (the attempt is over here)
no rank runs any more, or will again                → over
the deciding ranks ended well, others run, 1 node   → over (the others are ended)
the deciding ranks ended well, others run, n nodes  → decided (the server tells when to end)
otherwise                                           → go on

Where the gang goes on without those it loses (`losses`) a rank that failed awaits its restart, or
is given up: neither ends the attempt here, and one that is given up decides nothing any more.
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
    failures = [rank for rank in ranks if rank.failed and not rank.lives and not rank.given_up]
    if failures:
        return FAILED, _first(failures)
    if not any(rank.lives for rank in ranks):
        return OVER, None
    deciding = [rank for rank in ranks if rank.decides and not rank.given_up]
    if deciding and not any(rank.lives for rank in deciding):
        return (OVER if nodes <= 1 else DECIDED), None
    return GO_ON, None


def outcome_of(rank: Rank) -> str:
    return "oom" if rank.oom else "failed"


def at_the_end(ranks: List[Rank]) -> Tuple[str, str, Optional[Rank]]:
    """Outcome, reason and cause of this node's part when it is over: well, if any rank that
    decides ended well, or none was given up. Whether enough did, the server knows."""
    gone = [rank for rank in ranks if rank.given_up]
    if not gone:
        return "succeeded", "all ranks ended well", None
    first = _first(gone)
    if any(rank.decides and rank.exit == 0 for rank in ranks):
        names = ", ".join(rank.name for rank in gone)
        return "succeeded", "all ranks ended well but %s" % names, first
    return outcome_of(first), first.sentence(), first


def _first(failures: List[Rank]) -> Rank:
    return min(failures, key=lambda rank: (_failed_ms(rank), rank.number))


def _failed_ms(rank: Rank) -> int:
    return int((rank.first_loss or {}).get("ended_ms") or rank.ended_ms or 0)
