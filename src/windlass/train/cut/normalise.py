"""Batch normalisation in micro-batches with the running statistics of the whole mini-batch.

Each micro-batch is normalised with its own mean and variance: the others are not there yet. The
running averages, which are for evaluation, are moved once for each mini-batch, by what its mean
and variance are over all micro-batches: as if there were one. (Moved by each micro-batch they
would forget faster, and never see the variance between micro-batches.)

Counts, means and squared distances of parts are put together by Chan's rule: nothing cancels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from windlass.train.cut.recompute import is_again

_BatchNorm = nn.modules.batchnorm._BatchNorm


class Deferred:
    """Of all BatchNorms inside a module. They stay the same objects under the same names; only
    when their running statistics move is changed. `commit` once for each mini-batch."""

    def __init__(self, module: nn.Module) -> None:
        self._norms = [
            _Deferred(each)
            for each in module.modules()
            if isinstance(each, _BatchNorm) and each.track_running_stats
        ]

    def __len__(self) -> int:
        return len(self._norms)

    def commit(self) -> None:
        """The mini-batch is over: its statistics go into the running ones. Without any micro-batch
        since the last time nothing moves."""
        for each in self._norms:
            each.commit()

    def drop(self) -> None:
        """Forget what has been seen since the last commit: the mini-batch came to nothing."""
        for each in self._norms:
            each.parts.clear()

    def undo(self) -> None:
        """The modules as they were."""
        for each in self._norms:
            each.undo()


class _Deferred:
    def __init__(self, module: _BatchNorm) -> None:
        if isinstance(vars(module).get("forward"), _Deferred):
            vars(module).pop("forward")  # by an earlier Deferred: this one takes its place
        self.module = module
        self.usual = module.forward
        self.parts: list[tuple[int, Tensor, Tensor]] = []
        module.forward = self  # type: ignore[assignment]

    def __call__(self, inputs: Tensor) -> Tensor:
        module = self.module
        if not module.training or module.running_mean is None:
            return self.usual(inputs)
        module._check_input_dim(inputs)  # type: ignore[no-untyped-call]  # torch's own
        assert module.running_var is not None
        # With a share of 1 torch leaves mean and unbiased variance of this micro-batch here.
        mean = torch.zeros_like(module.running_mean)
        variance = torch.zeros_like(module.running_var)
        found = functional.batch_norm(
            inputs, mean, variance, module.weight, module.bias, True, 1.0, module.eps
        )
        if not is_again():
            self.parts.append((inputs.numel() // inputs.shape[1], mean, variance))
        return found

    def commit(self) -> None:
        if not self.parts:
            return
        module = self.module
        count, mean, apart = (
            0,
            torch.zeros_like(self.parts[0][1]),
            torch.zeros_like(self.parts[0][2]),
        )
        for number, part_mean, part_variance in self.parts:
            total = count + number
            between = part_mean - mean
            apart += part_variance * (number - 1) + between**2 * (count * number / total)
            mean += between * (number / total)
            count = total
        self.parts.clear()
        assert module.running_mean is not None and module.running_var is not None
        assert module.num_batches_tracked is not None
        module.num_batches_tracked.add_(1)
        share: Any = module.momentum
        if share is None:
            share = 1.0 / float(module.num_batches_tracked)
        module.running_mean.mul_(1 - share).add_(mean, alpha=share)
        module.running_var.mul_(1 - share).add_(apart / max(1, count - 1), alpha=share)

    def undo(self) -> None:
        vars(self.module).pop("forward", None)
