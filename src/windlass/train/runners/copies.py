"""The ranges that a server holds, each with a second copy on the next server of the ring.

    worker ── push ──> owner ── event ──> copy        the copy takes it first, then the owner,
    worker <─ done ─── owner <─ done ──── copy        then the worker hears of it

So what a worker was told, or could read, is on two servers. When the owner is lost the copy is the
owner; when servers come or go, ranges move to whom the ring says, whole, between two events. A
server that was taken for lost finds that nobody listens: its copy refuses what it sends.

One thread (the server's own) calls all of this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from windlass.core.errors import Conflict, Fenced, InvalidInput, Unavailable
from windlass.train.comm.transport import Answer, Peer, Request
from windlass.train.policies.keys import owners
from windlass.train.runners.shard import Shard

Then = Callable[[Exception | None], None]
"""Called when an event has been taken (None), or will not be."""


@dataclass(eq=False)
class _Proposal:
    event: dict[str, Any]
    tensors: list[Tensor]
    then: Then


@dataclass(eq=False)
class Held:
    """A range on this server. `copy` holds the same events as we; `moving` is whom the whole of
    it is on its way to: meanwhile events wait in `backlog`."""

    shard: Shard
    is_owner: bool
    told_by: str = ""
    copy: str | None = None
    moving: str | None = None
    draining: bool = False
    unsettled: bool = False
    """A move failed: `tick` tries again."""
    flight: deque[_Proposal] = field(default_factory=deque)
    backlog: deque[_Proposal] = field(default_factory=deque)


class Copies:
    def __init__(
        self,
        name: str,
        copies: int,
        make: Callable[[int], Shard],
        reach: Callable[[str], Peer],
        later: Callable[[Callable[[], None]], None],
        deadline_seconds: float,
    ) -> None:
        """`reach` gives the peer of another server; `later` has something done in the server's
        thread."""
        self.name = name
        self.held: dict[int, Held] = {}
        self.live: frozenset[str] = frozenset()
        self._present: frozenset[str] = frozenset()
        self.is_begun = False
        """A worker has pushed, so all ranges are somewhere: one that is nowhere is lost."""
        self.taken: Callable[[Shard], None] = lambda shard: None
        """Called after each event of a range that is ours."""
        self._copies = copies
        self._make = make
        self._reach = reach
        self._later = later
        self._deadline = deadline_seconds

    # -- what the server does ---------------------------------------------------------------

    def owned(self, index: int) -> Held:
        """Raises Unavailable: somebody else has it, or will have it in a moment."""
        found = self.held.get(index)
        if found is None or not found.is_owner:
            raise Unavailable(f"range {index} is not with {self.name} now")
        return found

    def begin(self, index: int, values: Sequence[Tensor], then: Then) -> None:
        """A range's first parameters. Done when its copy is made."""
        if index in self.held:
            then(None)  # asked again
            return
        shard = self._make(index)
        shard.begin([each.clone() for each in values])
        held = self.held[index] = Held(shard, True)
        self._arrange(held)
        if held.moving is None:
            then(None)
        else:
            held.backlog.append(_Proposal({}, [], then))

    def propose(
        self, held: Held, event: dict[str, Any], tensors: Sequence[Tensor], then: Then
    ) -> None:
        """An event for a range that is ours: taken by the copy, by us, and then told."""
        proposal = _Proposal(event, list(tensors), then)
        if held.moving is not None or held.draining or held.unsettled:
            held.backlog.append(proposal)
        elif held.copy is None or not event:
            self._take(held, proposal)
        else:
            self._fly(held, proposal)

    def see(self, live: Iterable[str], present: Iterable[str]) -> None:
        """The servers that serve now, and those that are there at all: who is not is lost."""
        self.live, self._present = frozenset(live), frozenset(present)
        for held in list(self.held.values()):
            self._inherit(held)
            if held.is_owner:
                self._arrange(held)

    def _inherit(self, held: Held) -> None:
        if not held.is_owner and held.told_by not in self._present:
            held.is_owner, held.copy = True, None

    def tick(self) -> None:
        for held in list(self.held.values()):
            if held.unsettled and held.is_owner:
                self._arrange(held)

    def missing(self, count: int) -> list[int]:
        """Ranges that should be ours and are not here."""
        return [
            n for n in range(count) if n not in self.held and self._owners(n)[:1] == [self.name]
        ]

    # -- what other servers ask -------------------------------------------------------------

    def take_copy(self, request: Request) -> None:
        """`copy`: one event for a range of which we hold the second copy."""
        held = self.held.get(request.header["range"])
        if held is not None and held.is_owner:
            raise Fenced(f"range {held.shard.index} is with {self.name}: you were taken for lost")
        if (
            held is None
            or held.told_by != request.peer_name
            or held.shard.order + 1 != request.header["order"]
        ):
            raise Conflict(f"range {request.header['range']}: {self.name} has no such copy")
        event = request.header["event"]
        held.shard.take(event, request.tensors)
        request.reply()

    def adopt(self, request: Request) -> None:
        """`adopt`: a range, whole; ours from now on, or as a second copy."""
        index = int(request.header["range"])
        known = self.held.get(index)
        if known is not None and known.is_owner and known.moving != request.peer_name:
            raise Fenced(f"range {index} is with {self.name}: you were taken for lost")
        shard = self._make(index)
        shard.load(request.header["state"], request.tensors)
        held = self.held[index] = Held(shard, bool(request.header["owner"]), request.peer_name)
        request.reply()
        if known is not None:
            _refuse(known, f"range {index} moved")
        self._inherit(held)  # who sent it may be lost by now
        if held.is_owner:
            self._arrange(held)

    def drop(self, request: Request) -> None:
        """`drop`: a copy that nobody will tell anything any more."""
        held = self.held.get(request.header["range"])
        if held is not None and not held.is_owner and held.told_by == request.peer_name:
            del self.held[held.shard.index]
        request.reply()

    # -- events -----------------------------------------------------------------------------

    def _take(self, held: Held, proposal: _Proposal) -> None:
        if proposal.event:
            held.shard.take(proposal.event, proposal.tensors)
            self.taken(held.shard)
        proposal.then(None)

    def _fly(self, held: Held, proposal: _Proposal) -> None:
        assert held.copy is not None
        held.flight.append(proposal)
        header = {
            "range": held.shard.index,
            "order": held.shard.order + len(held.flight),
            "event": proposal.event,
        }
        copy = held.copy
        future = self._reach(copy).send(
            "copy", header, proposal.tensors, kind="gradient",
            deadline_seconds=self._deadline,
        )  # fmt: skip
        future.add_done_callback(
            lambda done: self._later(lambda: self._landed(held, proposal, copy, done))
        )

    def _landed(self, held: Held, proposal: _Proposal, copy: str, done: Future[Answer]) -> None:
        if self.held.get(held.shard.index) is not held or proposal not in held.flight:
            return
        err = done.exception()
        if err is None:
            held.flight.remove(proposal)
            self._take(held, proposal)
        elif isinstance(err, Fenced):
            self._step_down(held, str(err))
            return
        elif isinstance(err, InvalidInput):  # nobody can read it, so nobody has taken it
            held.flight.remove(proposal)
            proposal.then(err)
        else:  # the copy is gone: what it may have taken is told to the next one again, in order
            held.backlog.extendleft(reversed(held.flight))
            held.flight.clear()
            held.copy = None
            held.draining = True
        if held.draining and not held.flight:
            held.draining = False
            self._arrange(held)

    # -- moves ------------------------------------------------------------------------------

    def _owners(self, index: int) -> list[str]:
        return owners(index, self.live, self._copies)

    def _arrange(self, held: Held) -> None:
        """As the ring says: hand it over, or make a second copy; then go on."""
        if held.moving is not None:
            return
        held.unsettled = False
        named = self._owners(held.shard.index)
        first = named[0] if named else self.name
        second = named[1] if len(named) > 1 else None
        if first == self.name and held.copy is not None and held.copy == second:
            self._go_on(held)
            return
        if held.flight:
            held.draining = True
            return
        if first != self.name:
            self._move(held, first, True)
        elif second is not None:
            self._move(held, second, False)
        else:
            held.copy = None
            self._go_on(held)

    def _move(self, held: Held, to: str, as_owner: bool) -> None:
        held.moving = to
        state, tensors = held.shard.state()
        header = {"range": held.shard.index, "owner": as_owner, "state": state}
        future = self._reach(to).send(
            "adopt", header, tensors, kind="state", deadline_seconds=self._deadline
        )
        future.add_done_callback(
            lambda done: self._later(lambda: self._moved(held, to, as_owner, done))
        )

    def _moved(self, held: Held, to: str, as_owner: bool, done: Future[Answer]) -> None:
        if self.held.get(held.shard.index) is not held:
            return
        err = done.exception()
        held.moving = None
        if isinstance(err, Fenced):
            self._step_down(held, str(err))
            return
        before, held.copy = held.copy, None
        if err is not None:
            held.unsettled = True  # whether it is lost, the roster says
            return
        if before not in (None, to) and before in self.live:
            self._reach(before).send("drop", {"range": held.shard.index}, kind="control")
        if as_owner:
            del self.held[held.shard.index]
            _refuse(held, f"range {held.shard.index} moved to {to}")
        else:
            held.copy = to
            self._arrange(held)

    def _go_on(self, held: Held) -> None:
        backlog, held.backlog = held.backlog, deque()
        for each in backlog:
            self.propose(held, each.event, each.tensors, each.then)

    def _step_down(self, held: Held, why: str) -> None:
        del self.held[held.shard.index]
        _refuse(held, why)


def _refuse(held: Held, why: str) -> None:
    for each in (*held.flight, *held.backlog):
        each.then(Unavailable(why))
    held.flight.clear()
    held.backlog.clear()
