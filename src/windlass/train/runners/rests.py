"""What lost workers have left of the samples, at a server: handed out to who asks for more.

The account is that of range 0 (see `ledger.py`). A worker that is done with an epoch takes what
lies open of it. One that is done with the last waits here until there can be nothing more: others
may still be lost before they have delivered theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.core.errors import Fenced, Unavailable
from windlass.job.stop import should_stop
from windlass.train.comm.transport import Request
from windlass.train.failures import lost
from windlass.train.ledger import Share
from windlass.train.runners.copies import Copies, Held
from windlass.train.runners.routing import Servers


def ask(
    servers: Servers, header: dict[str, Any], step: int, members: Callable[[int], Sequence[str]]
) -> list[Share]:
    """What the account gives this worker, on its side; with `last` in the header, when there can
    be nothing more. `members`: the names of those that a number in the account stands for. Raises
    Fenced where it was taken for lost, MemberLost when those who have shares yet make no progress
    until the deadline."""
    limit = servers.seat.deadline_seconds
    seen, since = -1, time.monotonic()
    while not should_stop():
        told = servers.ask("rest", header, step=step, only=[0])[0][1].header
        if "shares" in told:
            return [Share(*each) for each in told["shares"]]
        if told["progress"] != seen:
            seen, since = told["progress"], time.monotonic()
        waited = time.monotonic() - since
        if waited >= limit:
            names = [name for number in told["wait"] for name in members(number)]
            raise lost(names, "waiting for the last samples", step, waited=waited)
    return []


@dataclass
class _Parked:
    request: Request
    worker: int
    before: int
    most: int
    last: bool
    since: float = field(default_factory=time.monotonic)


class Rests:
    """In the server's thread."""

    def __init__(self, copies: Copies, name: str, patience_seconds: float) -> None:
        self._copies = copies
        self._name = name
        self._patience_seconds = patience_seconds
        self._progress = 0
        self._parked: list[_Parked] = []

    def ask(self, request: Request) -> None:
        told = request.header
        parked = _Parked(
            request, int(told["worker"]), int(told["before"]), int(told["most"]),
            bool(told["last"]),
        )  # fmt: skip
        if not self._try(parked):
            self._parked.append(parked)

    def serve(self, progress: int) -> None:
        """Something may have changed."""
        self._progress = progress
        if self._parked:
            self._parked = [each for each in self._parked if not self._try(each)]

    def refuse(self, error: Exception) -> None:
        for each in self._parked:
            each.request.refuse(error)
        self._parked.clear()

    def _try(self, parked: _Parked) -> bool:
        """Answers one for whom there is something, or nothing any more. Whether it did."""
        request, worker = parked.request, parked.worker
        held = self._copies.held.get(0)
        if held is None or not held.is_owner:
            request.refuse(Unavailable(f"not with {self._name} now"))
            return True
        ledger = held.shard.ledger
        if worker not in ledger.lines:
            request.refuse(Fenced(f"worker {worker} was taken for lost: join again"))
        elif ledger.offers(worker, parked.before):
            self._give(held, parked)
        elif not parked.last or ledger.is_settled(parked.before):
            request.reply({"shares": []})
        elif time.monotonic() - parked.since > self._patience_seconds:
            waits = [each for each in ledger.at_work(parked.before) if each != worker]
            request.reply({"wait": waits, "progress": self._progress})
        else:
            return False
        return True

    def _give(self, held: Held, parked: _Parked) -> None:
        request, worker = parked.request, parked.worker

        def then(err: Exception | None) -> None:
            if err is not None:
                request.refuse(err)
            else:
                shares = held.shard.ledger.taken.get(worker, [])
                request.reply({"shares": [list(each) for each in shares]})

        event = {"what": "take", "worker": worker, "before": parked.before, "most": parked.most}
        self._copies.propose(held, event, [], then)
