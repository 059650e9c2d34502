"""The answering side of the transport: requests of others, each done once, in their order.

A sender is known by its incarnation, a request by its number. What comes again after a broken
connection is not given to a handler again: it gets the answer that was given, or the one that will
be. An answer is kept until the sender says that it has it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from windlass.core.errors import InvalidInput, TrainingFailed, WindlassError
from windlass.train.comm import wire
from windlass.train.comm.connection import Connection
from windlass.train.comm.frames import Frame, Payload, Spec
from windlass.train.comm.lending import Borrower

if TYPE_CHECKING:
    from windlass.train.comm.transport import Endpoint

Handler = Callable[["Request"], None]
_TOLD_TOGETHER = 8
_TOLD_AFTER_SECONDS = 0.1
Place = Callable[[dict[str, Any], list[Spec]], "list[Tensor] | None"]
"""Where the tensors of a request go: of these specs, or None for fresh ones. Called in the
endpoint's thread: it must not wait."""


class Request:
    """What another member asks. Answer once, now or later, from any thread."""

    def __init__(
        self, endpoint: Endpoint, sender: Sender, header: dict[str, Any], tensors: list[Tensor]
    ) -> None:
        self.peer_name = sender.name
        self.incarnation = sender.incarnation
        self.number: int = header["n"]
        self.operation: str = header["op"]
        self.step: int | None = header.get("s")
        self.kind: str = header["k"]
        self.header: dict[str, Any] = header["h"]
        self.tensors = tensors
        self._lazily = "l" in header
        self._endpoint = endpoint
        self._sender = sender
        self._lock = threading.Lock()
        self._answered = False

    def reply(
        self,
        header: dict[str, Any] | None = None,
        tensors: Sequence[Payload] = (),
        *,
        kind: str | None = None,
    ) -> None:
        """The tensors are read while they are sent, and again if the connection breaks: do not
        write to them after."""
        if self._lazily and not header and not tensors:
            self._take_turn()
            if self._endpoint.is_here:
                self._sender.acknowledge(self.number, self._endpoint)
            else:
                self._endpoint.post(lambda: self._sender.acknowledge(self.number, self._endpoint))
            return
        frame = Frame(
            {"re": self.number, "k": kind or self.kind, "h": header or {}},
            tensors, kind or self.kind,
        )  # fmt: skip
        self._answer(frame)

    def refuse(self, error: Exception) -> None:
        """The other side's call raises it: ours as they are, others' as words."""
        told = (
            error
            if isinstance(error, WindlassError)
            else TrainingFailed(f"{self._endpoint.name}: {type(error).__name__}: {error}")
        )
        self._answer(Frame({"re": self.number, **_plain(told)}, (), "control"))

    @property
    def is_answered(self) -> bool:
        return self._answered

    def _take_turn(self) -> None:
        with self._lock:
            if self._answered:
                raise AssertionError(f"{self.operation} of {self.peer_name} is answered already")
            self._answered = True

    def _answer(self, frame: Frame) -> None:
        self._take_turn()
        self._sender.answer(self.number, frame)


class Sender:
    """Another member's requests to this one. The endpoint's thread, but for the queue and
    `answer`."""

    def __init__(self, name: str, incarnation: str) -> None:
        self.name = name
        self.incarnation = incarnation
        self.connection: Connection | None = None
        self.queue: deque[tuple[Handler, Request]] = deque()
        self.busy = False
        self.lock = threading.Lock()
        self._known: dict[int, Frame | bool | None] = {}
        """True: done, with nothing more to say of it than that."""
        self._floor = 0
        self._due: list[int] = []
        self._bell: asyncio.TimerHandle | None = None

    def knows(self, number: int) -> bool:
        return number < self._floor or number in self._known

    def take(self, number: int) -> None:
        self._known[number] = None

    def forget_below(self, floor: int) -> None:
        if floor > self._floor:
            self._floor = floor
            for number in [each for each in self._known if each < floor]:
                del self._known[number]

    def forget(self, number: int) -> None:
        """It has the answer. The number stays known, its answer does not."""
        if number in self._known:
            self._known[number] = None

    def answer(self, number: int, frame: Frame) -> None:
        """From any thread. Known first: a connection that is made meanwhile finds it, or is it."""
        if number in self._known:
            self._known[number] = frame
        connection = self.connection
        if connection is not None:
            connection.send(frame)

    def acknowledge(self, number: int, endpoint: Endpoint) -> None:
        """Not by itself: a sender that need not know it at once is told of several together."""
        if number in self._known:
            self._known[number] = True
        self._due.append(number)
        if len(self._due) >= _TOLD_TOGETHER:
            self.tell()
        elif len(self._due) == 1:
            self._bell = endpoint.loop.call_later(_TOLD_AFTER_SECONDS, self.tell)

    def tell(self) -> None:
        """What is done and was not said yet."""
        due, self._due = self._due, []
        if self._bell is not None:
            self._bell.cancel()
            self._bell = None
        if due and self.connection is not None:
            self.connection.send(Frame({"done": due}, (), "control"))

    def answer_again(self, number: int) -> None:
        known = self._known.get(number)
        if self.connection is None or known is None:
            return
        if isinstance(known, Frame):
            self.connection.send(known)
        else:
            self.connection.send(Frame({"done": [number]}, (), "control"))


class Door:
    """One accepted connection: first a proof, then requests."""

    def __init__(self, endpoint: Endpoint, connection: Connection) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._question = wire.challenge()
        self._sender: Sender | None = None

    def open(self) -> None:
        self._connection.start(self)
        self._connection.send(Frame({"ask": self._question}, (), "control"))

    def buffers(self, header: dict[str, Any], specs: list[Spec]) -> list[Tensor] | None:
        assert self._sender is not None
        if self._sender.knows(header["n"]):
            self._sender.answer_again(header["n"])
            return None
        place = self._endpoint.places.get(header["op"])
        found = place(header["h"], specs) if place is not None else None
        return [each.empty() for each in specs] if found is None else found

    def arrived(self, header: dict[str, Any], tensors: list[Tensor], payload_bytes: int) -> None:
        sender = self._sender
        if sender is None:
            self._greet(header)
        elif "ack" in header:
            sender.forget(header["ack"])
        elif "memory" in header:
            self._take_memory(header)
        elif sender.knows(header["n"]):
            sender.answer_again(header["n"])
        else:
            sender.forget_below(header["f"])
            sender.take(header["n"])
            request = Request(self._endpoint, sender, header, tensors)
            if "l" not in header:
                sender.tell()  # it asks for an answer: what it did not ask for comes before
            handler = self._endpoint.handlers.get(request.operation)
            if handler is None:
                known = ", ".join(sorted(self._endpoint.handlers)) or "none"
                request.refuse(
                    InvalidInput(f"operation: {request.operation!r}", hint=f"known: {known}")
                )
            elif request.operation in self._endpoint.at_once:
                self._endpoint.handle(handler, request)
            else:
                self._endpoint.hand_over(sender, handler, request)

    def broke(self, why: str) -> None:
        self._endpoint.doors.discard(self)
        if self._sender is not None and self._sender.connection is self._connection:
            self._sender.connection = None

    def close(self) -> None:
        self._connection.close()

    def _greet(self, header: dict[str, Any]) -> None:
        secret = self._endpoint.secret
        if not wire.proven(secret, f"caller {self._question}", header.get("proof")):
            why = "no proof of the group's secret"
            self._connection.send(Frame({"refused": why}, (), "control"))
            raise ValueError(why)
        sender = self._endpoint.sender(str(header["hello"]), str(header["incarnation"]))
        if sender.connection is not None:
            sender.connection.close()  # the other side has given it up
        sender.connection = self._connection
        self._sender = sender
        self._connection.trusted = True
        answer = wire.proof(secret, f"called {header['ask']}")
        told: dict[str, Any] = {"proof": answer, "incarnation": self._endpoint.incarnation}
        if self._connection.is_within:
            told["memory"] = self._endpoint.lender.told()
        self._connection.send(Frame(told, (), "control"))

    def _take_memory(self, header: dict[str, Any]) -> None:
        """Whether each can read the other's: what is large need not go through the socket."""
        self._connection.borrower = found = Borrower.of(header["memory"])
        if header["reads"]:
            self._connection.lender = self._endpoint.lender
        self._connection.send(Frame({"reads": found is not None}, (), "control"))


def _plain(err: WindlassError) -> dict[str, Any]:
    """What of an error goes through JSON."""
    wired = err.to_wire()
    details = wired["error"].get("details", {})
    kept = {k: v for k, v in details.items() if isinstance(v, str | int | float | list | None)}
    if "details" in wired["error"]:
        wired["error"]["details"] = kept
    return wired
