"""PyTorch: `env://` when we start each rank, `PET_*` when the user's command is torchrun itself.

The two are never mixed. Kubeflow v1 sets RANK to the pod's index and WORLD_SIZE to pods x nproc; a
script below torchrun then sees nonsense. So the plain variables go only to processes that are
ranks, and a launcher gets the variables that torchrun reads as its flags.

A script does `cuda.set_device(LOCAL_RANK)`, so each rank sees all devices of its member.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, Sequence, Tuple

from windlass.contracts.base import Contract, Gang, Member, RankPlace, sharers

_RANK_VARIABLES = frozenset(
    "MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK"
    " GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE TORCHELASTIC_RESTART_COUNT"
    " TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE NODE_RANK"
    " CROSS_RANK CROSS_SIZE LOCAL_SIZE".split()
)
_LAUNCHER_VARIABLES = frozenset(
    "PET_NNODES PET_NPROC_PER_NODE PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT PET_RDZV_BACKEND"
    " PET_RDZV_ENDPOINT PET_RDZV_ID PET_MAX_RESTARTS".split()
)
_SETTINGS = frozenset(
    "NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME TORCH_NCCL_ASYNC_ERROR_HANDLING"
    " ACCELERATE_TORCH_DEVICE TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    " PYTORCH_CUDA_ALLOC_CONF".split()
)
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_NODE_LAUNCHERS = ("deepspeed", "accelerate")
_ELASTIC_RESTARTS = 3
GATHERING = "gathering"
"""The service of the worker (`worker/services/`) that holds it."""


class PyTorchContract(Contract):
    name = "pytorch"
    gpus = "member"
    ports_stay_held = True

    def command_problems(
        self, counts: Mapping[str, int], commands: Mapping[str, Sequence[str]]
    ) -> List[str]:
        if sum(counts.values()) < 2:
            return []
        return [
            "%s starts ranks on other members over ssh, which this platform does not offer: run"
            " the script itself, and each rank is started here" % command[0]
            for command in dict.fromkeys(tuple(each) for each in commands.values())
            if is_node_launcher(command)
        ]

    def loss_problems(self, commands: Mapping[str, Sequence[str]]) -> List[str]:
        """A script that calls `windlass.train` may go on; whether it does, its strategy says."""
        return [
            "%s starts and watches ranks of its own: run the script itself" % command[0]
            for command in dict.fromkeys(tuple(each) for each in commands.values())
            if is_launcher(command) or is_node_launcher(command)
        ]

    def services(self, gang: Gang) -> Tuple[str, ...]:
        """Where the members of a training meet must outlive each of them."""
        return (GATHERING,) if gang.goes_on and gang.ordered[0].service_port else ()

    def reserved(self) -> FrozenSet[str]:
        return _RANK_VARIABLES | _LAUNCHER_VARIABLES

    def settings(self) -> FrozenSet[str]:
        return _SETTINGS

    def ranks_started_by_worker(self, member: Member) -> int:
        launches = is_launcher(member.command) or is_node_launcher(member.command)
        return 1 if launches else member.nproc

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        shared = {**_interface(place.member), **_memory(place.member)}
        if is_launcher(place.member.command):
            return {**_launcher(gang, place.member), **shared}
        if is_node_launcher(place.member.command):
            return shared
        return {**_rank(gang, place), **self._meeting(gang), **shared}

    def _meeting(self, gang: Gang) -> Dict[str, str]:
        first = gang.ordered[0]
        if not self.services(gang):
            return {}
        return {"WINDLASS_GATHERING": "%s:%d" % (first.host, first.service_port)}


def is_launcher(command: Sequence[str]) -> bool:
    """Whether a command is torchrun, by its name or as a module of some Python."""
    if not command:
        return False
    if command[0].rsplit("/", 1)[-1] == "torchrun":
        return True
    for position, word in enumerate(command[1:-1], start=1):
        if word == "-m":
            return command[position + 1] in _LAUNCHER_MODULES
        if not word.startswith("-"):
            return False
    return False


def is_node_launcher(command: Sequence[str]) -> bool:
    """DeepSpeed's and Accelerate's launchers make ranks on their own node and set the variables of
    each; over several nodes they want ssh, so such a gang runs the script itself."""
    return bool(command) and command[0].rsplit("/", 1)[-1] in _NODE_LAUNCHERS


def _rank(gang: Gang, place: RankPlace) -> Dict[str, str]:
    """env://, with all that a rank below torchrun would find besides."""
    members = gang.ordered
    member = place.member
    same_role = gang.of_role(member.role)
    before = sum(each.nproc for each in same_role if each.index < member.index)
    return {
        "MASTER_ADDR": members[0].host,
        "MASTER_PORT": str(members[0].ports[0]),
        "RANK": str(place.rank),
        "WORLD_SIZE": str(gang.world_size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(member.nproc),
        "GROUP_RANK": str(members.index(member)),
        "GROUP_WORLD_SIZE": str(len(members)),
        "NODE_RANK": str(members.index(member)),
        "ROLE_NAME": member.role,
        "ROLE_RANK": str(before + place.local_rank),
        "ROLE_WORLD_SIZE": str(sum(each.nproc for each in same_role)),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": _run_id(gang),
        # No agent holds a store for us: rank 0 opens it, as env:// has it.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        # DeepSpeed's names for the same; its hostfile is WINDLASS_HOSTFILE.
        "CROSS_RANK": str(members.index(member)),
        "CROSS_SIZE": str(len(members)),
        "LOCAL_SIZE": str(member.nproc),
        **_accelerate(place),
    }


def _accelerate(place: RankPlace) -> Dict[str, str]:
    gpus = place.member.gpus
    return {"ACCELERATE_TORCH_DEVICE": "cuda:%d" % (place.local_rank % gpus)} if gpus else {}


def _launcher(gang: Gang, member: Member) -> Dict[str, str]:
    """The flags of torchrun on one member; only members that run torchrun are its nodes."""
    launchers: List[Member] = [each for each in gang.ordered if is_launcher(each.command)]
    first = launchers[0]
    minimum = sum(
        min(gang.minimum.get(role, len(members)), len(members))
        for role in dict.fromkeys(each.role for each in launchers)
        for members in [[each for each in launchers if each.role == role]]
    )
    found = {"PET_NPROC_PER_NODE": str(member.nproc)}
    if minimum < len(launchers):
        found.update(
            PET_NNODES="%d:%d" % (minimum, len(launchers)),
            PET_RDZV_BACKEND="c10d",
            PET_RDZV_ENDPOINT="%s:%d" % (first.host, first.ports[0]),
            PET_RDZV_ID=_run_id(gang),
            PET_MAX_RESTARTS=str(_ELASTIC_RESTARTS),
            # A launcher remembers the store of its first round. When rank 0 moves to another node
            # in a later one, half of the ranks would wait at the old store, for ever.
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )
        return found
    found.update(
        PET_NNODES=str(len(launchers)),
        PET_NODE_RANK=str(launchers.index(member)),
        PET_MASTER_ADDR=first.host,
        PET_MASTER_PORT=str(first.ports[0]),
    )
    return found


def _interface(member: Member) -> Dict[str, str]:
    if not member.ifname:
        return {}
    return {"NCCL_SOCKET_IFNAME": member.ifname, "GLOO_SOCKET_IFNAME": member.ifname}


def _memory(member: Member) -> Dict[str, str]:
    """Where ranks share a GPU: what one gives back, another must be able to use."""
    if sharers(member.nproc, member.gpus) == 1:
        return {}
    return {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def _run_id(gang: Gang) -> str:
    return "%s-%d" % (gang.job_id, gang.attempt)
