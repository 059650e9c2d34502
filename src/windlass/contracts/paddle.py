"""PaddlePaddle: what its launcher would give each trainer, or what the launcher itself reads.

    python train.py                          each rank is told its place, as a trainer
    python -m paddle.distributed.launch …    each member runs the launcher, as one of its nodes

The two are never mixed: a launcher that finds PADDLE_TRAINER_ID takes it for its node's rank.
With a role `server` the ranks are those of a parameter server job (`TRAINING_ROLE`), as
`paddle.distributed.fleet` reads them. A trainer sees only its own devices, so its number is 0.

The launcher's elastic mode needs an etcd server; it is not offered.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, Sequence

from windlass.contracts.base import FILES, Contract, Gang, Member, RankPlace, unknown_roles

_TRAINER = frozenset(
    "PADDLE_GLOBAL_RANK PADDLE_GLOBAL_SIZE PADDLE_LOCAL_RANK PADDLE_LOCAL_SIZE PADDLE_TRAINER_ID"
    " PADDLE_TRAINERS_NUM PADDLE_TRAINER_ENDPOINTS PADDLE_CURRENT_ENDPOINT PADDLE_RANK_IN_NODE"
    " PADDLE_DISTRI_BACKEND FLAGS_selected_gpus".split()
)
_LAUNCHER = frozenset(
    "PADDLE_MASTER PADDLE_NNODES PADDLE_NPROC_PER_NODE PADDLE_JOB_ID PADDLE_RANK POD_IP".split()
)
_PARAMETER_SERVER = frozenset(
    "TRAINING_ROLE PADDLE_ROLE PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PORT".split()
)
_LAUNCHER_MODULES = ("paddle.distributed.launch", "paddle.distributed.run")


class PaddleContract(Contract):
    name = "paddle"
    roles = ("worker", "server")
    ports_stay_held = True

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        found = unknown_roles(self, counts)
        if counts.get("server") and not counts.get("worker"):
            found.append("paddle servers without a worker train nothing: add the role worker")
        return found

    def command_problems(
        self, counts: Mapping[str, int], commands: Mapping[str, Sequence[str]]
    ) -> List[str]:
        if counts.get("server") and any(is_launcher(command) for command in commands.values()):
            return [
                "paddle's launcher makes servers and workers by itself: run it without the role"
                " server, or run the script in both roles"
            ]
        return []

    def reserved(self) -> FrozenSet[str]:
        return _TRAINER | _LAUNCHER | _PARAMETER_SERVER

    def settings(self) -> FrozenSet[str]:
        return frozenset({"PADDLE_LOG_DIR"})

    def ranks_started_by_worker(self, member: Member) -> int:
        return 1 if is_launcher(member.command) else member.nproc

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        if is_launcher(place.member.command):
            return _launcher(gang, place.member)
        if gang.of_role("server"):
            return _parameter_server(gang, place)
        return _trainer(gang, place)


def is_launcher(command: Sequence[str]) -> bool:
    """Whether a command is Paddle's own launcher, by its name or as a module."""
    if not command:
        return False
    if command[0].rsplit("/", 1)[-1] == "fleetrun":
        return True
    for position, word in enumerate(command[1:-1], start=1):
        if word == "-m":
            return command[position + 1] in _LAUNCHER_MODULES
        if not word.startswith("-"):
            return False
    return False


def _trainer(gang: Gang, place: RankPlace) -> Dict[str, str]:
    member, first = place.member, gang.ordered[0]
    found = {
        "PADDLE_MASTER": "%s:%d" % (first.host, first.ports[0]),
        "PADDLE_NNODES": str(len(gang.members)),
        "PADDLE_GLOBAL_RANK": str(place.rank),
        "PADDLE_GLOBAL_SIZE": str(gang.world_size),
        "PADDLE_LOCAL_RANK": str(place.local_rank),
        "PADDLE_LOCAL_SIZE": str(member.nproc),
        "PADDLE_TRAINER_ID": str(place.rank),
        "PADDLE_TRAINERS_NUM": str(gang.world_size),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(_endpoints(gang.ordered)),
        "PADDLE_CURRENT_ENDPOINT": "%s:%d" % (member.host, member.ports[place.local_rank]),
        "PADDLE_RANK_IN_NODE": str(place.local_rank),
    }
    return {**found, **_device(member)}


def _launcher(gang: Gang, member: Member) -> Dict[str, str]:
    """Only members that run the launcher are its nodes."""
    launchers = [each for each in gang.ordered if is_launcher(each.command)]
    first = launchers[0]
    return {
        "PADDLE_MASTER": "%s:%d" % (first.host, first.ports[0]),
        "PADDLE_NNODES": str(len(launchers)),
        "PADDLE_NPROC_PER_NODE": str(member.nproc),
        "PADDLE_JOB_ID": "%s-%d" % (gang.job_id, gang.attempt),
        "PADDLE_RANK": str(launchers.index(member)),
        "POD_IP": member.host,
        # Launchers of one machine would write over each other's logs in the code's folder.
        "PADDLE_LOG_DIR": FILES + "/log",
        **({} if member.gpus else {"PADDLE_DISTRI_BACKEND": "gloo"}),
    }


def _parameter_server(gang: Gang, place: RankPlace) -> Dict[str, str]:
    member = place.member
    workers = gang.of_role("worker")
    trains = member.role == "worker"
    role = "TRAINER" if trains else "PSERVER"
    found = {
        "TRAINING_ROLE": role,
        "PADDLE_ROLE": role,
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(_endpoints(gang.of_role("server"))),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(_endpoints(workers)),
        "PADDLE_TRAINERS_NUM": str(sum(each.nproc for each in workers)),
        "PADDLE_CURRENT_ENDPOINT": "%s:%d" % (member.host, member.ports[place.local_rank]),
        "PADDLE_PORT": str(member.ports[place.local_rank]),
        "POD_IP": member.host,
    }
    if trains:
        before = sum(each.nproc for each in workers if each.index < member.index)
        found["PADDLE_TRAINER_ID"] = str(before + place.local_rank)
        found.update(_device(member))
    return found


def _device(member: Member) -> Dict[str, str]:
    return {"FLAGS_selected_gpus": "0"} if member.gpus else {"PADDLE_DISTRI_BACKEND": "gloo"}


def _endpoints(members: Sequence[Member]) -> List[str]:
    return ["%s:%d" % (member.host, port) for member in members for port in member.ports]
