"""What makes of each worker's bucket the gradient of all: the plug of the collective runner."""

from __future__ import annotations

from typing import Any

from windlass.train.comm.torchdist.group import Pending, WorkerGroup
from windlass.train.comm.torchdist.ring import ring_all_reduce
from windlass.train.runners.buckets import Bucket

_OPERATION = "all-reduce of gradients"


class Reducer:
    """`begin` when a bucket is full, in the same order on all; then `turn` with each, then `end`,
    which leaves in its flat tensor what `begin` found there, summed over the workers."""

    is_linear = True
    """False: the flat tensor is scaled by a power of two near 1 / count before `begin`. That is
    exact, keeps half precision in its range, and makes residuals of two steps comparable."""

    def __init__(self, group: WorkerGroup) -> None:
        self.group = group
        self.number = 0
        """Of buckets; whoever makes them sets it."""
        self.unit = 1.0
        """What a mean gradient must be multiplied with to be in the scale of this step."""

    def begin(self, bucket: Bucket) -> None:
        raise NotImplementedError

    def turn(self, bucket: Bucket) -> None:
        """Between `begin` and `end` of all: a second exchange may begin here."""

    def end(self, bucket: Bucket) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        """The step succeeded: what was kept aside for it becomes the state."""

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave."""


class Plain(Reducer):
    """The library's all-reduce, while backward goes on."""

    def __init__(self, group: WorkerGroup) -> None:
        super().__init__(group)
        self._pending: dict[int, Pending] = {}

    def begin(self, bucket: Bucket) -> None:
        self._pending[bucket.index] = self.group.all_reduce(bucket.flat, operation=_OPERATION)

    def end(self, bucket: Bucket) -> None:
        self._pending.pop(bucket.index).wait()


class Ring(Reducer):
    """A ring of sends and receives, for those who want to see one."""

    def begin(self, bucket: Bucket) -> None:
        pass

    def end(self, bucket: Bucket) -> None:
        ring_all_reduce(self.group, bucket.flat, operation="ring " + _OPERATION)
