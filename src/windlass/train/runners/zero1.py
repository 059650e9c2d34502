"""ZeRO, first stage: gradients as in `allreduce`, but each worker steps its own parameters only,
and gives them to the others: an optimiser's state lies once in the group and not on each worker.

    all-reduce of gradients ─ step of one's own parameters ─ all-gather of what was stepped

Whole parameters, not slices of them: an optimiser may look at a matrix as a matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from windlass.core.errors import TrainingFailed
from windlass.train.comm.torchdist import WorkerGroup
from windlass.train.runners.collective import AllReduce, CollectiveRunner
from windlass.train.seat import Seat
from windlass.train.state.portion import Portion
from windlass.train.state.stored import read
from windlass.train.task import Task


class Zero1(AllReduce):
    """Synchronous data parallel whose optimiser's state is spread over the workers (ZeRO-1).

    Equal to `allreduce` to the bit; with Adam a worker keeps 8/p bytes a parameter of it instead
    of 8. One and a half times the traffic."""

    name: ClassVar[str] = "zero1"

    def runner(self, task: Task, seat: Seat) -> Zero1Runner:
        return Zero1Runner(task, seat, self)


class Zero1Runner(CollectiveRunner):
    is_spread: ClassVar[bool] = True

    def __init__(self, task: Task, seat: Seat, strategy: Zero1) -> None:
        super().__init__(task, seat, strategy)
        self._is_between = False
        self.owners = owners(
            [each for group in task.optimizer.param_groups for each in group["params"]],
            self.group.size,
        )
        mine = set(self.owners[self.group.rank])
        self.portion = Portion(task.optimizer, lambda parameter: parameter in mine)

    def _update(self) -> None:
        self._is_between = True
        self.task.optimizer.step()
        share(self.group, self.owners)
        self._is_between = False

    def shared_state(self) -> dict[str, Any] | None:
        """One's own parameters and their state; what is nobody's own (buffers) is worker 0's to
        give. Raises TrainingFailed after a step that was broken off: others' parameters are then
        older than one's own, and must never be a checkpoint."""
        if self._is_between:
            raise TrainingFailed(
                "the last step was broken off: there is no state to save",
                hint="the checkpoint before it is whole",
            )
        owner = {id(each): rank for rank, row in enumerate(self.owners) for each in row}
        model = {
            name: value
            for name, value in self.task.model.state_dict(keep_vars=True).items()
            if owner.get(id(value), 0) == self.group.rank
        }
        return {"model": model, "optimizer": self.portion.whole([self.portion.state()])}

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        self.task.model.load_state_dict(read(state["model"]))
        self.portion.load(state["optimizer"])


def owners(parameters: Sequence[nn.Parameter], workers: int) -> list[list[nn.Parameter]]:
    """Which worker steps which parameters: the largest first, each to who has least so far."""
    found: list[list[nn.Parameter]] = [[] for _ in range(workers)]
    sizes = [0] * workers
    for number in sorted(range(len(parameters)), key=lambda n: (-parameters[n].numel(), n)):
        least = sizes.index(min(sizes))
        found[least].append(parameters[number])
        sizes[least] += parameters[number].numel()
    return found


def share(group: WorkerGroup, owned: Sequence[Sequence[nn.Parameter]]) -> None:
    """Everybody's own parameters, on all. All are begun before the first is waited for; nothing
    is changed before all are there."""
    if group.size == 1:
        return
    kinds = sorted({each.dtype for row in owned for each in row}, key=str)
    begun = []
    for kind in kinds:
        rows = [[each for each in row if each.dtype == kind] for row in owned]
        longest = max(sum(each.numel() for each in row) for row in rows)
        mine = rows[group.rank]
        flat = torch.zeros(longest, dtype=kind, device=_device(rows))
        if mine:
            joined = torch.cat([each.detach().reshape(-1) for each in mine])
            flat[: joined.numel()] = joined
        found, pending = group.all_gather(
            flat, kind="parameters", operation="all-gather of parameters"
        )
        begun.append((rows, found, pending))
    for _, _, pending in begun:
        pending.wait()
    with torch.no_grad():
        for rows, found, _ in begun:
            for rank, (row, flat) in enumerate(zip(rows, found, strict=True)):
                if rank != group.rank:
                    _put(flat, row)


def _device(rows: Sequence[Sequence[nn.Parameter]]) -> torch.device:
    return next(each.device for row in rows for each in row)


def _put(flat: Tensor, row: Sequence[nn.Parameter]) -> None:
    offset = 0
    for each in row:
        each.copy_(flat[offset : offset + each.numel()].view(each.shape))
        offset += each.numel()
