"""Batch normalisation over all workers' samples, as if the global batch were in one place.

torch's SyncBatchNorm wants its global process group and a GPU. This one sums counts, sums and
squared differences over the group in forward, and their gradients in backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from windlass.train.comm.torchdist import WorkerGroup

_BatchNorm = nn.modules.batchnorm._BatchNorm


def synchronise(model: nn.Module, group: WorkerGroup) -> None:
    """Every BatchNorm of the model takes its statistics over the group while it trains. The
    modules stay the same objects: parameters, buffers and names of a checkpoint do not change."""
    for each in model.modules():
        if isinstance(each, _BatchNorm):
            each.forward = _Synced(each, group)  # type: ignore[assignment]


class _Synced:
    def __init__(self, module: _BatchNorm, group: WorkerGroup) -> None:
        self.module = module
        self.group = group
        self.usual = module.forward

    def __call__(self, inputs: Tensor) -> Tensor:
        module = self.module
        if not module.training:
            return self.usual(inputs)
        over = [n for n in range(inputs.dim()) if n != 1]
        shape = [1, -1] + [1] * (inputs.dim() - 2)
        own = torch.cat([inputs.sum(over), inputs.new_tensor([inputs.numel() / inputs.shape[1]])])
        total = self._sum(own)
        count = total[-1].detach()
        mean = total[:-1] / count
        apart = inputs - mean.view(shape)  # the mean first: squares of differences do not cancel
        variance = self._sum((apart * apart).sum(over)) / count
        self._remember(mean.detach(), variance.detach(), count)
        found: Tensor = apart * torch.rsqrt(variance.view(shape) + module.eps)
        if module.affine:
            found = found * module.weight.view(shape) + module.bias.view(shape)
        return found

    def _sum(self, own: Tensor) -> Tensor:
        total: Tensor = _Sum.apply(own, self.group)  # type: ignore[no-untyped-call]
        return total

    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        module = self.module
        if not module.track_running_stats or module.running_mean is None:
            return
        assert module.running_var is not None and module.num_batches_tracked is not None
        module.num_batches_tracked.add_(1)
        share: Any = module.momentum
        if share is None:
            share = 1.0 / float(module.num_batches_tracked)
        unbiased = variance * (count / (count - 1).clamp_min(1))
        module.running_mean.mul_(1 - share).add_(mean, alpha=share)
        module.running_var.mul_(1 - share).add_(unbiased, alpha=share)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, own: Tensor, group: WorkerGroup) -> Tensor:
        context.group = group
        total = own.clone()
        group.all_reduce(total, kind="state", operation="sum of batch statistics").wait()
        return total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].clone()
        context.group.all_reduce(
            total, kind="state", operation="sum of batch statistics' gradients"
        ).wait()
        return total, None
