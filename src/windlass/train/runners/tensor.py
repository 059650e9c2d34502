"""Tensor parallel: layers cut over workers, who all see the same samples (torch's DTensor).

    x ─ A by columns ─ f ─ B by rows ─ sum over the workers ─ …       Y = sum_i f(X A_i) B_i

Workers are `size` wide; further ones are replicas of the whole, with samples of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from windlass.core.errors import InvalidInput
from windlass.train.comm.torchdist import WorkerGroup, form
from windlass.train.comm.torchdist.layers import cut
from windlass.train.comm.torchdist.sharding import own
from windlass.train.cut.pairs import Layers, chosen, divides
from windlass.train.data import Batch
from windlass.train.runners.apart import draw_apart
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.collective import AllReduce, CollectiveRunner
from windlass.train.runners.sharded import ShardedRunner
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task


class TensorParallel(Strategy):
    """Tensor parallel: linear layers are cut over the workers, who all see the same samples
    (DTensor).

    Equal to one process. Pairs of linear layers in a Sequential and in torch's transformer layers
    are found; `layers=` names others. When a worker dies all end with its name."""

    name: ClassVar[str] = "tensor"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "abort"
    places_model: ClassVar[bool] = True

    size: int | None = Field(
        None, ge=1, description="workers that share one model; default: all of them"
    )
    layers: Layers | None = Field(
        None,
        description="module names (with * and ?) to column, row, or apart (a dropout between two "
        'cuts): {"*.up": "column", "*.down": "row"}',
    )

    def takes(self, workers: int) -> bool:
        return workers % (self.size or 1) == 0

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        if workers % (self.size or workers):
            raise InvalidInput(
                f"size: {self.size} does not divide the {workers} workers",
                hint="workers = size x replicas",
            )
        size = self.size or workers
        if size > 1:
            divides(task.model, chosen(task.model, self.layers), size, "size")
        return warnings

    def share_of(self, seat: Seat) -> tuple[int, int]:
        size = self.size or seat.workers
        return seat.rank // size, seat.workers // size

    def runner(self, task: Task, seat: Seat) -> Runner:
        if (self.size or seat.workers) == 1:
            task.model.to(seat.device)
            return CollectiveRunner(task, seat, AllReduce.model_validate({}))
        return TensorRunner(task, seat, self)


class TensorRunner(ShardedRunner):
    def __init__(self, task: Task, seat: Seat, strategy: TensorParallel) -> None:
        self.size = strategy.size or seat.workers
        self.replica, self.replicas = strategy.share_of(seat)
        self.index = seat.rank % self.size
        self.layers = chosen(task.model, strategy.layers)
        self._alike: WorkerGroup | None = None
        self._foreach: list[object] = []
        super().__init__(task, seat)
        for group in task.optimizer.param_groups:
            self._foreach.append(group.get("foreach"))
            group["foreach"] = False  # cut and whole parameters do not go into one list

    def _shard(self) -> None:
        seat = self.seat
        if self.replicas > 1:
            names = [f"worker {r * self.size + self.index}" for r in range(self.replicas)]
            label = f"tensor/{seat.formed[seat.meeting.scope]}/{self.index}"
            self._alike = form(seat, names, label=label)
        self.task.model.to(seat.device)
        mesh = self.world.mesh((self.replicas, self.size), ("replicate", "tensor"))["tensor"]
        by = {
            how: [name for name, found in self.layers.items() if found == how]
            for how in ("column", "row", "apart")
        }
        with self.world.guarded("cutting the layers"):
            cut(self.task.model, mesh, by["column"], by["row"])
        # All of one replica throw the same dice, but for what stands between two cuts.
        torch.manual_seed(seat.seed + 1000003 * (self.replica + 1))
        parts = dict(self.task.model.named_modules())
        draw_apart([parts[name] for name in by["apart"]], self.index)

    def step(self, batch: Batch) -> Outcome:
        self.begin(batch)
        loss: torch.Tensor | float = 0.0
        count = 0.0
        if batch.content is not None:
            with self.world.guarded("forward of cut layers"):
                total, count = self.task.loss_of(batch.content)
            loss = total.detach()
            with self.world.guarded("backward of cut layers"):
                total.backward()  # type: ignore[no-untyped-call]
        everybody = self._sum(count)
        if not everybody:
            return Outcome(0.0, 0.0)
        for parameter in self.task.model.parameters():
            if parameter.grad is not None:
                own(parameter.grad).div_(everybody)
        self.task.optimizer.step()
        return Outcome(loss, count) if self.index == 0 else Outcome(0.0, 0.0)

    def _sum(self, count: float) -> float:
        """Gradients and counts over the replicas, of the same pieces."""
        if self._alike is None:
            return count
        self._alike.step = self.group.step
        parameters = [each for each in self.task.model.parameters() if each.requires_grad]
        for each in parameters:
            if each.grad is None:
                each.grad = torch.zeros_like(each)
        device = self._alike.device if self._alike.is_nccl else "cpu"
        told = torch.tensor([count], dtype=torch.float64, device=device)
        pending = [self._alike.all_reduce(told, kind="control", operation="all-reduce of counts")]
        grads = [own(each.grad) for each in parameters if each.grad is not None]
        flats = []
        for kind in sorted({each.dtype for each in grads}, key=str):
            row = [each for each in grads if each.dtype == kind]
            flat = torch.cat([each.reshape(-1) for each in row])
            flats.append((row, flat))
            pending.append(self._alike.all_reduce(flat, operation="all-reduce over replicas"))
        for begun in pending:
            begun.wait()
        for row, flat in flats:
            pieces = torch.split(flat, [each.numel() for each in row])
            for there, piece in zip(row, pieces, strict=True):
                there.copy_(piece.view(there.shape))
        return float(told)

    def shared_state(self) -> dict[str, Any] | None:
        if self.replica:
            return None  # the first replica has all of it
        found = super().shared_state()
        assert found is not None
        groups = found["optimizer"].get("param_groups", [])
        for group, foreach in zip(groups, self._foreach, strict=False):
            group["foreach"] = foreach
        return found

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        super().load_shared_state(state)
        for group in self.task.optimizer.param_groups:
            group["foreach"] = False

    def close(self) -> None:
        if self._alike is not None:
            self._alike.close()
        super().close()
