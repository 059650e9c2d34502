"""Horovod over Gloo: no ssh, no MPI, and no `horovodrun`: each rank is started by its worker.

The ranks meet in a key-value store that the worker of rank 0 serves (`worker/services/`), at that
member's service port. A member is what Horovod calls a host: its ranks see its devices and no
others, so `set_device(hvd.local_rank())` is right however many members share a node.
"""

from __future__ import annotations

import json
from typing import Dict, FrozenSet, List, Mapping, Sequence, Tuple

from windlass.contracts.base import Contract, Gang, RankPlace

KEY_VALUE_STORE = "horovod-kv"
SCOPES_FILE = "horovod-scopes.json"
_VARIABLES = frozenset(
    "HOROVOD_HOSTNAME HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE"
    " HOROVOD_CROSS_RANK HOROVOD_CROSS_SIZE HOROVOD_GLOO_RENDEZVOUS_ADDR"
    " HOROVOD_GLOO_RENDEZVOUS_PORT HOROVOD_CONTROLLER HOROVOD_CPU_OPERATIONS HOROVOD_GLOO_IFACE"
    " HOROVOD_ELASTIC".split()
)


class HorovodContract(Contract):
    name = "horovod"
    gpus = "member"
    roles = ("worker",)

    def command_problems(
        self, counts: Mapping[str, int], commands: Mapping[str, Sequence[str]]
    ) -> List[str]:
        if any(
            words and words[0].rsplit("/", 1)[-1] == "horovodrun" for words in commands.values()
        ):
            return [
                "horovodrun would start ranks of its own in each rank:"
                " give the command that follows it, and --workers for its -np"
            ]
        return []

    def reserved(self) -> FrozenSet[str]:
        return _VARIABLES

    def settings(self) -> FrozenSet[str]:
        return frozenset({"NCCL_SOCKET_IFNAME"})

    def services(self, gang: Gang) -> Tuple[str, ...]:
        return (KEY_VALUE_STORE,)

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        member, first = place.member, gang.ordered[0]
        across = _hosts_with(gang, place.local_rank)
        found = {
            "HOROVOD_HOSTNAME": member.name,
            "HOROVOD_RANK": str(place.rank),
            "HOROVOD_SIZE": str(gang.world_size),
            "HOROVOD_LOCAL_RANK": str(place.local_rank),
            "HOROVOD_LOCAL_SIZE": str(member.nproc),
            "HOROVOD_CROSS_RANK": str(across.index(member.name)),
            "HOROVOD_CROSS_SIZE": str(len(across)),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": first.host,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(first.service_port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
        }
        if member.ifname:
            found.update(HOROVOD_GLOO_IFACE=member.ifname, NCCL_SOCKET_IFNAME=member.ifname)
        return found

    def files(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        """The store must know how many ranks leave each scope; it stands beside rank 0."""
        if place.rank != 0:
            return {}
        return {SCOPES_FILE: json.dumps(scopes(gang), sort_keys=True)}


def scopes(gang: Gang) -> Dict[str, int]:
    """How many ranks meet in each scope of the store."""
    found = {"global": gang.world_size}
    for member in gang.ordered:
        found["local_" + member.name] = member.nproc
        for local_rank in range(member.nproc):
            found["cross_%d" % local_rank] = len(_hosts_with(gang, local_rank))
    return found


def _hosts_with(gang: Gang, local_rank: int) -> List[str]:
    """The hosts that have a rank of this number, in the order of ranks."""
    return [member.name for member in gang.ordered if member.nproc > local_rank]
