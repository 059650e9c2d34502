"""The sum of a round's gradients over the replicas of a stage, computed while they go on.

    replica 0   [a0 | a1 | a2]      begin: stripe n of each goes to replica n
    replica 1   [b0 | b1 | b2]      replica 1 adds a1 + b1 + c1, in this order, when all are there
    replica 2   [c0 | c1 | c2]      finish: each takes the sums of the others' stripes

Each sends 2(r-1)/r of a stage's gradients, as in a ring, in two hops. Every element is added by
one replica, in the order of replicas: the same bits for all, and the bits that a replay gets. Sums
are made in the endpoint's threads, so whoever is in the middle of a forward holds up nobody.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from windlass.train.comm.transport import Answer, Peer, Request
from windlass.train.runners.post import Key, Parcel, Post
from windlass.train.runners.vectors import staged

Sums = list[Tensor | None]


@dataclass
class _Part:
    """What one replica gives for a round."""

    count: float
    has: list[bool]
    stripes: list[Tensor]


@dataclass
class _Round:
    parts: dict[int, _Part] = field(default_factory=dict)


class Rounds:
    """Of one replica. `names` are all of the stage's, in order, `me` one's own place."""

    def __init__(
        self, post: Post, stage: int, names: Sequence[str], me: int, like: Sequence[Tensor]
    ) -> None:
        self._post = post
        self._stage = stage
        self._names = list(names)
        self._me = me
        self._like = list(like)
        self._dtypes = list(dict.fromkeys(each.dtype for each in like))
        self._lock = threading.Lock()
        self._rounds: dict[int, _Round] = {}
        self._sent: deque[tuple[str, Future[Answer]]] = deque()
        post.endpoint.on(f"stripe/{stage}", self._stripe_came)
        post.endpoint.on(f"sum/{stage}", self._sum_came)
        self._peers = {n: post.peer(name, None) for n, name in enumerate(names) if n != me}
        seat = post.seat
        seat.formed[f"{seat.meeting.scope}rounds"] += 1
        # Nobody begins before all can hear it.
        seat.meeting.gather(
            f"rounds/{seat.formed[f'{seat.meeting.scope}rounds']}", b"", names,
            operation="meeting the replicas of a stage", deadline_seconds=seat.deadline_seconds,
        )  # fmt: skip

    def begin(self, number: int, gradients: Sequence[Tensor | None], count: float) -> None:
        """This replica's part of a round. Returns at once."""
        while self._sent and self._sent[0][1].done():
            self._sent.popleft()[1].result()  # raises what it ran into
        has = [each is not None for each in gradients]
        flat = staged([self._flat(gradients, dtype) for dtype in self._dtypes])
        striped = [torch.tensor_split(each, len(self._names)) for each in flat]
        for other, peer in self._peers.items():
            told = {"round": number, "replica": self._me, "count": count, "has": has}
            self._send(peer, "stripe", told, [each[other] for each in striped])
        mine = [each[self._me] for each in striped]
        self._collect(number, self._me, _Part(count, has, mine))

    def finish(self, number: int) -> tuple[Sums, float]:
        """The sums over all replicas, and of how many samples. Raises MemberLost."""
        found = [
            self._post.take(self._key(owner, number), name)
            for owner, name in enumerate(self._names)
        ]
        has = found[0].header["has"]
        flat = [
            torch.cat([parcel.values[place] for parcel in found])
            for place in range(len(self._dtypes))
        ]
        parts = dict(zip(self._dtypes, flat, strict=True))
        at = dict.fromkeys(self._dtypes, 0)
        sums: Sums = []
        for own, there in zip(self._like, has, strict=True):
            start = at[own.dtype]
            at[own.dtype] += own.numel()
            sums.append(
                parts[own.dtype][start : start + own.numel()].view(own.shape) if there else None
            )
        return sums, float(found[0].header["count"])

    def settle(self, operation: str) -> None:
        """Until all that was sent is where it should be. Raises MemberLost."""
        waited = self._post.seat.deadline_seconds
        ends = time.monotonic() + waited
        while self._sent:
            name, sent = self._sent.popleft()
            self._post.delivered(name, sent, operation, None, ends=ends, seconds=waited)

    def _flat(self, gradients: Sequence[Tensor | None], dtype: torch.dtype) -> Tensor:
        return torch.cat([
            (torch.zeros_like(own) if gradient is None else gradient.detach()).reshape(-1)
            for gradient, own in zip(gradients, self._like, strict=True)
            if own.dtype == dtype
        ])  # fmt: skip

    def _key(self, owner: int, number: int) -> Key:
        return Key(f"sum of {self._names[owner]}", self._stage, number, number)

    # -- any thread -------------------------------------------------------------------------

    def _stripe_came(self, request: Request) -> None:
        told = request.header
        part = _Part(told["count"], told["has"], request.tensors)
        request.reply()
        self._collect(told["round"], told["replica"], part)

    def _collect(self, number: int, replica: int, part: _Part) -> None:
        with self._lock:
            found = self._rounds.setdefault(number, _Round())
            found.parts[replica] = part
            if len(found.parts) < len(self._names):
                return
            del self._rounds[number]
        parts = [found.parts[n] for n in range(len(self._names))]
        with torch.no_grad():
            sums = [each.clone() for each in parts[0].stripes]
            for part in parts[1:]:
                for total, more in zip(sums, part.stripes, strict=True):
                    total += more
        told = {
            "count": sum(each.count for each in parts),
            "has": [any(each) for each in zip(*(part.has for part in parts), strict=True)],
        }
        for peer in self._peers.values():
            self._send(peer, "sum", {"round": number, "replica": self._me, **told}, sums)
        # Last: who has finished a round has sent all that others need of it.
        self._post.put(self._key(self._me, number), Parcel(tuple(sums), told))

    def _send(self, peer: Peer, what: str, told: dict[str, Any], tensors: list[Tensor]) -> None:
        sent = peer.send(f"{what}/{self._stage}", told, tensors, kind="gradient", step=None)
        self._sent.append((peer.name, sent))

    def _sum_came(self, request: Request) -> None:
        told = request.header
        # Before: whoever has the last of them may be gone before it has said so.
        request.reply()
        key = self._key(told["replica"], told["round"])
        self._post.put(key, Parcel(tuple(request.tensors), told))
