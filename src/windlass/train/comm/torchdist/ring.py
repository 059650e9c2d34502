"""The ring all-reduce, written out: what the libraries do, to be read.

    p = 3, the flat tensor in 3 chunks; in each round everybody sends one chunk to the right

              worker 0     worker 1     worker 2
    round 0   sends 0 →    sends 1 →    sends 2 →       reduce-scatter: what comes is added
    round 1   sends 2 →    sends 0 →    sends 1 →       now worker i holds the sum of chunk i+1
    round 2   sends 1 →    sends 2 →    sends 0 →       all-gather: what comes is the sum
    round 3   sends 0 →    sends 1 →    sends 2 →       now everybody holds all

2(p-1) messages of n/p bytes each: 2(p-1)/p · n bytes sent by every worker, whatever p.
"""

from __future__ import annotations

import torch
from torch import Tensor

from windlass.train.comm.torchdist.group import WorkerGroup


def ring_all_reduce(
    group: WorkerGroup, flat: Tensor, *, kind: str = "gradient", operation: str = "ring all-reduce"
) -> None:
    """The sum of everybody's flat tensor, in place, bitwise the same on all: each chunk is summed
    once, by one worker after another, and the sum is passed round."""
    p, me = group.size, group.rank
    if p == 1:
        return
    chunks = flat.view(-1).tensor_split(p)
    arriving = torch.empty_like(chunks[0])
    for turn in range(2 * (p - 1)):
        out = chunks[(me - turn) % p]
        into = chunks[(me - turn - 1) % p]
        adds = turn < p - 1
        here = arriving[: into.numel()] if adds else into
        # Even ranks speak first: where sends wait for their receiver, somebody must listen.
        begun = {}
        for way in ("send", "receive") if me % 2 == 0 else ("receive", "send"):
            if way == "send" and out.numel():
                begun[way] = group.send(out, (me + 1) % p, kind=kind, operation=operation)
            elif way == "receive" and into.numel():
                begun[way] = group.receive(here, (me - 1) % p, kind=kind, operation=operation)
        if "receive" in begun:
            begun["receive"].wait()
            if adds:
                into += here
        if "send" in begun:
            begun["send"].wait()
