"""Strategies without a centre: each worker speaks to few others, and all drift to one mean."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from windlass.core.errors import InvalidInput
from windlass.train.policies.topology import Topology
from windlass.train.runners.base import Runner
from windlass.train.runners.mixing import Mixing
from windlass.train.runners.pairs import Pairs
from windlass.train.runners.pushing import Pushing
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task


class Gossip(Strategy):
    """What all of them can be told."""

    degree: int = Field(3, ge=2, description="neighbours of each in a `regular` topology")
    drift_every: int = Field(
        10, ge=0, description="steps between two estimates of the distance from the others' mean"
    )
    trace: bool = Field(False, description="keep the order of all events, for a replay")

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        found = super().check(task, workers, servers)
        if isinstance(task.optimizer, torch.optim.LBFGS):
            raise InvalidInput(f"task.optimizer: {self.name} cannot call a closure (found LBFGS)")
        if "degree" in self.model_fields_set and getattr(self, "topology", "") != "regular":
            raise InvalidInput(
                f"degree: only a `regular` topology has one (found {self.degree})",
                hint="topology='regular'",
            )
        if any(each.numel() for each in task.model.buffers()):
            found.append(
                f"{self.name}: buffers (statistics of normalisation layers) stay each worker's "
                "own while it trains; the final model has their mean"
            )
        return found


class AdPsgd(Gossip):
    """AD-PSGD: each worker steps at its own pace and averages with one random neighbour at a
    time, without a barrier.

    A slow worker slows nobody. A dead one is gone with its parameters, and may come back with a
    copy of another's. The final model is the mean over all workers.
    """

    name: ClassVar[str] = "adpsgd"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "rejoin"
    topology: Topology = Field(
        "bipartite",
        description="who averages with whom; on `bipartite` only every second worker initiates",
    )

    def runner(self, task: Task, seat: Seat) -> Runner:
        return Pairs(
            task, seat, topology=self.topology, degree=self.degree, trace=self.trace,
            drift_every=self.drift_every,
        )  # fmt: skip


class DPsgd(Gossip):
    """D-PSGD: each worker averages with its neighbours at every step, in step with them only.

    A dead worker's neighbours are joined to each other and go on. The final model is the mean
    over all workers.
    """

    name: ClassVar[str] = "dpsgd"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "shrink"
    topology: Topology = Field("ring", description="who is whose neighbour")

    def runner(self, task: Task, seat: Seat) -> Runner:
        return Mixing(
            task, seat, topology=self.topology, degree=self.degree, trace=self.trace,
            drift_every=self.drift_every,
        )  # fmt: skip


class Sgp(Gossip):
    """Stochastic gradient push: each worker sends a share of its parameters, with a weight, along
    directed links.

    Nobody waits for an answer, only for what is sent to it. A dead worker is gone with its share,
    and may come back with a copy of another's. The final model is the sum of all parameters over
    the sum of all weights.
    """

    name: ClassVar[str] = "sgp"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "rejoin"
    topology: Topology = Field("exponential", description="who sends to whom")
    one_peer: bool = Field(True, description="to one of them at each step, in turns; else to all")
    overlap: int = Field(
        0, ge=0, le=16, description="steps by which what is sent to a worker may be late"
    )

    def runner(self, task: Task, seat: Seat) -> Runner:
        return Pushing(
            task, seat, topology=self.topology, degree=self.degree, trace=self.trace,
            drift_every=self.drift_every, one_peer=self.one_peer, overlap=self.overlap,
        )  # fmt: skip
