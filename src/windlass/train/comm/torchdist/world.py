"""torch's global group of all workers, for those parts of torch that know no other: FSDP, DTensor.

    with world(seat, group) as here:            beside our own group, which names who is missing
        mesh = here.mesh((4,), ("shard",))
        with here.guarded("forward"): …         an error of torch's becomes one that has names

One at a time in a process. A peer that dies breaks torch's collectives at once; of one that merely
stops they know nothing, so they are given up after the seat's deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from windlass.core.errors import InvalidInput
from windlass.train.comm.torchdist import background
from windlass.train.comm.torchdist.group import WorkerGroup
from windlass.train.seat import Seat


class World:
    def __init__(self, seat: Seat, group: WorkerGroup) -> None:
        """All workers of the group, which was formed just before."""
        if dist.is_initialized():
            raise InvalidInput(
                "torch.distributed: its global group is there already",
                hint="leave init_process_group out: the strategy makes it",
            )
        if seat.device.type == "cuda" and not group.is_nccl:
            raise InvalidInput(
                "device: sharded on GPUs, each worker needs one of its own, and nccl",
                hint='device="cpu", or as many workers as there are GPUs',
            )
        self.group = group
        self.device_type = seat.device.type
        dist.init_process_group(
            "nccl" if group.is_nccl else "gloo",
            store=group.store("world"),
            rank=group.rank,
            world_size=group.size,
            timeout=timedelta(seconds=seat.deadline_seconds),
        )

    def mesh(self, shape: Sequence[int], names: Sequence[str]) -> DeviceMesh:
        return init_device_mesh(self.device_type, tuple(shape), mesh_dim_names=tuple(names))

    @contextmanager
    def guarded(self, operation: str) -> Iterator[None]:
        """Raises MemberLost where torch's own error came from a lost or silent member."""
        try:
            yield
        except RuntimeError as err:
            if not _is_of_the_group(err):
                raise  # the model's own
            missing = self.group.missing(operation, err)
            if missing is None:
                raise
            raise missing from err

    def close(self) -> None:
        """Never waits for a peer: what is in flight with one that stopped ends by itself."""
        background.begin(_destroy).join(2.0)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _is_of_the_group(err: RuntimeError) -> bool:
    """Gloo's are plain errors with a word of where they come from."""
    return isinstance(err, dist.DistError) or "gloo" in str(err)


def _destroy() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
