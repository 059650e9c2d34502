"""The plain contract: a command in any language. It gets the neutral variables, no more."""

from __future__ import annotations

from typing import Dict, FrozenSet

from windlass.contracts.base import Gang, Member, RankPlace


class PythonContract:
    name = "python"
    gpus = "rank"

    def reserved(self) -> FrozenSet[str]:
        return frozenset()

    def ranks_started_by_worker(self, member: Member) -> int:
        return member.nproc

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        return {}

    def files(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        return {}
