"""Linear layers cut over a mesh: by columns, then by rows, with one sum between two cuts."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)


def cut(model: nn.Module, mesh: DeviceMesh, columns: list[str], rows: list[str]) -> None:
    """Everybody has the same whole model; each keeps its pieces of the layers named."""
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in columns}
    plan.update({name: RowwiseParallel() for name in rows})
    parallelize_module(model, mesh, plan, src_data_rank=None)
