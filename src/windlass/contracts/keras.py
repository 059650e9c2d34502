"""Keras 3, on any of its backends.

The script's author chooses the backend where Keras lets him: KERAS_BACKEND, `keras.json`, or a line
in the script. We cannot see the last two, so we do not ask: the launch variables of all backends
are set at once. They have no name in common, and only one backend runs, so one port serves for all.

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
from windlass.contracts.base import Contract, Gang, RankPlace
from windlass.contracts.pytorch import PyTorchContract

ROLES = ("chief", "worker")
_OWN = frozenset(
    "JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID KERAS_DISTRIBUTION_JOB_ADDRESSES"
    " KERAS_DISTRIBUTION_NUM_PROCESSES KERAS_DISTRIBUTION_PROCESS_ID".split()
)


class KerasContract(Contract):
    name = "keras"

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        found = [
            "%s is not a role of keras; known: %s%s" % (role, ", ".join(ROLES), _elsewhere(role))
            for role in counts
            if role not in ROLES
        ]
        return found or tensorflow.role_problems(self.name, counts)

    def reserved(self) -> FrozenSet[str]:
        return _OWN | tensorflow.RESERVED | PyTorchContract().reserved()

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        if gang.world_size == 1:
            return {}
        every = tensorflow.addresses(self, gang)
        ranks = [address for addresses in every.values() for address in addresses]
        return {
            **tensorflow.cluster_variables(every, place),
            **tensorflow.shared_gpus(self, place.member),
            **PyTorchContract().environment(gang, place),
            "JAX_COORDINATOR_ADDRESS": ranks[0],
            "JAX_NUM_PROCESSES": str(len(ranks)),
            "JAX_PROCESS_ID": str(place.rank),
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join(ranks),
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(len(ranks)),
            "KERAS_DISTRIBUTION_PROCESS_ID": str(place.rank),
        }


def _elsewhere(role: str) -> str:
    if role in tensorflow.ROLES:
        return " (Keras 3 trains no such gang; framework tensorflow has %s)" % role
    return ""
