"""Both ends of a pipeline: what a loss puts into its model, the loss of what comes out, and the
micro-batches of a batch.

Every member can make the whole batch itself, so inputs and targets are never sent.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from windlass.core.errors import InvalidInput
from windlass.train.cut.chain import Chain
from windlass.train.cut.probe import inputs_of, loss_given
from windlass.train.task import Task


class Ends:
    def __init__(self, task: Task, chain: Chain) -> None:
        self._task = task
        self._chain = chain

    def inputs(self, content: Any) -> tuple[Any, ...]:
        """What the first stage takes of this batch."""
        values, named = inputs_of(self._task, content)
        return self._chain.enter(*values, **named)

    def loss(self, values: tuple[Any, ...], content: Any) -> tuple[Tensor, float]:
        """Sum and count, from what the last stage gives."""
        return loss_given(self._task, content, self._chain.result(values))


# -- micro-batches ------------------------------------------------------------------------------


def samples_in(content: Any) -> int:
    """The common first size of a batch's tensors. Raises InvalidInput where it has none."""
    sizes = {
        int(leaf.shape[0]): tuple(leaf.shape)
        for leaf in pytree.tree_leaves(content)
        if isinstance(leaf, Tensor) and leaf.dim()
    }
    if len(sizes) != 1:
        found = ", ".join(str(shape) for shape in sizes.values()) or "no tensor"
        raise InvalidInput(
            f"micro_batches: a batch is cut along the first dimension of its tensors (found "
            f"{found})",
            hint="let collate= make tensors whose first dimension is the sample",
        )
    return next(iter(sizes))


def cut_batch(content: Any, count: int) -> list[Any]:
    """As many micro-batches, or one for each sample where there are fewer; the first ones are
    larger where they are not alike. What is no tensor, or a tensor of one number, goes to all."""
    count = min(count, samples_in(content))
    leaves, spec = pytree.tree_flatten(content)
    columns = [
        torch.tensor_split(leaf, count)
        if isinstance(leaf, Tensor) and leaf.dim()
        else (leaf,) * count
        for leaf in leaves
    ]
    return [pytree.tree_unflatten([column[n] for column in columns], spec) for n in range(count)]
