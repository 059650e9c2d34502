"""Which exchange carries which `compress=`."""

from __future__ import annotations

from windlass.core.errors import InvalidInput
from windlass.train.comm.torchdist import WorkerGroup
from windlass.train.counters import Counters
from windlass.train.policies.compression import BF16, FP16, Compression, OneBit, PowerSGD, TopK
from windlass.train.runners import lowrank, sparse, striped
from windlass.train.runners.reducers import Reducer


def reducer_for(asked: Compression, group: WorkerGroup, counters: Counters) -> Reducer:
    if isinstance(asked, OneBit):
        return striped.Striped(
            group, counters, asked.codec(), by_column=True, has_feedback=True, warmup=asked.warmup
        )
    if isinstance(asked, FP16 | BF16):
        return striped.Striped(group, counters, asked.codec(), by_column=False)
    if isinstance(asked, TopK):
        return sparse.Sparse(group, counters, asked)
    if isinstance(asked, PowerSGD):
        return lowrank.LowRank(group, counters, asked)
    raise InvalidInput(f"compress: {type(asked).__name__} has no exchange between workers")
