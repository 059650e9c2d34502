"""The weights of one stage through time: a backward uses what its forward used, an update changes
the newest.

    parameters   ──── version 3, the newest: what the optimiser steps, in place
    leaves       ──── version 3: the same memory, seen by forwards of now
                 ──── version 1: memory of its own, kept while batch 5 is in flight

How a version is kept. A forward is called with *leaves*: tensors that share the parameters' memory
but are not the parameters (`functional_call`). Autograd's graph then holds the leaves, so a
backward finds what its forward had whatever the parameters are by then, and there is nothing to be
swapped in that could be forgotten. (Swapping `parameter.data` instead would not do: a graph keeps
the parameter itself, so a swap that is missed is a wrong gradient in silence, and the optimiser's
step in place trips the graph's version counter though the memory is another's.) When an update
comes while the newest version is in flight, the parameters move to fresh memory first: one copy of
a stage's weights for each update, none where nothing is in flight, as at the last stage.

Only parameters have versions. Buffers (running statistics of normalisation layers) are as new as
can be, as in PipeDream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from windlass.core.errors import TrainingFailed
from windlass.train.policies.schedules import aligned, depth, is_late, warm_up

Rule = Callable[[int], int | None]
"""Batch → the version that its forward is to use; None: the newest."""


@dataclass(eq=False)
class Version:
    number: int
    leaves: tuple[Tensor, ...]
    """In the order of the parameters."""


class Versions:
    """`bound`: the most versions that may be alive; more is an error of ours, and raises."""

    def __init__(
        self, parameters: Sequence[Tensor], *, bound: int, rule: Rule, number: int = 0
    ) -> None:
        self.parameters = tuple(parameters)
        self.bound = bound
        self.rule = rule
        self.newest = number
        self.most_alive = 1
        self._alive = {number: self._leaves(number)}
        self._pinned: dict[int, Version] = {}

    @property
    def alive(self) -> tuple[int, ...]:
        return tuple(sorted(self._alive))

    def pin(self, batch: int) -> Version:
        """The version for the forward of this batch. It lives until `unpin`."""
        wanted = self.rule(batch)
        number = self.newest if wanted is None else wanted
        found = self._alive.get(number)
        if found is None:
            raise TrainingFailed(
                f"batch {batch} is to go forward with version {number} of the weights (there are "
                f"{_told(self._alive)})"
            )
        if batch in self._pinned:
            raise TrainingFailed(f"batch {batch} is in flight already")
        self._pinned[batch] = found
        return found

    def check(self, batch: int, used: Sequence[Tensor]) -> Version:
        """Before the backward of this batch, whose forward `used` these tensors. Raises
        TrainingFailed when they are not the version that was pinned for it, as it was: the
        gradient would be wrong in silence."""
        found = self._pinned.get(batch)
        if found is None:
            raise TrainingFailed(f"batch {batch} goes back without a version of the weights")
        if self._alive.get(found.number) is not found or used is not found.leaves:
            raise TrainingFailed(
                f"batch {batch} went forward with other weights than version {found.number}, with "
                "which it would go back"
            )
        if found.number != self.newest:
            for leaf, parameter in zip(found.leaves, self.parameters, strict=True):
                if leaf.numel() and leaf.data_ptr() == parameter.data_ptr():
                    raise TrainingFailed(
                        f"version {found.number} of the weights was overwritten before batch "
                        f"{batch} went back"
                    )
        return found

    def unpin(self, batch: int, next_batch: int) -> None:
        """This batch has gone back. `next_batch` is the next that goes forward here."""
        del self._pinned[batch]
        self._let_go(next_batch)

    def update(self, change: Callable[[], None], next_batch: int) -> None:
        """`change` steps the parameters in place, and a version more is there."""
        self._let_go(next_batch)
        if self._is_needed(self.newest, next_batch):
            for each in self.parameters:
                each.data = each.data.clone()
        else:
            del self._alive[self.newest]
        change()
        self.newest += 1
        self._alive[self.newest] = self._leaves(self.newest)
        self.most_alive = max(self.most_alive, len(self._alive))
        if len(self._alive) > self.bound:
            raise TrainingFailed(
                f"versions of the weights: {self.bound} at most (alive are {_told(self._alive)})"
            )

    def restart(self, number: int, older: Mapping[int, Sequence[Tensor]] | None = None) -> None:
        """The parameters were written to (loaded, moved): they are version `number` now, and
        `older` those before. Nothing is in flight."""
        if self._pinned:
            raise TrainingFailed(f"weights written to with {_told(self._pinned)} in flight")
        self.newest = number
        self._alive = {number: self._leaves(number)}
        for before, tensors in (older or {}).items():
            pairs = zip(tensors, self.parameters, strict=True)
            self._alive[before] = Version(before, tuple(
                _alike(each, own)
                for each, own in pairs
            ))  # fmt: skip

    def older(self) -> dict[int, tuple[Tensor, ...]]:
        """The versions before the newest that are alive, to be saved."""
        return {
            number: tuple(each.detach() for each in version.leaves)
            for number, version in self._alive.items()
            if number != self.newest
        }

    def _let_go(self, next_batch: int) -> None:
        """Of the versions that no batch in flight has and no later one will ask for."""
        for number in list(self._alive):
            if number != self.newest and not self._is_needed(number, next_batch):
                del self._alive[number]

    def _is_needed(self, number: int, next_batch: int) -> bool:
        """After the update to come, too. Rules never go back: what lies before the version of
        the next batch is asked for by none after it."""
        if any(version.number == number for version in self._pinned.values()):
            return True
        asked = self.rule(next_batch)
        return asked is not None and asked <= number

    def _leaves(self, number: int) -> Version:
        # `.data`, not `.detach()`: the latter shares the counter of changes in place.
        return Version(
            number, tuple(each.data.requires_grad_(each.requires_grad) for each in self.parameters)
        )


def _alike(tensor: Tensor, own: Tensor) -> Tensor:
    found = tensor.detach().to(own.device, own.dtype, copy=True)
    return found.requires_grad_(own.requires_grad)


def _told(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


# -- rules ------------------------------------------------------------------------------------


def newest(batch: int) -> int | None:
    """Weight stashing alone: whatever there is when the batch comes."""
    return None


def stamp(replicas: Sequence[int], batch: int, *, first: int = 0, overlap: bool = True) -> int:
    """How many batches, counted from `first`, are in the weights that every stage of the pipeline
    has when `batch` comes to it, the input stage above all. With vertical sync all use the weights
    that hold just these: a number at which every stage has whole rounds behind it.

    Orders are known beforehand (`Lane`), so each stage knows the stamp that the input stage gives;
    it rides with the batch all the same, and is compared."""
    held = min(
        count * ((batch - first) // count - warm_up(replicas, s) - is_late(replicas, s, overlap))
        for s, count in enumerate(replicas)
    )
    return max(0, held - held % aligned(replicas))


def vertical(
    replicas: Sequence[int], stage: int, *, first: int, version: int, overlap: bool = True
) -> Rule:
    """`version` is the stage's at batch `first`, when nothing is in flight."""

    def rule(batch: int) -> int:
        return version + stamp(replicas, batch, first=first, overlap=overlap) // replicas[stage]

    return rule


def delayed(update_every: int, first: int, version: int) -> Rule:
    """2bw: the batches of an update use what was there before the update before."""

    def rule(batch: int) -> int:
        done = version + (batch - first) // update_every
        return max(0, done - 1)

    return rule


def most_alive(
    replicas: Sequence[int], stage: int, *, vertical_sync: bool = False, overlap: bool = True
) -> int:
    """The bound: warm-up + 1. With vertical sync, as many as the input stage has in flight; more
    where rounds of different sizes have to be waited for."""
    if not vertical_sync:
        return warm_up(replicas, stage) + 1
    late = any(is_late(replicas, s, overlap) for s in range(len(replicas)))
    held = depth(replicas) + aligned(replicas) - 1 + late * max(replicas)
    return held // replicas[stage] + (replicas[stage] > 1)
