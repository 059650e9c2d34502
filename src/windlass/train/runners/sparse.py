"""Top-k gradients: everybody's few largest numbers go to all, who add them in the same order.

u ← m u + g          momentum before the choice (m = 0: none)
v ← v + u            what has not been sent yet
send the k largest of v; there v ← 0, and with masking u ← 0
"""

from __future__ import annotations

import math

from torch import Tensor

from windlass.train.comm.torchdist import Pending, WorkerGroup
from windlass.train.counters import Counters
from windlass.train.policies.compression import TopK
from windlass.train.policies.topk import TopKCodec, ratio_at
from windlass.train.runners.buckets import Bucket
from windlass.train.runners.compressed import Compressed


class Sparse(Compressed):
    def __init__(self, group: WorkerGroup, counters: Counters, options: TopK) -> None:
        super().__init__(group, counters)
        self.options = options
        self._collected: list[Bucket] = []
        self._flights: dict[int, list[tuple[list[Tensor], Pending]]] = {}

    def begin_compressed(self, bucket: Bucket) -> None:
        if self.options.clip is None:
            self._send(bucket)
            return
        self._collected.append(bucket)  # a norm is of the whole gradient
        if len(self._collected) == self.number:
            self._clip(self._collected)
            for each in self._collected:
                self._send(each)
            self._collected = []

    def end_compressed(self, bucket: Bucket) -> None:
        places, values = self._flights.pop(bucket.index)
        places[1].wait()
        values[1].wait()
        bucket.flat.zero_()
        for where, what in zip(places[0], values[0], strict=True):
            # One worker's places are all different: no two additions race on a GPU.
            bucket.flat[where.long()] += what

    def _clip(self, buckets: list[Bucket]) -> None:
        """Each worker's part of the norm: clip / sqrt(p), in the scale of this step. Its own
        gradient is g_i/p of the mean, so that it is the mean of p such that is clipped."""
        assert self.options.clip is not None
        squares = sum(float(each.flat.double().square().sum()) for each in buckets)
        size = self.group.size
        allowed = self.options.clip * self.unit / size / math.sqrt(size)
        norm = math.sqrt(squares)
        if norm > allowed:
            for each in buckets:
                each.flat.mul_(allowed / norm)
            self.counters.event("clipped")

    def _send(self, bucket: Bucket) -> None:
        options, flat, index = self.options, bucket.flat, bucket.index
        update = flat
        if options.momentum:
            update = self.remembered(f"momentum/{index}", flat) * options.momentum + flat
        unsent = self.remembered(f"unsent/{index}", flat) + update
        codec = TopKCodec(ratio_at(self.steps, options.warmup, options.ratio))
        places, values = codec.encode(unsent)
        unsent[places.long()] = 0.0
        self.remember(f"unsent/{index}", unsent)
        if options.momentum:
            kept = update.clone()
            if options.masking:
                kept[places.long()] = 0.0
            self.remember(f"momentum/{index}", kept)
        self._flights[index] = [
            self.group.all_gather(each, operation=f"gathering of the largest {what}")
            for each, what in ((places, "gradients' places"), (values, "gradients"))
        ]
