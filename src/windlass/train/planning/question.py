"""What the planner is asked, and what a candidate for an answer is."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from windlass.core.errors import InvalidInput
from windlass.train.planning.links import Link
from windlass.train.planning.profile import Profile
from windlass.train.planning.states import States, states_of

MOST_WORKERS = 10_000


@dataclass(frozen=True)
class Question:
    """`profile.batch` is what one copy of the model takes in a step: each worker that holds all
    of it, each pipeline. With `shared` all copies share one, as `Data(global_batch=…)` means it.

    `per_node` workers stand on each node, with `node_link` between them and `link` between nodes.
    `in_order`: stages are stretches of the blocks in their order (a model's), not any downsets.
    `names`: the strategies to choose from; None means all that the planner knows.
    `by_clock`: predict by simulating each schedule, which knows more than the equations: what is
    sent while what is computed, stages that are uneven, orders that wait.
    """

    profile: Profile
    workers: int
    link: Link
    overlap: bool = True
    memory_bytes: int | None = None
    per_node: int = 1
    node_link: Link | None = None
    shared: bool = False
    in_order: bool = False
    names: frozenset[str] | None = None
    by_clock: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MOST_WORKERS:
            raise InvalidInput(f"workers: from 1 to {MOST_WORKERS:,} (found {self.workers})")
        if not self.profile.time_ms > 0:
            raise InvalidInput("profile: every block takes 0 ms: there is nothing to plan")
        if (self.per_node > 1) != (self.node_link is not None):
            raise InvalidInput(
                "per_node, node_link: both or neither: how many workers stand on a node, and how "
                "fast the link between them is"
            )
        if self.per_node > 1 and self.workers > self.per_node and self.workers % self.per_node:
            raise InvalidInput(
                f"per_node: {self.workers} workers make no whole nodes of {self.per_node}"
            )

    @property
    def nodes(self) -> int:
        return max(1, self.workers // self.per_node)

    @property
    def near(self) -> Link:
        """The link of a gang: within the node where one holds all of it."""
        return self.node_link if self.node_link and self.workers <= self.per_node else self.link

    @cached_property
    def states(self) -> States:
        return states_of(self.profile, in_order=self.in_order)

    def taken(self, copies: int) -> int:
        """Samples that the fullest of so many copies of the model takes in a step."""
        return -(-self.profile.batch // copies) if self.shared else self.profile.batch

    def both(self, compute_ms: float, moving_ms: float) -> float:
        """Compute and communication, one behind the other or one after the other."""
        return max(compute_ms, moving_ms) if self.overlap else compute_ms + moving_ms

    def sync_ms(self, parameter_bytes: float, replicas: int) -> float:
        """Among replicas on all nodes: within each node and then between the nodes where that is
        quicker."""
        flat = self.near.sync_ms(parameter_bytes, replicas)
        if self.node_link is None or self.nodes < 2 or replicas % self.per_node:
            return flat
        inner = self.node_link.sync_ms(parameter_bytes, self.per_node)
        outer = self.link.sync_ms(parameter_bytes, replicas // self.per_node)
        return min(flat, max(inner, outer) if self.overlap else inner + outer)


@dataclass(frozen=True)
class StageCost:
    """Blocks by their places in the profile. `compute_ms` of one batch on one replica, `sync_ms`
    of one exchange among all replicas, `memory_bytes` on each worker."""

    blocks: tuple[int, ...]
    replicas: int
    compute_ms: float
    sync_ms: float
    memory_bytes: int


@dataclass(frozen=True)
class Candidate:
    strategy: str
    family: str
    """data, flush, stash or tensor: a runner-up is one of another family."""
    simplicity: int
    """On equal speed the lowest is chosen."""
    stages: tuple[StageCost, ...]
    samples_per_s: float
    bound: str
    """What keeps it from being faster, in words."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """Of the worker that holds most."""
        return max(stage.memory_bytes for stage in self.stages)

    @property
    def replicas(self) -> tuple[int, ...]:
        return tuple(stage.replicas for stage in self.stages)

    def fits(self, question: Question) -> bool:
        return question.memory_bytes is None or self.memory_bytes <= question.memory_bytes


def ms(value: float) -> str:
    """A time for people."""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def size(count: float) -> str:
    """Bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
