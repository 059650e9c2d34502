"""What the exchanges of compressed gradients share: the warm-up and the memories."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from windlass.train.comm.torchdist import Pending, WorkerGroup
from windlass.train.counters import Counters
from windlass.train.policies.codec import is_finite
from windlass.train.runners.buckets import Bucket
from windlass.train.runners.reducers import Reducer

_log = logging.getLogger("windlass.train")


class Compressed(Reducer):
    """Whole gradients during the warm-up; memories (residuals) by bucket, new
    ones kept aside until the step has succeeded, none kept that is not finite."""

    is_linear = False

    def __init__(self, group: WorkerGroup, counters: Counters, *, warmup: int = 0) -> None:
        super().__init__(group)
        self.counters = counters
        self.warmup = warmup
        self.steps = 0
        self._unit_kept = 1.0
        self._kept: dict[str, Tensor] = {}
        self._new: dict[str, Tensor] = {}
        self._whole: dict[int, Pending] = {}

    # -- what the runner calls --------------------------------------------------------------

    def begin(self, bucket: Bucket) -> None:
        if self.steps < self.warmup:
            self._whole[bucket.index] = self.group.all_reduce(
                bucket.flat, operation="all-reduce of gradients"
            )
        else:
            self.begin_compressed(bucket)

    def turn(self, bucket: Bucket) -> None:
        if bucket.index not in self._whole:
            self.turn_compressed(bucket)

    def end(self, bucket: Bucket) -> None:
        if bucket.index in self._whole:
            self._whole.pop(bucket.index).wait()
        else:
            self.end_compressed(bucket)

    def commit(self) -> None:
        self.steps += 1
        self._kept.update(self._new)
        self._new.clear()
        self._unit_kept = self.unit

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "unit": self._unit_kept, "kept": dict(self._kept)}

    def load(self, state: dict[str, Any]) -> None:
        self.steps = state.get("steps", 0)
        self._unit_kept = state.get("unit", 1.0)
        self._kept = dict(state.get("kept", {}))
        self._new.clear()

    # -- what each kind does ----------------------------------------------------------------

    def begin_compressed(self, bucket: Bucket) -> None:
        raise NotImplementedError

    def turn_compressed(self, bucket: Bucket) -> None:
        """Where a second exchange begins."""

    def end_compressed(self, bucket: Bucket) -> None:
        raise NotImplementedError

    # -- memories ---------------------------------------------------------------------------

    def remembered(self, key: str, like: Tensor) -> Tensor:
        """In the scale of this step. Zero where there is none, or it is of another shape (the
        number of workers has changed)."""
        found = self._kept.get(key)
        if found is None:
            return torch.zeros_like(like)
        if found.shape != like.shape:
            self._reset(key, "it is of another shape")
            return torch.zeros_like(like)
        return found if self.unit == self._unit_kept else found * (self.unit / self._unit_kept)

    def remember(self, key: str, value: Tensor) -> None:
        """A fresh tensor, nobody else's."""
        if not is_finite(value):
            self._reset(key, "a gradient was not finite")
            value = torch.zeros_like(value)
        self._new[key] = value

    def _reset(self, key: str, why: str) -> None:
        self.counters.event("residual resets")
        _log.warning("step %s: the residual of %s begins at zero: %s", self.group.step, key, why)
