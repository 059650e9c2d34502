"""Members of pipelines that hold the same parameters: replicas of a stage, tied weights.

    ranks 0 1 2 │ 3 4 5     two replicas of three stages; `embedding` is tied to the last stage

    embedding      ranks 0 2 3 5        one sum over all that hold it
    stage 0        ranks 0   3
    stage 1        ranks 1   4

Sums are the same bits on all of them, so they stay the same without ever being compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from windlass.train.comm.torchdist import WorkerGroup, form
from windlass.train.seat import Seat

Ranks = tuple[int, ...]


@dataclass
class _Shared:
    names: list[str]
    group: WorkerGroup
    counts: bool
    """Whether this member speaks for its replica when samples are counted."""


class Sharing:
    """Of one member. All members make it, with the same `holders`."""

    def __init__(
        self,
        seat: Seat,
        holders: Mapping[str, Ranks],
        parameters: Mapping[str, Tensor],
        width: int,
    ) -> None:
        """`holders`: of every parameter of the model its ranks, sorted. `parameters`: one's own.
        `width`: ranks in a replica. Raises MemberLost."""
        self._parameters = parameters
        self._replicated = seat.workers > width
        self._shared: list[_Shared] = []
        seat.formed[f"{seat.meeting.scope}sharing"] += 1
        number = seat.formed[f"{seat.meeting.scope}sharing"]
        together: dict[Ranks, list[str]] = {}
        for name, ranks in holders.items():
            if len(ranks) > 1:
                together.setdefault(ranks, []).append(name)
        try:
            for ranks, names in sorted(together.items()):  # in one order, so that nobody waits
                if seat.rank in ranks:
                    mine = [rank for rank in ranks if rank // width == seat.rank // width]
                    label = f"sharing/{number}/{'-'.join(map(str, ranks))}"
                    group = form(seat, [f"worker {rank}" for rank in ranks], label=label)
                    self._shared.append(_Shared(names, group, seat.rank == mine[0]))
            self.alike()
        except BaseException:
            self.close()
            raise

    def alike(self) -> None:
        """As the first of its holders has it, on all of them."""
        for each in self._shared:
            for alike in _by_type([self._parameters[name] for name in each.names]):
                flat = torch.cat([tensor.detach().reshape(-1) for tensor in alike])
                operation = "copying the first holder's parameters"
                each.group.broadcast(flat.view(torch.uint8), operation=operation).wait()
                _put_back(flat, [tensor.detach() for tensor in alike])

    def sum(self, gradients: dict[str, Tensor | None], count: float, step: int) -> float:
        """The gradients (None: no sample reached it here) over all holders, in place; the count
        over all replicas."""
        begun = []
        for each in self._shared:
            each.group.step = step
            has = [float(gradients[name] is not None) for name in each.names]
            told = torch.tensor(
                [count if each.counts else 0.0, *has], dtype=torch.float64,
                device=each.group.device if each.group.is_nccl else "cpu",
            )  # fmt: skip
            control = each.group.all_reduce(told, kind="control", operation="all-reduce of counts")
            flats = []
            for names in self._names_by_type(each.names):
                flat = torch.cat([self._filled(name, gradients[name]) for name in names])
                flats.append((names, flat, each.group.all_reduce(flat)))
            begun.append((each, told, control, flats))
        totals = set[float]()
        for each, told, control, flats in begun:
            control.wait()
            summed, *has = told.tolist()
            totals.add(summed)
            used = dict(zip(each.names, has, strict=True))
            for names, flat, pending in flats:
                pending.wait()
                at = 0
                for name in names:
                    like = self._parameters[name]
                    gradient = flat[at : at + like.numel()].view(like.shape)
                    gradients[name] = gradient if used[name] else None
                    at += like.numel()
        if not self._replicated or not begun:  # one replica, or no parameter to step
            return count
        assert len(totals) == 1, f"replicas counted {sorted(totals)} samples"
        return totals.pop()

    def _names_by_type(self, names: Sequence[str]) -> Iterable[list[str]]:
        found: dict[torch.dtype, list[str]] = {}
        for name in names:
            if self._parameters[name].requires_grad:
                found.setdefault(self._parameters[name].dtype, []).append(name)
        return found.values()

    def _filled(self, name: str, gradient: Tensor | None) -> Tensor:
        if gradient is None:
            return torch.zeros_like(self._parameters[name]).reshape(-1)
        return gradient.reshape(-1)

    def part(self) -> None:
        """At the end of the work: until all have what they were sent."""
        for each in self._shared:
            each.group.part()

    def close(self) -> None:
        for each in self._shared:
            each.group.close()


def _by_type(tensors: Sequence[Tensor]) -> Iterable[list[Tensor]]:
    found: dict[torch.dtype, list[Tensor]] = {}
    for each in tensors:
        if each.numel():
            found.setdefault(each.dtype, []).append(each)
    return found.values()


def _put_back(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    at = 0
    for each in tensors:
        each.copy_(flat[at : at + each.numel()].view(each.shape))
        at += each.numel()
