"""The strategies with servers: one engine, and a rule of consistency for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import Field, SerializeAsAny

from windlass.core.errors import InvalidInput
from windlass.train.policies.consistency import Policy, Scaled, Softsync, Ssp
from windlass.train.policies.filters import Filter
from windlass.train.strategy import Strategy

if TYPE_CHECKING:
    from windlass.train.runners.base import Runner, Serving
    from windlass.train.seat import Seat
    from windlass.train.task import Task


class ServerStrategy(Strategy):
    """What all of them have."""

    has_servers: ClassVar[bool] = True
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "rejoin"
    adds: ClassVar[bool] = False
    """Pushes are added to the parameters instead of given to an optimiser."""

    copies: int = Field(
        1, ge=1, le=2,
        description="servers that hold each range: with 2, any one of them may be lost",
    )  # fmt: skip
    ranges: int = Field(
        0, ge=0, le=4096, description="ranges that the parameters are cut into; 0: as suits"
    )
    snapshots: str = Field(
        "", description="folder for the servers' snapshots, on disks that they keep"
    )
    snapshot_every: int = Field(0, ge=0, description="versions between two snapshots; 0: none")
    trace: bool = Field(False, description="keep a line for each push, to replay the training")

    def policy(self, workers: int) -> Policy:
        raise NotImplementedError

    @property
    def filter(self) -> Filter | None:
        """What pushes go through."""
        return None

    def range_count(self, servers: int) -> int:
        return self.ranges or (1 if servers == 1 else 8 * servers)

    @property
    def survives_servers(self) -> bool:
        return self.copies > 1 or bool(self.snapshot_every)

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        if self.copies > servers:
            raise InvalidInput(f"copies: at most the number of servers, {servers} (found 2)")
        if bool(self.snapshots) != bool(self.snapshot_every):
            raise InvalidInput(
                "snapshots, snapshot_every: both or neither "
                f"(found {self.snapshots!r} and {self.snapshot_every})"
            )
        if isinstance(task.optimizer, torch.optim.LBFGS):
            raise InvalidInput(f"task.optimizer: {self.name} cannot call a closure (found LBFGS)")
        return warnings

    def serving(self, task: Task, seat: Seat) -> Serving:
        from windlass.train.runners.serving import ParameterServing

        return ParameterServing(task, seat, self)


class GradientStrategy(ServerStrategy):
    push_every: int = Field(1, ge=1, description="steps whose gradients make one push")
    fetch_every: int = Field(
        1, ge=1, description="steps between two pulls; in between the worker steps by itself"
    )
    compress: SerializeAsAny[Filter] | None = Field(
        None,
        description="OneBit(), TopK(), FP16(), BF16() or a Filter of one's own: fewer bytes in a "
        "push",
    )

    @property
    def filter(self) -> Filter | None:
        return self.compress

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        if self.compress is not None:
            self.compress.at(0)  # refuses what has no form for a push
            warnings += self.compress.check(task, workers)
        return warnings

    def runner(self, task: Task, seat: Seat) -> Runner:
        from windlass.train.runners.server import GradientRunner

        return GradientRunner(task, seat, self)

    def _stale(self, task: Task, workers: int) -> list[str]:
        """What makes stale gradients diverge."""
        found = []
        if workers > 1 and any(
            group.get("momentum", 0) or group.get("betas", (0,))[0]
            for group in task.optimizer.param_groups
        ):
            found.append(
                f"{self.name}: momentum adds to what staleness does already; with {workers} "
                "workers less of it, or none, is steadier"
            )
        return found


class Async(GradientStrategy):
    """Workers pull, compute and push as fast as they can; each gradient is applied as it comes."""

    name: ClassVar[str] = "ps:async"

    def policy(self, workers: int) -> Policy:
        return Policy()

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        if workers > 1:
            warnings.append(
                f"ps:async: the learning rate is not scaled; a gradient is about {workers - 1} "
                "versions old with equal workers (ps:scaled divides by that)"
            )
        return warnings + self._stale(task, workers)


class ScaledAsync(GradientStrategy):
    """As ps:async, with each gradient's learning rate divided by its staleness."""

    name: ClassVar[str] = "ps:scaled"

    def policy(self, workers: int) -> Policy:
        return Scaled()

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        return super().check(task, workers, servers) + self._stale(task, workers)


_OWN_GROUPS = (
    "each server would form groups of its own, and workers in different ones wait for each other"
)


class SoftSync(GradientStrategy):
    """The servers collect s gradients and apply their mean once; s = workers is synchronous."""

    name: ClassVar[str] = "ps:softsync"
    s: int | None = Field(
        None, ge=1, description="gradients that make one step, at most the workers; None: all"
    )
    distinct: bool = Field(True, description="a worker gives one gradient of a group at most")

    def policy(self, workers: int) -> Policy:
        return Softsync(s=self.s or workers, distinct=self.distinct)

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        if self.s is not None and self.s > workers:
            raise InvalidInput(f"s: from 1 to the number of workers, {workers} (found {self.s})")
        if self.distinct and servers > 1 and 1 < (self.s or workers) < workers:
            raise InvalidInput(
                f"servers: 1, where s is below the number of workers, {workers} (found {servers})",
                hint=f"{_OWN_GROUPS}; distinct=False has no such wait",
            )
        return super().check(task, workers, servers)


class BackupWorkers(GradientStrategy):
    """Synchronous, but the slowest workers are spares: a step takes the first gradients and drops
    those that come late."""

    name: ClassVar[str] = "ps:backup"
    backups: int = Field(1, ge=1, description="workers that a step need not wait for")

    def policy(self, workers: int) -> Policy:
        return Softsync(s=max(1, workers - self.backups), distinct=True, drop_late=True)

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        if self.backups >= workers:
            raise InvalidInput(
                f"backups: fewer than the workers, {workers} (found {self.backups})"
            )
        if servers > 1 and workers - self.backups > 1:
            raise InvalidInput(
                f"servers: 1, where some workers are spares (found {servers})", hint=_OWN_GROUPS
            )
        return super().check(task, workers, servers)


class StaleSynchronous(GradientStrategy):
    """No worker is more than `staleness` steps ahead of the slowest; 0 is synchronous."""

    name: ClassVar[str] = "ps:ssp"
    staleness: int = Field(3, ge=0, description="how far the fastest may be ahead of the slowest")

    def policy(self, workers: int) -> Policy:
        return Ssp(s=self.staleness)

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        return warnings + (self._stale(task, workers) if self.staleness else [])


class ElasticStrategy(ServerStrategy):
    adds: ClassVar[bool] = True
    tau: int = Field(10, ge=1, description="steps of a worker between two exchanges")
    alpha: float = Field(0.05, gt=0, description="how far an exchange draws worker and centre")

    def runner(self, task: Task, seat: Seat) -> Runner:
        from windlass.train.runners.centre import ElasticRunner

        return ElasticRunner(task, seat, self)


class ElasticServer(ElasticStrategy):
    """Elastic averaging around a centre on the servers; all workers exchange together."""

    name: ClassVar[str] = "easgd:server"

    def policy(self, workers: int) -> Policy:
        return Softsync(s=workers, distinct=True)

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        bound = 2 / (workers + 1)
        if self.alpha >= bound:
            raise InvalidInput(
                f"alpha: synchronous stability needs alpha < 2/(p+1), {bound:.4g} for {workers} "
                f"workers (found {self.alpha})"
            )
        return super().check(task, workers, servers)


class ElasticAsync(ElasticStrategy):
    """Elastic averaging around a centre on the servers; each worker exchanges when it is due."""

    name: ClassVar[str] = "easgd:async"

    def policy(self, workers: int) -> Policy:
        return Policy()

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        if self.alpha >= 1:
            raise InvalidInput(f"alpha: below 1, or a worker leaps over the centre ({self.alpha})")
        return super().check(task, workers, servers)
