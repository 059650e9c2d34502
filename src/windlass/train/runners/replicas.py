"""Replicas made the same, and seen to be the same."""

from __future__ import annotations

import hashlib
from collections import Counter

import torch
from torch import Tensor, nn

from windlass.core.errors import TrainingFailed
from windlass.train.comm.torchdist.group import WorkerGroup

_DIGEST_BYTES = 8
_PIECE_BYTES = 64 << 20


def copy_from_first(group: WorkerGroup, model: nn.Module, *, parameters: bool = True) -> None:
    """The first worker's parameters and buffers, on all. Returns when they are there."""
    tensors: list[Tensor] = list(model.buffers())
    if parameters:
        tensors = [*(each.data for each in model.parameters()), *tensors]
    by_kind: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for each in tensors:
        if each.numel():
            by_kind.setdefault((each.dtype, each.device), []).append(each)
    for alike in by_kind.values():
        flat = torch.cat([each.detach().reshape(-1) for each in alike])
        # As bytes: what is copied is bits, and not every back end knows every type.
        _broadcast(group, flat.view(torch.uint8))
        offset = 0
        with torch.no_grad():
            for each in alike:
                each.copy_(flat[offset : offset + each.numel()].view(each.shape))
                offset += each.numel()


def _broadcast(group: WorkerGroup, flat: Tensor) -> None:
    """In place. A model that is still in main memory goes over nccl piece by piece: the whole of
    it may not fit on the device."""
    operation = "copying worker 0's model"
    if not group.is_nccl or flat.is_cuda:
        group.broadcast(flat, operation=operation).wait()
        return
    for piece in torch.split(flat, _PIECE_BYTES):
        there = piece.to(group.device)
        group.broadcast(there, operation=operation).wait()
        piece.copy_(there)


def same_parameters(group: WorkerGroup, model: nn.Module) -> None:
    """Raises TrainingFailed that names the workers whose parameters are not the others', and the
    first such parameter."""
    named = list(model.named_parameters())
    digests = [_digest(each) for _, each in named]
    mine = torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.uint8).clone()
    if group.is_nccl:
        mine = mine.to(group.device)
    found, pending = group.all_gather(mine, kind="control", operation="comparison of parameters")
    pending.wait()
    rows = [bytes(each.cpu().tolist()) for each in found]
    usual = Counter(rows).most_common(1)[0][0]
    others = [name for name, row in zip(group.names, rows, strict=True) if row != usual]
    if not others:
        return
    odd = next(row for row in rows if row != usual)
    at = next(
        n for n in range(len(named))
        if odd[n * _DIGEST_BYTES : (n + 1) * _DIGEST_BYTES]
        != usual[n * _DIGEST_BYTES : (n + 1) * _DIGEST_BYTES]
    )  # fmt: skip
    step = "" if group.step is None else f" at step {group.step}"
    raise TrainingFailed(
        f"{', '.join(others)}: parameters are not those of the others{step}, "
        f"first in {named[at][0]}",
        hint="something changed the model outside of the strategy on some workers only",
    )


def _digest(tensor: Tensor) -> bytes:
    data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
