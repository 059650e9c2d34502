"""Which samples a member sees at which step: a pure function of (epoch, step, rank, workers).

    epoch's order:  7 2 9 0 4 1 8 3 5 6        seeded, the same on every member
    step 0:        [7 2 9 0] step 1: [4 1 8 3] step 2: [5 6]      global_batch = 4
    2 workers:      7 2|9 0            4 1|8 3           5|6

Nothing is remembered, so a member that joins, leaves or comes back sees what it should, and each
sample of an epoch is used once whatever the number of workers. A global batch is a *row*; what
somebody left of one when it was lost is a share of it (`ledger.py`), for others to take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import TensorDataset, default_collate

from windlass.core.errors import InvalidInput
from windlass.train.ledger import Position, Share


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a training stands. `step` is within the epoch; `steps` counts all that were made, also
    those that made up for what others had left."""

    epoch: int = 0
    step: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """A member's share of a global batch. `content` is None when the share is empty."""

    cursor: Cursor
    samples: tuple[int, ...]
    content: Any
    share: Share | None = None
    """Of a row that this worker does not come to in its turn: another had left it."""
    makes_up: tuple[Share, ...] = ()
    """What all workers together make up for in this step, before they go on with the row."""


class Data:
    """A map-style dataset (or tensors of equal length) cut into global batches.

    `global_batch` is over all workers: changing their number changes no arithmetic. The last batch
    of an epoch may be smaller (`drop_last=True` leaves it out).
    """

    def __init__(
        self,
        dataset: Any,
        global_batch: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        if isinstance(dataset, tuple) and all(isinstance(part, torch.Tensor) for part in dataset):
            dataset = TensorDataset(*dataset)
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise InvalidInput(
                f"dataset: with len() and [index] (found {type(dataset).__name__})",
                hint="an iterable data set has no order to share out: list its samples first",
            )
        if not isinstance(global_batch, int) or global_batch < 1:
            raise InvalidInput(f"global_batch: 1 or more (found {global_batch!r})")
        self.dataset = dataset
        self.size = len(dataset)
        self.global_batch = global_batch
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        if self.size == 0 or (drop_last and self.size < global_batch):
            raise InvalidInput(f"dataset: {self.size} samples make no batch of {global_batch}")
        self._collate = collate
        self._order: tuple[int, Sequence[int]] = (-1, ())

    @property
    def steps_per_epoch(self) -> int:
        whole, rest = divmod(self.size, self.global_batch)
        return whole + (1 if rest and not self.drop_last else 0)

    def after(self, cursor: Cursor) -> Cursor:
        ends = cursor.step + 1 >= self.steps_per_epoch
        return Cursor(
            cursor.epoch + 1 if ends else cursor.epoch,
            0 if ends else cursor.step + 1,
            cursor.steps + 1,
        )

    def at(self, steps: int) -> Cursor:
        """The cursor after that many steps from the beginning."""
        return Cursor(steps // self.steps_per_epoch, steps % self.steps_per_epoch, steps)

    def row(self, cursor: Cursor) -> int:
        """The number of its row over all epochs."""
        return cursor.epoch * self.steps_per_epoch + cursor.step

    def stand(self, position: Position) -> Cursor:
        """The cursor of a training that stands there."""
        return replace(self.at(position.row), steps=position.steps)

    def share(self, cursor: Cursor, rank: int, workers: int) -> tuple[int, ...]:
        """The samples of this rank at this step: the first ranks have one more when uneven."""
        order = self._ordered(cursor.epoch)
        batch = order[cursor.step * self.global_batch : (cursor.step + 1) * self.global_batch]
        return _portion(batch, rank, workers)

    def batch(
        self, cursor: Cursor, rank: int = 0, workers: int = 1, device: torch.device | None = None
    ) -> Batch:
        return self._of(cursor, self.share(cursor, rank, workers), device)

    def open_share(self, share: Share, device: torch.device | None = None) -> Batch:
        """A share that another had left, for one worker to take."""
        cursor = self.at(share.row)
        return replace(
            self._of(cursor, self.share(cursor, share.place, share.of), device), share=share
        )

    def make_up(
        self, cursor: Cursor, left: Sequence[Share], rank: int, workers: int,
        device: torch.device | None = None,
    ) -> Batch:  # fmt: skip
        """The first of the shares that were left, for all workers together: as many of them as
        make no more than a global batch."""
        samples: list[int] = []
        taken: list[Share] = []
        for each in left:
            more = self.share(self.at(each.row), each.place, each.of)
            if taken and len(samples) + len(more) > self.global_batch:
                break
            samples += more
            taken.append(each)
        found = self._of(cursor, _portion(samples, rank, workers), device)
        return replace(found, makes_up=tuple(taken))

    def deal(
        self, cursor: Cursor, left: Sequence[Share], rank: int, workers: int,
        device: torch.device | None = None,
    ) -> Batch:  # fmt: skip
        """The same where each goes at its own pace: the first of the shares go to the workers, one
        to each. There may be none for the last of them."""
        taken = tuple(left[:workers])
        samples: tuple[int, ...] = ()
        if rank < len(taken):
            each = taken[rank]
            samples = self.share(self.at(each.row), each.place, each.of)
        return replace(self._of(cursor, samples, device), makes_up=taken)

    def _of(self, cursor: Cursor, samples: tuple[int, ...], device: torch.device | None) -> Batch:
        if not samples:
            return Batch(cursor, samples, None)
        if isinstance(self.dataset, TensorDataset) and self._collate is None:
            index = torch.tensor(samples)
            content: Any = tuple(part[index] for part in self.dataset.tensors)
        else:
            content = (self._collate or default_collate)([self.dataset[i] for i in samples])
        return Batch(cursor, samples, content if device is None else to_device(content, device))

    def _ordered(self, epoch: int) -> Sequence[int]:
        if self._order[0] != epoch:
            if self.shuffle:
                # Not torch's global generator: the order is nobody else's business.
                dice = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
                self._order = (epoch, torch.randperm(self.size, generator=dice).tolist())
            else:
                self._order = (epoch, range(self.size))
        return self._order[1]


def _portion(batch: Sequence[int], rank: int, workers: int) -> tuple[int, ...]:
    each, rest = divmod(len(batch), workers)
    first = rank * each + min(rank, rest)
    return tuple(batch[first : first + each + (1 if rank < rest else 0)])


def to_device(content: Any, device: torch.device) -> Any:
    if isinstance(content, torch.Tensor):
        return content.to(device, non_blocking=True)
    if isinstance(content, dict):
        return {name: to_device(part, device) for name, part in content.items()}
    if isinstance(content, tuple | list):
        return type(content)(to_device(part, device) for part in content)
    return content
