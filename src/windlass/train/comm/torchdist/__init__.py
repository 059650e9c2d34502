"""The only place that imports torch.distributed."""

from windlass.train.comm.torchdist.forming import form
from windlass.train.comm.torchdist.group import Pending, WorkerGroup

__all__ = ["Pending", "WorkerGroup", "form"]
