"""LightGBM: the list of machines, one address and port for each process.

LightGBM takes parameters, not variables: `machines`, `num_machines`, `local_listen_port` (or, on
its command line, `machine_list_filename`). `windlass.job.collective.lightgbm_params()` makes them
of the variables below. A process finds its own place in the list by its address and its port.

Kubeflow's WORKER_ADDRS and WORKER_PORT assume that all workers listen on one port, each in its own
pod. Here members may share a machine, so WORKER_PORT is this process's own port, and scripts
should read LIGHTGBM_MACHINES (or the file) instead of joining the two.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, Tuple

from windlass.contracts.base import FILES, Contract, Gang, RankPlace, unknown_roles
from windlass.contracts.xgboost import one_master

MACHINE_LIST = "lightGBMlist.txt"

_VARIABLES = frozenset(
    "MASTER_ADDR MASTER_PORT WORKER_ADDRS WORKER_PORT RANK WORLD_SIZE LIGHTGBM_MACHINES"
    " LIGHTGBM_MACHINE_LIST LIGHTGBM_NUM_MACHINE LIGHTGBM_LOCAL_LISTEN_PORT".split()
)


class LightGBMContract(Contract):
    name = "lightgbm"
    roles = ("master", "worker")

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        return [*unknown_roles(self, counts), *one_master(self.name, counts)]

    def reserved(self) -> FrozenSet[str]:
        return _VARIABLES

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        machines = _machines(gang)
        own = str(place.member.ports[place.local_rank])
        return {
            "MASTER_ADDR": machines[0][0],
            "MASTER_PORT": str(machines[0][1]),
            "WORKER_ADDRS": ",".join(host for host, _ in machines[1:]),
            "WORKER_PORT": own,
            "RANK": str(place.rank),
            "WORLD_SIZE": str(gang.world_size),
            "LIGHTGBM_MACHINES": ",".join("%s:%d" % machine for machine in machines),
            "LIGHTGBM_MACHINE_LIST": FILES + "/" + MACHINE_LIST,
            "LIGHTGBM_NUM_MACHINE": str(len(machines)),
            "LIGHTGBM_LOCAL_LISTEN_PORT": own,
        }

    def files(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        return {MACHINE_LIST: "".join("%s %d\n" % machine for machine in _machines(gang))}


def _machines(gang: Gang) -> List[Tuple[str, int]]:
    """Where each rank listens, in the order of the ranks."""
    return [(member.host, port) for member in gang.ordered for port in member.ports]
