"""The queue: where jobs wait, how they wait for each other, and what the API shows of the line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from windlass.core.strict import Line, Strict

DEFAULT = "default"
"""The queue of a job that names none. It always exists."""

MODEL = r"^[A-Za-z0-9]([A-Za-z0-9 ._/+-]{0,61}[A-Za-z0-9])?$"
"""The name of a GPU model, as nodes give it."""

Policy = Literal["strict", "backfill", "best-effort"]
POLICIES: dict[str, str] = {
    "strict": "nobody passes the first: the queue waits until it starts",
    "backfill": "the first that cannot start gets a reservation; others may start meanwhile if "
    "they do not delay it",
    "best-effort": "whoever fits starts; a large job may wait long",
}
Work = Literal["train", "notebook", "serve"]
Priority = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
Revision = Annotated[int, Field(ge=0, le=2**53)]


class QueueBody(Strict):
    """A queue as it is to be. What is left out gets its default."""

    policy: Policy = "backfill"
    paused: bool = False
    """Nothing of it starts; what runs goes on."""
    description: Annotated[Line, Field(max_length=1000)] = ""
    revision: Revision | None = None
    """The revision that was seen, 0 for a queue that must not exist yet: refused as a conflict
    when it has changed since. Absent: the last writer wins."""


class QueueView(Strict):
    name: str
    policy: Policy
    paused: bool
    description: str
    revision: int
    waiting: int
    """Jobs that are queued or held."""
    running: int
    """Jobs that are starting, running or stopping."""
    changed: str | None
    """None: never since the server was set up."""


class QueuePage(Strict):
    items: tuple[QueueView, ...]


class Wants(Strict):
    """What a whole gang asks for."""

    members: int
    gpus: float
    cpus: float
    memory: int
    gpu_model: tuple[str, ...] = ()


class QueuedJob(Strict):
    """A place in the line. Of another project's job only what concerns the line is told."""

    position: int
    id: str | None
    name: str | None
    user: str | None
    project: str | None
    state: str
    priority: int
    work: str
    wants: Wants
    since: str
    """When it began to wait; for a running one when it started."""
    reason: str
    """Why it waits: a machine word, such as `waiting-quota`."""
    sentence: str
    missing: dict[str, int] = {}
    expected_start: str | None = None
    nodes: tuple[str, ...] = ()
    """The nodes that are reserved for it."""


class Supply(Strict):
    """One resource of all ready nodes, in whole units: GPUs, CPUs, bytes."""

    resource: str
    total: float
    free: float | None
    """None: this server does not know (another one leads)."""


class QueueLine(Strict):
    """A queue as it is now: the line in the order in which the scheduler looks at it."""

    queue: QueueView
    supply: tuple[Supply, ...]
    waiting: tuple[QueuedJob, ...]
    running: tuple[QueuedJob, ...]
    order: Literal["scheduler", "rows"]
    """`rows`: this server does not know the scheduler's order (another one leads); what is shown
    is by priority and time, without shares."""


class PriorityBody(Strict):
    priority: Priority


class MoveBody(Strict):
    """Where a waiting job is to stand in its queue: exactly one of the three."""

    before: Annotated[Line, Field(min_length=1, max_length=64)] | None = None
    """Directly before this job, with its priority."""
    first: bool = False
    last: bool = False
