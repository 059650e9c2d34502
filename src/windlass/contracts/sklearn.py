"""scikit-learn and joblib: a plain command that keeps to the CPUs it was given.

joblib, OpenMP and the BLAS libraries each count the machine's cores and start a thread for every
one. Where the job asks for CPUs, they are told how many are theirs; a job may set its own.
"""

from __future__ import annotations

from typing import Dict, FrozenSet

from windlass.contracts.base import Contract, Gang, RankPlace

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT")


class SklearnContract(Contract):
    name = "sklearn"

    def settings(self) -> FrozenSet[str]:
        return frozenset(THREADS)

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        member = place.member
        if not member.cpus:
            return {}
        share = max(1, int(member.cpus / member.nproc))
        return {name: str(share) for name in THREADS}
