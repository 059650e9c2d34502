"""JAX: where the coordinator listens, how many processes there are, and which one this is.

JAX itself reads only JAX_COORDINATOR_ADDRESS; count and id are arguments of
`jax.distributed.initialize`. `windlass.job.collective.jax()` passes them. The names without the
prefix are those of Kubeflow's JAXJob.

Where the job sets a proxy, gRPC would ask it even for a neighbour, and `initialize` hangs. Then
`no_grpc_proxy`, which only gRPC reads, names the gang's hosts. (Not otherwise: JAX warns of every
variable with that word in it.)
"""

from __future__ import annotations

from typing import Dict, FrozenSet

from windlass.contracts.base import Contract, Gang, RankPlace, sharers

_VARIABLES = frozenset(
    "JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID COORDINATOR_ADDRESS COORDINATOR_PORT"
    " NUM_PROCESSES PROCESS_ID no_grpc_proxy".split()
)
_PROXIES = frozenset({"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"})


class JaxContract(Contract):
    name = "jax"
    roles = ("worker",)
    ports_stay_held = True
    threads = ("PJRT_NPROC",)  # the size of XLA's pool of threads on the CPU

    def reserved(self) -> FrozenSet[str]:
        return _VARIABLES

    def settings(self) -> FrozenSet[str]:
        return frozenset({"XLA_PYTHON_CLIENT_MEM_FRACTION"})

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        first = gang.ordered[0]
        found = {
            "JAX_COORDINATOR_ADDRESS": "%s:%d" % (first.host, first.ports[0]),
            "JAX_NUM_PROCESSES": str(gang.world_size),
            "JAX_PROCESS_ID": str(place.rank),
            "COORDINATOR_ADDRESS": first.host,
            "COORDINATOR_PORT": str(first.ports[0]),
            "NUM_PROCESSES": str(gang.world_size),
            "PROCESS_ID": str(place.rank),
        }
        if _PROXIES & {name.lower() for name in gang.job_variables}:
            found["no_grpc_proxy"] = ",".join(dict.fromkeys(each.host for each in gang.ordered))
        sharing = sharers(place.member.nproc, place.member.gpus)
        if sharing > 1:  # JAX takes three quarters of a GPU's memory at its start
            found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "%.2f" % (0.9 / sharing)
        return found
