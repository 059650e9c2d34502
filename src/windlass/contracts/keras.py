"""Keras 3, on any of its backends.

The backend is chosen where Keras has it chosen: by KERAS_BACKEND, by `keras.json`, or by a line in
the script. We cannot see the last two, so we do not ask: the launch variables of all backends are
set at once. They have no name in common, and only one backend runs, so one port serves for all.

    torch         MASTER_ADDR, RANK, WORLD_SIZE …       as framework pytorch
    tensorflow    TF_CONFIG …                           as framework tensorflow
    jax           JAX_COORDINATOR_ADDRESS …, and KERAS_DISTRIBUTION_* for
                  `keras.distribution.initialize()`

Each rank sees only its own share of the GPUs, as the first and only one: what Keras takes by
itself. A script that says `torch.cuda.set_device(LOCAL_RANK)` wants `--framework pytorch`.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping

from windlass.contracts import tensorflow
from windlass.contracts.base import Contract, Gang, Member, RankPlace
from windlass.contracts.jax import JaxContract
from windlass.contracts.pytorch import PyTorchContract, is_launcher

_DISTRIBUTION = frozenset(
    "KERAS_DISTRIBUTION_JOB_ADDRESSES KERAS_DISTRIBUTION_NUM_PROCESSES"
    " KERAS_DISTRIBUTION_PROCESS_ID".split()
)


class KerasContract(Contract):
    name = "keras"
    roles = ("chief", "worker")
    ports_stay_held = PyTorchContract.ports_stay_held and JaxContract.ports_stay_held
    threads = (*tensorflow.THREADS, *JaxContract.threads)

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        found = tensorflow.role_problems(self, counts)
        if any(role in tensorflow.ROLES and role not in self.roles for role in counts):
            found.append("Keras 3 trains no such gang; framework tensorflow has these roles")
        return found

    def finish(self, counts: Mapping[str, int]) -> Dict[str, str]:
        return {role: "all" for role in counts}

    def reserved(self) -> FrozenSet[str]:
        launch = tensorflow.RESERVED | PyTorchContract().reserved() | JaxContract().reserved()
        return _DISTRIBUTION | launch

    def settings(self) -> FrozenSet[str]:
        return tensorflow.SETTINGS | PyTorchContract().settings() | JaxContract().settings()

    def ranks_started_by_worker(self, member: Member) -> int:
        return PyTorchContract().ranks_started_by_worker(member)

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        if is_launcher(place.member.command):
            return PyTorchContract().environment(gang, place)
        if gang.world_size == 1:
            return {}
        every = tensorflow.addresses(self, gang)
        ranks = [address for addresses in every.values() for address in addresses]
        return {
            **tensorflow.cluster_variables(every, place),
            **tensorflow.shared_gpus(self, place.member),
            **PyTorchContract().environment(gang, place),
            **JaxContract().environment(gang, place),
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join(ranks),
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(len(ranks)),
            "KERAS_DISTRIBUTION_PROCESS_ID": str(place.rank),
        }
