"""The words of a contract: a gang with its addresses goes in, each rank's environment comes out.

A contract is a pure function: no clock, no file, no socket. The server evaluates it once, when
the whole gang has registered, so every rank is told the same story.

Global ranks are dealt role by role in the order of `ROLE_ORDER` (roles that it does not name
follow, by name), within a role member by member, within a member by local rank:

    chief-0  worker-0  worker-0  worker-1  worker-1  ps-0
    rank 0   rank 1    rank 2    rank 3    rank 4    rank 5
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

ROLE_ORDER = ("chief", "master", "launcher", "scheduler", "worker", "ps", "server", "evaluator")

NEVER_ENDS = frozenset({"ps", "server", "scheduler", "evaluator"})
"""Roles whose processes serve until the others are done, in every framework we know."""

FILES = "@files@"
"""In a value of a rank's environment: the folder where the worker puts that rank's files."""


@dataclass(frozen=True)
class Member:
    """One member of a gang, where it stands, and the ports it holds (one for each rank)."""

    role: str
    index: int
    nproc: int
    node: str
    host: str
    ports: Tuple[int, ...]
    command: Tuple[str, ...] = ()
    gpus: int = 0
    ifname: Optional[str] = None
    cpus: float = 0
    service_port: int = 0
    """One more port, bound on `host`, for a service that the worker itself runs."""
    node_cpus: float = 0
    """What all processes of its node may use together, as its worker found it; 0: not known."""
    node_cores: int = 0
    """How many of them a process sees that asks the system: more, where a quota holds."""
    machine: str = ""
    """The same for members whose nodes share a machine, and so its CPUs."""

    @property
    def name(self) -> str:
        return "%s-%d" % (self.role, self.index)


@dataclass(frozen=True)
class Gang:
    """A whole gang. By role: `minimum` (absent: its count) and `finish` (absent: all).
    `job_variables` are the names that the job itself sets."""

    job_id: str
    job_name: str
    attempt: int
    members: Tuple[Member, ...]
    minimum: Mapping[str, int] = field(default_factory=dict)
    finish: Mapping[str, str] = field(default_factory=dict)
    job_variables: FrozenSet[str] = frozenset()
    goes_on: bool = False
    """When a member is lost the others go on, and it is started again (`on_member_loss`)."""

    @cached_property
    def ordered(self) -> Tuple[Member, ...]:
        """The members in the order in which ranks are dealt."""

        def place(member: Member) -> Tuple[int, str, int]:
            known = member.role in ROLE_ORDER
            order = ROLE_ORDER.index(member.role) if known else len(ROLE_ORDER)
            return (order, "" if known else member.role, member.index)

        return tuple(sorted(self.members, key=place))

    @cached_property
    def world_size(self) -> int:
        return sum(member.nproc for member in self.members)

    @cached_property
    def first_ranks(self) -> Dict[str, int]:
        """The global rank of each member's first process, by the member's name."""
        ranks: Dict[str, int] = {}
        following = 0
        for member in self.ordered:
            ranks[member.name] = following
            following += member.nproc
        return ranks

    @cached_property
    def nodes(self) -> Tuple[str, ...]:
        """The nodes, in the order in which ranks reach them."""
        return tuple(dict.fromkeys(member.node for member in self.ordered))

    def of_role(self, role: str) -> Tuple[Member, ...]:
        return tuple(member for member in self.ordered if member.role == role)


@dataclass(frozen=True)
class RankPlace:
    """One process that the worker starts: which rank of which member it is."""

    member: Member
    local_rank: int
    rank: int


@dataclass(frozen=True)
class Probe:
    """Something only the job's own Python knows: whether a module can be imported there. The
    worker looks, sets `variables` where it can, and tells the job's events either way."""

    module: str
    variables: Mapping[str, str]
    found: str
    missing: str


class Contract:
    """What a framework asks for. All pure; a framework overrides what differs from a plain
    command. `counts` is by role how many members it has."""

    name = ""
    gpus = "rank"
    """`member`: each rank sees all its member's devices; `rank`: they are dealt over the ranks."""
    roles: Tuple[str, ...] = ()
    """The roles that the framework knows; none: any role will do."""
    ports_stay_held = False
    """Whether the framework can listen on a port that the worker still holds (it sets SO_REUSEADDR
    or SO_REUSEPORT). If so, nobody else is ever given the port while the attempt lives."""
    threads: Tuple[str, ...] = ()
    """Variables of this framework alone that take a number of threads (`contracts/threads.py`)."""
    needs_first_node = True
    """Of a gang that goes on without those it loses: whether the node of rank 0 holds something
    that the others cannot do without."""

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        """What is wrong with a gang of these roles, in words that name the known choices."""
        return unknown_roles(self, counts)

    def command_problems(
        self, counts: Mapping[str, int], commands: Mapping[str, Sequence[str]]
    ) -> List[str]:
        """What is wrong with what the roles run, `commands` by role."""
        return []

    def loss_problems(self, commands: Mapping[str, Sequence[str]]) -> List[str]:
        """Why a gang that runs these commands cannot go on when it loses a member (`commands` by
        role); nothing: it can."""
        return [
            "%s tells its members of each other once, at their start: none can be replaced while"
            " the others run" % self.name
        ]

    def finish(self, counts: Mapping[str, int]) -> Dict[str, str]:
        """By role: `all` must end well, the `first` member decides, or it `never` ends by itself
        and is ended with the others."""
        serving = [role for role in counts if role in NEVER_ENDS]
        if len(serving) == len(counts):
            serving = []
        return {role: "never" if role in serving else "all" for role in counts}

    def reserved(self) -> FrozenSet[str]:
        """The launch variables of this framework, which a user may not set."""
        return frozenset()

    def settings(self) -> FrozenSet[str]:
        """What this framework sets only by default: where a job sets it too, the job's counts."""
        return frozenset()

    def ranks_started_by_worker(self, member: Member) -> int:
        """How many processes the worker starts for a member: its ranks, or one launcher."""
        return member.nproc

    def sharers_of_cpus(self, member: Member) -> int:
        """How many processes compute on a member's CPUs; a launcher's own ranks count too."""
        return member.nproc

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        """What this framework adds to the environment of one process."""
        return {}

    def files(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        """What this framework wants as files, by name; `FILES` is their folder."""
        return {}

    def prefix(self, gang: Gang, place: RankPlace) -> Tuple[str, ...]:
        """Words put before the member's command: a launcher that the user did not write."""
        return ()

    def stand_in(self, gang: Gang, place: RankPlace) -> Optional[str]:
        """The service of the worker that this process is, in place of the member's command."""
        return None

    def hooks(self, gang: Gang) -> Tuple[str, ...]:
        """Start-up hooks of the worker (`worker/hooks/`) that run in each rank's Python."""
        return ()

    def probes(self, gang: Gang) -> Tuple[Probe, ...]:
        return ()

    def services(self, gang: Gang) -> Tuple[str, ...]:
        """Services of the worker that the gang needs beside its ranks (`worker/services/`)."""
        return ()


def unknown_roles(contract: Contract, counts: Mapping[str, int]) -> List[str]:
    """A sentence for each role that the contract does not know, with those that it does."""
    if not contract.roles:
        return []
    known = ", ".join(contract.roles)
    return [
        "%s has no role %r; known: %s" % (contract.name, role, known)
        for role in counts
        if role not in contract.roles
    ]


def sharers(processes: int, gpus: int) -> int:
    """How many processes of a member have one GPU between them; 1 where each has its own."""
    return -(-processes // gpus) if 0 < gpus < processes else 1


def places(contract: Contract, gang: Gang, member: Member) -> List[RankPlace]:
    """The processes that the worker starts for a member."""
    first = gang.first_ranks[member.name]
    started = contract.ranks_started_by_worker(member)
    return [RankPlace(member, local_rank, first + local_rank) for local_rank in range(started)]
