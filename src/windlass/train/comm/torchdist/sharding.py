"""FSDP2 as the strategies use it: sums, not means; whole names; nothing that talks unasked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from windlass.train.state.pieces import Piece
from windlass.train.state.stored import block, shape_of


def shard(
    model: nn.Module,
    units: Sequence[nn.Module],
    mesh: DeviceMesh,
    *,
    reshard: bool,
    precision: torch.dtype | None,
) -> None:
    """The model's parameters become shards over the mesh; each unit is gathered just before it is
    used. Gradients are sums over the workers."""
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=torch.float32) \
        if precision is not None else MixedPrecisionPolicy()  # fmt: skip
    for each in (*units, model):
        fully_shard(each, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    for part in model.modules():
        if isinstance(part, FSDPModule):
            # torch divides by the number of workers; a sum and a count need no such guess.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)


def own(tensor: Tensor) -> Tensor:
    """This worker's piece of a sharded tensor; a plain one is itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor whole, on the CPU. All workers call it, in the same order."""
    found = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return found.detach().to("cpu", copy=True)


def part(value: Any) -> Any:
    """This worker's piece of a sharded tensor; anything else is itself."""
    if not isinstance(value, DTensor):
        return value
    offsets, _ = _box(value)
    return Piece(value.to_local().detach(), offsets, tuple(value.shape))


def piece_of(values: Mapping[Any, Any], name: Any, pattern: Tensor) -> Tensor:
    """What of a whole tensor among stored or plain values lies where the pattern's piece does;
    all of it for one that is not sharded."""
    if not isinstance(pattern, DTensor):
        found: Tensor = values[name]
        return found
    return block(values, name, *_box(pattern))


def like(values: Mapping[Any, Any], name: Any, pattern: Tensor) -> Any:
    """A value, sharded as the pattern is where it is a tensor of its shape."""
    if not isinstance(pattern, DTensor) or shape_of(values, name) != pattern.shape:
        return values[name]
    found = piece_of(values, name, pattern).to(pattern.device, copy=True).contiguous()
    return DTensor.from_local(
        found, pattern.device_mesh, pattern.placements, run_check=False, shape=pattern.shape,
        stride=pattern.stride(),
    )  # fmt: skip


def fill(parameters: Iterable[tuple[Tensor, Tensor]]) -> None:
    """This worker's pieces into sharded tensors."""
    with torch.no_grad():
        for there, found in parameters:
            own(there).copy_(found)


def _box(tensor: DTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where this worker's piece begins in the whole, and how large it is."""
    (chunk,) = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]  # torch's lacks it
    return tuple(chunk.offsets), tuple(chunk.sizes)
