"""How many threads a rank may start: its share of its member's CPUs.

OpenMP, the BLAS libraries and the frameworks each count the machine's cores and start a thread for
every one of them. Two ranks that both do so fight for the same cores and are many times slower
than one thread each. So each rank is told its share, where that is less than what it would find by
itself; one that has its machine to itself keeps all cores, counted as its libraries like best.

    asked for (`cpus:` of the role)     what was asked, over the member's ranks
    else                                what its machine may use, over the gang's ranks there

A job that sets one of these variables itself has decided: then none of them is set.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from windlass.contracts.base import Contract, Gang, Member, RankPlace

GENERAL = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Below every framework: OpenMP (torch, XGBoost, LightGBM, MXNet, Paddle), BLAS, numexpr."""

_IDLE = frozenset({"scheduler"})
"""Roles that wait more than they compute."""


def names(contract: Contract) -> Tuple[str, ...]:
    return (*GENERAL, *contract.threads)


def environment(contract: Contract, gang: Gang, place: RankPlace) -> Dict[str, str]:
    """The variables that keep one process to its share; none where it has no need of them."""
    every = names(contract)
    share = _share(contract, gang, place.member)
    if share is None or gang.job_variables.intersection(every):
        return {}
    return {name: str(share) for name in every}


def _share(contract: Contract, gang: Gang, member: Member) -> Optional[int]:
    """Whole CPUs of one rank; None: all that it sees."""
    own = contract.sharers_of_cpus(member)
    if member.cpus:
        return max(1, int(member.cpus / own))
    if not member.node_cpus:
        return None
    neighbours = [each for each in gang.members if each.machine == member.machine]
    busy = [each for each in neighbours if each.role not in _IDLE or each is member]
    ranks = sum(contract.sharers_of_cpus(each) for each in busy)
    share = member.node_cpus / ranks
    return None if share >= member.node_cores else max(1, int(share))
