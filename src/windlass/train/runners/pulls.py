"""Pulls at a server: answered as soon as their rule lets them, parked until then. A push that asks
for it is a pull too, one that never waits: it is answered with what may be read now, or without.

A worker says what it has. A range of which the server has nothing newer is told to be the same,
without a byte of it; so a history has a name, since a snapshot or a checkpoint begins another one
at a version that was there before. A worker that waits long is told whom it waits for, and whether
they still make progress.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from windlass.core.errors import Unavailable
from windlass.train.comm.transport import Request
from windlass.train.runners.copies import Copies
from windlass.train.runners.shard import Shard


@dataclass
class _Parked:
    request: Request
    worker: int
    ranges: list[int]
    final: bool
    delay: int | None
    """What this pull waits for, where it is not for the strategy to say."""
    since: float = field(default_factory=time.monotonic)


class Pulls:
    """In the server's thread."""

    def __init__(self, copies: Copies, name: str, patience_seconds: float) -> None:
        self.progress = 0
        """Grows with whatever a worker does."""
        self._copies = copies
        self._name = name
        self._patience_seconds = patience_seconds
        self._parked: list[_Parked] = []

    def take(self, request: Request) -> None:
        header = request.header
        if header.get("begun"):
            self._copies.is_begun = True
        parked = _Parked(
            request, int(header["worker"]), list(header["ranges"]), bool(header.get("final")),
            header.get("delay"),
        )  # fmt: skip
        if not self._try(parked):
            self._parked.append(parked)

    def answer_push(self, request: Request) -> None:
        """A push has been taken; what a pull would bring now, if it was asked for."""
        header = request.header
        held = [self._copies.held.get(n) for n in header["ranges"]]
        shards = [each.shard for each in held if each is not None and each.is_owner]
        worker = int(header["worker"])
        if (
            header.get("fetch")
            and len(shards) == len(held)
            and all(each.policy.may_pull(worker) for each in shards)
        ):
            self._answer(request, shards)
        else:
            request.reply()

    def serve(self) -> None:
        """Something has changed: those that may return now do."""
        if self._parked:
            self._parked = [each for each in self._parked if not self._try(each)]

    def refuse(self, error: Exception) -> None:
        for each in self._parked:
            each.request.refuse(error)
        self._parked.clear()

    def _try(self, parked: _Parked) -> bool:
        """Answers a pull that may return, or that has waited long. Whether it did."""
        request = parked.request
        held = [self._copies.held.get(n) for n in parked.ranges]
        if any(each is None or not each.is_owner for each in held):
            request.refuse(Unavailable(f"not with {self._name} now"))
            return True
        shards = [each.shard for each in held if each is not None]
        if all(_may(shard, parked) for shard in shards):
            self._answer(request, shards)
            return True
        if time.monotonic() - parked.since > self._patience_seconds:
            waits = sorted({w for shard in shards for w in _waits_for(shard, parked)})
            request.reply({"wait": waits, "progress": self.progress})
            return True
        return False

    @staticmethod
    def _answer(request: Request, shards: list[Shard]) -> None:
        had: list[Any] = request.header.get("have") or [None] * len(shards)
        same = [
            shard.index
            for shard, have in zip(shards, had, strict=True)
            if have == [shard.history, shard.version]
        ]
        header = {
            "versions": {str(shard.index): shard.version for shard in shards},
            "histories": {str(shard.index): shard.history for shard in shards},
            "same": same,
        }
        tensors = [part for each in shards if each.index not in same for part in each.read()]
        request.reply(header, tensors, kind="parameters")


def _may(shard: Shard, parked: _Parked) -> bool:
    if parked.final:
        return not shard.policy.at_work and not shard.policy.pending
    return shard.policy.may_pull(parked.worker, parked.delay)


def _waits_for(shard: Shard, parked: _Parked) -> list[int]:
    if parked.final:
        return shard.policy.at_work
    return shard.policy.waited_for(parked.worker, parked.delay)
