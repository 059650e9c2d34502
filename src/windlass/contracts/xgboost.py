"""XGBoost: where the tracker listens, who each process is, and how many there are.

The library takes these from arguments, not from the environment (only rabit of before 2.1 read
it). So rank 0 starts a `RabitTracker` on the port below, every rank enters a
`CommunicatorContext`; `windlass.job.collective.xgboost()` does both.

The tracker sorts the ranks by their task ids *as text*: the ids are padded with zeros, so that
task 10 does not come before task 2. Each process has its own id; Kubeflow's Trainer gives one to
each node while it counts the processes, which leaves the tracker waiting.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping

from windlass.contracts.base import Contract, Gang, RankPlace, unknown_roles

_VARIABLES = frozenset(
    "DMLC_TRACKER_URI DMLC_TRACKER_PORT DMLC_TASK_ID DMLC_NUM_WORKER DMLC_ROLE"
    " MASTER_ADDR MASTER_PORT WORLD_SIZE RANK".split()
)


class XGBoostContract(Contract):
    name = "xgboost"
    roles = ("master", "worker")

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        return [*unknown_roles(self, counts), *one_master(self.name, counts)]

    def reserved(self) -> FrozenSet[str]:
        return _VARIABLES

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        first = gang.ordered[0]
        digits = len(str(gang.world_size - 1))
        return {
            "DMLC_TRACKER_URI": first.host,
            "DMLC_TRACKER_PORT": str(first.ports[0]),
            "DMLC_TASK_ID": str(place.rank).zfill(digits),
            "DMLC_NUM_WORKER": str(gang.world_size),
            "DMLC_ROLE": "worker",
            "MASTER_ADDR": first.host,
            "MASTER_PORT": str(first.ports[0]),
            "WORLD_SIZE": str(gang.world_size),
            "RANK": str(place.rank),
        }


def one_master(framework: str, counts: Mapping[str, int]) -> List[str]:
    """A gang may have a master, which is then rank 0; never two."""
    if counts.get("master", 0) > 1:
        return ["%s takes one master, found %d" % (framework, counts["master"])]
    return []
