"""MXNet and whatever else is built on ps-lite: one scheduler, some servers, some workers.

All three run the same program; `DMLC_ROLE` says what it becomes. The scheduler binds the port it
is given and does not try another; servers and workers choose their own and tell the scheduler.
Servers and the scheduler serve until the workers are done. A single worker alone is a plain
script: it gets no variables, for a process that finds a role waits for its peers.
"""

from __future__ import annotations

import json
from typing import Dict, FrozenSet, List, Mapping

from windlass.contracts.base import Contract, Gang, RankPlace, unknown_roles

_VARIABLES = frozenset(
    "DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_SERVER DMLC_NUM_WORKER DMLC_WORKER_ID"
    " DMLC_SERVER_ID DMLC_NODE_HOST MX_CONFIG".split()
)


class MXNetContract(Contract):
    name = "mxnet"
    roles = ("scheduler", "server", "worker")
    ports_stay_held = True

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        found = unknown_roles(self, counts)
        if counts.get("scheduler", 0) > 1:
            found.append("mxnet takes one scheduler, found %d" % counts["scheduler"])
        if set(counts) == {"worker"} and counts["worker"] == 1:
            return found
        found += [
            "mxnet needs the role %s: --role scheduler=1 --role server=1 --role worker=2" % role
            for role in self.roles
            if not counts.get(role)
        ]
        return found

    def reserved(self) -> FrozenSet[str]:
        # ps-lite takes PORT for its own port: every process of a node would want the same one.
        return _VARIABLES | {"PORT"}

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        schedulers = gang.of_role("scheduler")
        if not schedulers:
            return {}
        member = place.member
        found = {
            "DMLC_ROLE": member.role,
            "DMLC_PS_ROOT_URI": schedulers[0].host,
            "DMLC_PS_ROOT_PORT": str(schedulers[0].ports[0]),
            "DMLC_NUM_SERVER": str(_processes(gang, "server")),
            "DMLC_NUM_WORKER": str(_processes(gang, "worker")),
            "DMLC_NODE_HOST": member.host,
            "MX_CONFIG": json.dumps(_config(gang, place), separators=(",", ":")),
        }
        if member.role in ("worker", "server"):
            found["DMLC_%s_ID" % member.role.upper()] = str(_number(gang, place))
        return found


def _processes(gang: Gang, role: str) -> int:
    return sum(member.nproc for member in gang.of_role(role))


def _number(gang: Gang, place: RankPlace) -> int:
    """Which process of its role this is."""
    same = gang.of_role(place.member.role)
    before = sum(each.nproc for each in same if each.index < place.member.index)
    return before + place.local_rank


def _config(gang: Gang, place: RankPlace) -> Dict[str, object]:
    roles = list(dict.fromkeys(member.role for member in gang.ordered))
    return {
        "cluster": {
            role: [
                {"url": member.host, "port": port}
                for member in gang.of_role(role)
                for port in member.ports
            ]
            for role in roles
        },
        "labels": {role: "" for role in roles},
        "task": {"type": place.member.role, "index": _number(gang, place)},
    }
