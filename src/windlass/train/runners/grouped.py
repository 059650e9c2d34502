"""Replicas of several workers around parameter servers: DistBelief, Project Adam.

    replica 0: workers 0 1      each holds a stage, or a piece of the layers, and pushes and pulls
    replica 1: workers 2 3      its own part; replicas know nothing of each other
    servers                     one optimiser for all, and a rule of consistency between replicas

A replica is a worker of `ps:…` in all that the rules say: clocks and staleness are its.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.cut.pairs import Layers
from windlass.train.policies.consistency import Policy, Scaled, Softsync, Ssp
from windlass.train.runners.parting import Balance, Cuts
from windlass.train.runners.serverstrategies import ServerStrategy

if TYPE_CHECKING:
    from windlass.train.runners.base import Runner, Serving
    from windlass.train.runners.pipeline import Pipelined
    from windlass.train.seat import Seat
    from windlass.train.task import Task

STALENESS = 3


class GroupStrategy(ServerStrategy):
    """What both have."""

    places_model: ClassVar[bool] = True

    size: int = Field(2, ge=1, description="workers that hold one model together: a replica")
    rule: Literal["async", "scaled", "softsync", "ssp"] = Field(
        "scaled", description="of consistency between replicas, as that of ps:async, ps:scaled, "
        "ps:softsync or ps:ssp between workers",
    )  # fmt: skip
    staleness: int | None = Field(
        None, ge=0, description="of the rule ssp: how many steps the fastest replica may be ahead "
        "of the slowest; 0 is synchronous; None: 3",
    )  # fmt: skip
    s: int | None = Field(
        None, ge=1, description="of the rule softsync: gradients that make one step; None: one of "
        "each replica",
    )  # fmt: skip

    def replicas(self, workers: int) -> int:
        return workers // self.size

    def inner(self, workers: int) -> Pipelined:
        """How the workers of a replica work together."""
        raise NotImplementedError

    def policy(self, workers: int) -> Policy:
        if self.rule == "scaled":
            return Scaled()
        if self.rule == "softsync":
            return Softsync(s=self.s or self.replicas(workers), distinct=True)
        if self.rule == "ssp":
            return Ssp(s=STALENESS if self.staleness is None else self.staleness)
        return Policy()

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        if workers % self.size:
            raise InvalidInput(
                f"size: {workers} workers make no replicas of {self.size}",
                hint="workers = size x replicas",
            )
        for name, rule in (("staleness", "ssp"), ("s", "softsync")):
            if getattr(self, name) is not None and self.rule != rule:
                raise InvalidInput(
                    f"{name}: only the rule {rule} has it (found the rule {self.rule})"
                )
        replicas = self.replicas(workers)
        if self.s is not None and self.s > replicas:
            raise InvalidInput(f"s: from 1 to the number of replicas, {replicas} (found {self.s})")
        return warnings + self.inner(workers).check(task, workers, 0)

    def share_of(self, seat: Seat) -> tuple[int, int]:
        return seat.rank // self.size, self.replicas(seat.workers)

    def tells(self, seat: Seat) -> bool:
        return self.inner(seat.workers).tells(seat)

    @property
    def together(self) -> int:
        return self.size

    def runner(self, task: Task, seat: Seat) -> Runner:
        from windlass.train.runners.replica import ReplicaRunner
        from windlass.train.runners.replicapipeline import PipelineReplica

        seat.together = self.size
        inner = self.inner(seat.workers)
        return ReplicaRunner(
            task, seat, self, lambda here: PipelineReplica(task, here, inner, gang=seat)
        )

    def serving(self, task: Task, seat: Seat) -> Serving:
        from windlass.train.runners.groupserving import GroupServing

        return GroupServing(task, seat, self)


class PipelineReplicas(GroupStrategy):
    """Parameter servers whose workers are pipelines: each member of a replica pushes and pulls
    its own stage.

    One replica under the rule ssp with staleness=0 is synchronous SGD of the model in one piece.
    When a worker dies its replica ends and the others go on; it comes back whole."""

    name: ClassVar[str] = "ps:pipeline"

    schedule: Literal["gpipe", "1f1b", "interleaved", "zb1p", "zbv"] = Field(
        "1f1b", description="of each replica, as the strategy of that name"
    )
    micro_batches: int | None = Field(
        None, ge=1, description="into how many a replica's share of a batch is cut; default: 4 "
        "for each of its places",
    )  # fmt: skip
    tensor: int = Field(
        1, ge=1, description="workers over which the linear layers of each stage are cut: size = "
        "places in the pipeline x tensor",
    )  # fmt: skip
    layers: Layers | None = Field(
        None, description="with tensor, which layers: module names (with * and ?) to column, row, "
        "or apart (a dropout between two cuts); default: pairs that are found",
    )  # fmt: skip
    cuts: Cuts = None
    balance: Balance = "time"
    recompute: bool = Field(
        False, description="keep only a stage's inputs and compute its forward again for the "
        "backward",
    )  # fmt: skip

    def inner(self, workers: int) -> Pipelined:
        shared = ("micro_batches", "tensor", "layers", "cuts", "balance", "recompute")
        options: dict[str, Any] = {name: getattr(self, name) for name in shared}
        return _pipeline(self.schedule, {**options, "replicas": self.replicas(workers)})


class TensorReplicas(GroupStrategy):
    """Parameter servers whose workers are tensor-parallel groups: each member of a replica pushes
    and pulls its own slices of the layers that are cut.

    One replica under the rule ssp with staleness=0 is synchronous SGD of the model in one piece.
    When a worker dies its replica ends and the others go on; it comes back whole."""

    name: ClassVar[str] = "ps:tensor"

    layers: Layers | None = Field(
        None, description="module names (with * and ?) to column, row, or apart (a dropout "
        "between two cuts); default: pairs of linear layers that are found",
    )  # fmt: skip

    def inner(self, workers: int) -> Pipelined:
        """A pipeline of one place."""
        options: dict[str, Any] = {"micro_batches": 1, "balance": "blocks"}
        if self.size > 1:
            options |= {"tensor": self.size, "layers": self.layers}
        return _pipeline("gpipe", {**options, "replicas": self.replicas(workers)})


def _pipeline(name: str, options: dict[str, Any]) -> Pipelined:
    from windlass.train.runners.pipeline import Pipelined

    found = registry.choose(name, options)
    assert isinstance(found, Pipelined)
    return found
