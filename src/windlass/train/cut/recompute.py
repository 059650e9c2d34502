"""A stage's forward that keeps nothing but its inputs, and is done again in backward.

torch's own checkpoint does it, with the dice as they were for that micro-batch (CPU and CUDA), so
dropout is the same in both. It does not know three things, which are added here: layers that write
over their inputs (the inputs are needed again), batch statistics (counted once, not twice), and
that someone may ask whether this is the second time (`is_again`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from windlass.core.errors import InvalidInput

_BatchNorm = nn.modules.batchnorm._BatchNorm


class _Here(threading.local):
    again = False


_HERE = _Here()


def is_again() -> bool:
    """Whether this thread does a forward for the second time, for its backward."""
    return _HERE.again


def recomputed(stage: nn.Module, *values: Any) -> tuple[Any, ...]:
    """What `stage(*values)` gives, with the same gradients; what its backward needs is computed
    then. Without gradients it is the plain forward."""
    if not torch.is_grad_enabled():
        plain: tuple[Any, ...] = stage(*values)
        return plain

    def forward(*kept: Any) -> Any:
        return stage(*(each.clone() if isinstance(each, Tensor) else each for each in kept))

    def around() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return nullcontext(), again(stage)

    found: tuple[Any, ...] = checkpoint(forward, *values, use_reentrant=False, context_fn=around)
    return found


@contextmanager
def again(stage: nn.Module) -> Iterator[None]:
    """Around a forward that is done for the second time. Raises InvalidInput where it would not
    be the same."""
    _refuse_other_dice(stage)
    norms = [each for each in stage.modules() if isinstance(each, _BatchNorm)]
    before = [(each.momentum, each._buffers.get("num_batches_tracked")) for each in norms]
    _HERE.again = True
    for each in norms:  # the same output, and the running statistics stay
        each.momentum = 0.0
        each._buffers["num_batches_tracked"] = None
    try:
        yield
    finally:
        _HERE.again = False
        for each, (momentum, count) in zip(norms, before, strict=True):
            each.momentum = momentum
            each._buffers["num_batches_tracked"] = count


def _refuse_other_dice(stage: nn.Module) -> None:
    for name in getattr(stage, "parameter_names", ()):
        if name.endswith("seed_generator_state"):  # Keras counts its own throws
            raise InvalidInput(
                f"recompute: {name!r} throws dice of its own, which cannot be thrown again alike",
                hint="recompute=False, or torch's own dropout",
            )
