"""The words between the scheduler's core and whoever drives it: what is heard, what is decided.

Everything is an integer (milli-CPUs, bytes, milli-GPUs, milliseconds) or a name. The driver (the
server's `admit`, or the simulator) hands over batches of events with the time they are heard at,
and carries out the decisions:

    Submit ──► pending ──► Start ──► holds its seats ──► Release
                  ▲                       │  Preempt (told to end; its seats go to the preemptor)
                  └──── Submit again ◄────┘  Resize (an elastic gang gets other seats)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 1 << 62
"""A time that does not come."""


@dataclass(frozen=True, slots=True)
class Need:
    """`count` members of one role, each wanting this much of one node."""

    role: str
    count: int
    cpus_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    """Whole devices."""
    gpu_milli: int = 0
    """A share of one device, 1 to 999; never together with `gpus`."""
    slots: int = 1
    gpu_models: tuple[str, ...] = ()
    """The models it may run on, sorted; empty: any."""
    minimum: int = 0
    """Elastic: as few as this many members will do, up to `count`. 0: all or nothing."""
    labels: tuple[str, ...] = ()
    """What its node must offer beside amounts, sorted; empty: nothing."""


class Seat(NamedTuple):
    """One member on a node, with the devices that are its own (numbers on that node)."""

    role: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name; nobody calls it
    node: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """A node as the core knows it: net of the system's reserve."""

    name: str
    cpus_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    slots: int = 1 << 30
    gpu_model: str = ""
    rack: str = ""
    block: str = ""
    pool: str = ""
    labels: tuple[str, ...] = ()
    """What it can do beside amounts (`isolation-1`)."""


# What the driver tells


@dataclass(frozen=True, slots=True)
class NodeUp:
    offer: Offer


@dataclass(frozen=True, slots=True)
class NodeDown:
    """The node takes nothing new. What runs there keeps what it holds until released."""

    name: str


@dataclass(frozen=True, slots=True)
class Submit:
    """A job waits. Telling it again, with the same or other wishes, replaces what was told."""

    job_id: str
    tenant: str
    needs: tuple[Need, ...]
    order_ms: int
    """When it was first submitted: kept when it comes back, so that it keeps its turn."""
    number: int
    """Unique; decides where all else is equal."""
    priority: int = 50
    queue: str = "default"
    kind: str = "train"
    user: str = ""
    expected_ms: int | None = None
    """How long it runs at most (its limit), or is thought to (its history). None: without end."""
    preemptible: bool = True
    level: str = ""
    """The level of topology its members should share: "", host, rack or block."""
    required: bool = False
    """Wait for one domain of `level` rather than spread over several."""
    preemptions: int = 0
    """How often it was preempted lately: past the cap it is no victim any more."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The job waits no longer (cancelled, held, backing off). What it holds it keeps."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Restore:
    """A job that holds these seats already: how a restarted server rebuilds the core."""

    job: Submit
    seats: tuple[Seat, ...]
    started_ms: int
    leaving: bool = False
    """It was told to end for the sake of `leaving_for`, and has not ended yet."""
    leaving_for: str = ""
    resized_ms: int | None = None
    """When it was last given other seats while it ran; None: never."""


@dataclass(frozen=True, slots=True)
class Remember:
    """What a waiting job (told before) was promised by the core that was there before a restart.
    It is kept, if it can be; else the job gets a later promise, which says so."""

    job_id: str
    start_ms: int
    nodes: tuple[str, ...]
    made_ms: int = 0
    """When it was promised: who was promised something first has it first."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a tenant used lately, as the core that was there before a restart counted it: told
    before anything else, so that the new one goes on from there."""

    tenant: str
    amount: int
    half_lives: int
    """With which weight: how many half-lives there had been when its count began."""


@dataclass(frozen=True, slots=True)
class Release:
    """Nothing of the job holds anything any more: ended, lost with proof, never launched."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Resized:
    """An elastic job has given up what a `Resize` took from it."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant (or a cohort of them) owns of each resource, and how it lends and borrows.

    Resources: `gpus` (milli), `cpus` (milli), `memory` (bytes), and `gpus:MODEL` for one model.
    A resource that nobody in a cohort names is not metered there.
    """

    name: str
    parent: str = ""
    """The cohort it belongs to; "": none, it neither lends nor borrows."""
    nominal: Mapping[str, int] = field(default_factory=dict)
    borrow: Mapping[str, int] = field(default_factory=dict)
    """At most so much over nominal; absent: as much as others lend."""
    lend: Mapping[str, int] = field(default_factory=dict)
    """At most so much of nominal to others; absent: all that is idle."""
    weight_milli: int = 1000
    reclaim_any: bool = False
    """May take back what it lent from jobs of higher priority too."""


@dataclass(frozen=True, slots=True)
class Cap:
    """At most this much of each resource for one kind of work or one user of a tenant."""

    tenant: str
    limits: Mapping[str, int]
    kind: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    """How the jobs of one queue wait for each other.

    strict: nobody passes the first. backfill: the first that cannot start gets a reservation, and
    others may start if they do not delay it. best-effort: whoever fits starts.
    """

    name: str
    policy: str = "backfill"
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """All of the configuration at once; what it does not name does not exist any more."""

    quotas: tuple[Quota, ...] = ()
    caps: tuple[Cap, ...] = ()
    queues: tuple[Queue, ...] = (Queue("default"),)
    order: str = "fair"
    """fair: by dominant share of what is borrowed, then priority; fifo: by priority alone."""
    preemption: bool = True
    starving_ms: int = 604_800_000
    """A job that waited longer keeps what it needs from all that rank behind it."""
    min_run_ms: int = 60_000
    """Nobody is preempted before it ran this long."""
    preemption_cap: int = 3
    """A job that was preempted this often is no victim any more."""
    cool_down_ms: int = 300_000
    """Between two resizes of one job."""
    reservations: int = 16
    half_life_ms: int = 7 * 86_400_000


Event = (
    NodeUp | NodeDown | Submit | Withdraw | Restore | Remember | Used | Release | Resized | Rules
)


# What the core decides


@dataclass(frozen=True, slots=True)
class Start:
    job_id: str
    seats: tuple[Seat, ...]
    reason: str = "its turn"


@dataclass(frozen=True, slots=True)
class Preempt:
    """Tell this job to end: signal, grace, then kill. It is submitted again afterwards."""

    job_id: str
    beneficiary: str
    reason: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Give this elastic job these seats: all that it holds from now on. What it loses it holds
    until `Resized`; what it gains is its own at once."""

    job_id: str
    seats: tuple[Seat, ...]
    beneficiary: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """A waiting job has a reservation: it starts at `start_ms` or before, on these nodes. A later
    promise to the same job is earlier, or says in `slipped` what was allowed to delay it; at
    `NEVER`, on no nodes: it is taken back, and nothing was found to promise instead."""

    job_id: str
    start_ms: int
    nodes: tuple[str, ...]
    slipped: str = ""


Decision = Start | Preempt | Resize | Promise


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits: one machine word, what is missing, a sentence, when it should start."""

    code: str
    sentence: str
    missing: Mapping[str, int] = field(default_factory=dict)
    expected_start_ms: int | None = None


REASONS = {
    "exceeds-max": "it can never start on the nodes and quotas there are",
    "paused": "its queue is paused",
    "waiting-quota": "its tenant has no quota left for it, and nobody lends",
    "waiting-nodes": "the nodes have not enough free",
    "waiting-nodes-fragmented": "enough is free in all, but not on single nodes or in one domain",
    "waiting-reservation": "what is free is kept for a job ahead of it",
    "waiting-queue": "its queue is strict, and another job is first",
    "preempting": "others were told to end for it",
    "dispatching": "it is about to start",
}
