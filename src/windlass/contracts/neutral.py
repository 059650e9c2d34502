"""The WINDLASS_* variables that every rank gets, whatever its framework.

Only what follows from the gang; the worker adds what only it knows (folders, tokens, devices).
"""

from __future__ import annotations

from typing import Dict, FrozenSet

from windlass.contracts.base import FILES, Gang, RankPlace

RESERVED = frozenset({"CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED", "TMPDIR"})
RESERVED_PREFIX = "WINDLASS_"


def environment(gang: Gang, place: RankPlace) -> Dict[str, str]:
    """The neutral variables of one process. A node counts once, however many members it has."""
    member = place.member
    nodes = gang.nodes
    hosts = {each.node: each.host for each in gang.members}
    gpus = sum(each.gpus for each in gang.members if each.node == member.node)
    return {
        "WINDLASS_JOB_ID": gang.job_id,
        "WINDLASS_JOB_NAME": gang.job_name,
        "WINDLASS_ATTEMPT": str(gang.attempt),
        "WINDLASS_ROLE": member.role,
        "WINDLASS_ROLE_INDEX": str(member.index),
        "WINDLASS_RANK": str(place.rank),
        "WINDLASS_WORLD_SIZE": str(gang.world_size),
        "WINDLASS_LOCAL_RANK": str(place.local_rank),
        "WINDLASS_NODE_RANK": str(nodes.index(member.node)),
        "WINDLASS_NUM_NODES": str(len(nodes)),
        "WINDLASS_GPUS_PER_NODE": str(gpus),
        "WINDLASS_NODE_IPS": "\n".join(hosts[node] for node in nodes),
        "WINDLASS_HOSTFILE": FILES + "/hostfile",
    }


def files(gang: Gang) -> Dict[str, str]:
    """`hostfile`: a line `host slots=N` for each node, N its ranks (Open MPI, DeepSpeed)."""
    lines = []
    for node in gang.nodes:
        members = [member for member in gang.members if member.node == node]
        lines.append("%s slots=%d\n" % (members[0].host, sum(each.nproc for each in members)))
    return {"hostfile": "".join(lines)}


def reserved() -> FrozenSet[str]:
    return RESERVED
