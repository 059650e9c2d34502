"""The calling side of the transport: requests to one other member, and its answers.

A request has a number that only this process uses. When the connection breaks, the peer is reached
again and what is not answered is sent again under the same number; the other side does a number
once. A peer that is lost (`cut`) fails everything that waits for it, at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from windlass.core.errors import InvalidInput, WindlassError, from_wire
from windlass.train.comm import wire
from windlass.train.comm.connection import Connection
from windlass.train.comm.frames import Frame, Payload, Spec
from windlass.train.comm.lending import Borrower
from windlass.train.failures import lost

if TYPE_CHECKING:
    from windlass.train.comm.transport import Endpoint

_ACKNOWLEDGED_BYTES = 1 << 16  # answers of this size are let go of as soon as they have arrived
_LAZY_BYTES = 1 << 20  # up to this, a few messages more or less are held for nothing


@dataclass(frozen=True, slots=True)
class Answer:
    header: dict[str, Any]
    tensors: list[Tensor]


Into = Sequence[Tensor] | Callable[[dict[str, Any]], Sequence[Tensor]]
"""Where an answer's tensors go; or what says so when its header is here."""


@dataclass(eq=False)
class _Waiting:
    operation: str
    step: int | None
    header: dict[str, Any]
    tensors: Sequence[Payload]
    kind: str
    into: Into | None
    deadline_seconds: float | None
    ends: float | None
    future: Future[Answer] = field(default_factory=Future)
    number: int = 0
    frame: Frame | None = None
    landing: list[Tensor] | None = None
    sent: bool = False
    lazily: bool = False


class Peer:
    """Made by `Endpoint.peer`. `call` and `send` from any thread."""

    def __init__(self, endpoint: Endpoint, name: str, address: tuple[str, int]) -> None:
        self.name = name
        self.address = address
        self.lookup: Callable[[], tuple[str, int]] | None = None
        """Where it says that it is; asked when nobody is where it was."""
        self._endpoint = endpoint
        self._lock = threading.RLock()
        """Around what waits and whether there is a connection for it."""
        self._waiting: dict[int, _Waiting] = {}
        self._queued = 0
        """Of those, how many the endpoint's thread has not seen yet."""
        self._connection: Connection | None = None
        self._welcomed = False
        self._question = ""
        self._incarnation: str | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        """Rings at the first deadline of what waits, or before it."""
        self._failures = 0
        self._trouble = ""
        self._gone: str | None = None

    # -- any thread -------------------------------------------------------------------------

    def call(
        self,
        operation: str,
        header: dict[str, Any] | None = None,
        tensors: Sequence[Payload] = (),
        *,
        kind: str,
        step: int | None,
        deadline_seconds: float,
        into: Into | None = None,
    ) -> Answer:
        """What the other side answers. Raises what it refused with, or MemberLost. An answer
        without tensors leaves `into` as it is."""
        future = self.send(
            operation, header, tensors, kind=kind, step=step, into=into,
            deadline_seconds=deadline_seconds,
        )  # fmt: skip
        # The deadline is kept in the endpoint's thread, which first lets go of the memory.
        try:
            return future.result(deadline_seconds + 10)
        except TimeoutError:
            raise lost([self.name], operation, step, waited=deadline_seconds) from None

    def send(
        self,
        operation: str,
        header: dict[str, Any] | None = None,
        tensors: Sequence[Payload] = (),
        *,
        kind: str,
        step: int | None = None,
        into: Into | None = None,
        deadline_seconds: float | None = None,
        lazily: bool = False,
    ) -> Future[Answer]:
        """The same without waiting. The tensors are the transport's until the future is done. It
        goes out in the caller's own thread where its way is free. `lazily`: what counts is that
        it gets there soon; that it is there, where nothing else is answered, may be told later."""
        ends = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        waiting = _Waiting(
            operation, step, header or {}, tensors, kind,
            into if into is None or callable(into) else list(into), deadline_seconds, ends,
        )  # fmt: skip
        if lazily and deadline_seconds is None:
            waiting.lazily = _size_of(tensors) <= _LAZY_BYTES
        for each in () if waiting.into is None or callable(waiting.into) else waiting.into:
            if each.requires_grad and each.is_leaf:
                raise InvalidInput("into: a tensor that asks for a gradient; give its .data")
        if self._at_once(waiting):
            return waiting.future
        with self._lock:
            self._queued += 1
        if not self._endpoint.post(lambda: self._begin(waiting)):
            waiting.future.set_exception(
                lost([self.name], operation, step, why="this member's endpoint is closed")
            )
        return waiting.future

    def _at_once(self, waiting: _Waiting) -> bool:
        """False: there is no connection, or something goes before it."""
        with self._lock:
            if (
                self._connection is None or not self._welcomed or self._queued
                or self._gone is not None or self._endpoint.is_closed
            ):  # fmt: skip
                return False
            if waiting.ends is not None and (
                self._alarm is None or self._alarm.when() > waiting.ends
            ):
                self._endpoint.post(self._set_alarm)
            if self._number(waiting) and waiting.frame is not None:
                waiting.sent = True
                self._connection.send(waiting.frame)
        return True

    def cut(self, why: str = "it is lost") -> None:
        """Everything that waits for it fails now, and what is asked of it later too."""
        self._gone = self._gone or why
        self._endpoint.post(lambda: self.end(why))

    @property
    def is_cut(self) -> bool:
        return self._gone is not None

    def _number(self, waiting: _Waiting) -> bool:
        """In the order of sending: what is below the lowest that waits is over. With the lock
        held. False: its header is none, which its future says."""
        waiting.number = self._endpoint.next_number()
        self._waiting[waiting.number] = waiting
        told = {
            "n": waiting.number, "f": min(self._waiting), "op": waiting.operation,
            "k": waiting.kind, "s": waiting.step, "h": waiting.header,
        }  # fmt: skip
        if waiting.lazily:
            told["l"] = 1
        try:
            waiting.frame = Frame(told, waiting.tensors, waiting.kind)
        except (WindlassError, TypeError, ValueError) as err:
            refused = err if isinstance(err, WindlassError) else InvalidInput(f"header: {err}")
            self._fail(waiting, refused)
            return False
        return True

    # -- the endpoint's thread --------------------------------------------------------------

    def _begin(self, waiting: _Waiting) -> None:
        with self._lock:
            self._queued -= 1
            if self._endpoint.is_closed:  # who is asked only now was not among those that were cut
                self._gone = self._gone or "this member's endpoint is closed"
            if self._gone is not None:
                self._fail(waiting, self._lost(waiting, self._gone))
                return
            if not self._number(waiting) or waiting.frame is None:
                return
            if waiting.ends is not None:
                self._set_alarm()
            if self._connection is not None and self._welcomed:
                waiting.sent = True
                self._connection.send(waiting.frame)
            elif self._connection is None and self._connecting is None:
                self._connecting = self._endpoint.loop.create_task(self._connect())

    async def _connect(self) -> None:
        loop = self._endpoint.loop
        while self._gone is None and self._waiting:
            if self._failures:
                await asyncio.sleep(min(0.5, 0.005 * 2**self._failures))
            connection = socket.socket(_family(self.address[0]))
            connection.setblocking(False)
            try:
                async with asyncio.timeout(5):
                    await loop.sock_connect(connection, self.address)
            except (OSError, TimeoutError) as err:
                connection.close()
                self._failures = min(self._failures + 1, 10)
                host, port = self.address
                told = os.strerror(err.errno) if err.errno else "it does not answer"
                self._trouble = f"{host}:{port}: {told}"
                await self._look_up()
                continue
            except BaseException:
                connection.close()
                raise
            if self._gone is not None:  # cut in the very moment in which it was connected
                connection.close()
                break
            self._question = wire.challenge()
            self._welcomed = False
            self._connection = Connection(loop, connection, self._endpoint.counters)
            self._connection.start(self)
            break
        self._connecting = None

    async def _look_up(self) -> None:
        """Nobody is there: it may have been started again, and say where it is now."""
        if self.lookup is not None:
            try:
                self.address = await self._endpoint.loop.run_in_executor(None, self.lookup)
            except WindlassError:
                pass  # the roster says what became of it

    def buffers(self, header: dict[str, Any], specs: list[Spec]) -> list[Tensor] | None:
        waiting = self._waiting.get(header["re"])
        if waiting is None:
            return None
        if callable(waiting.into):
            waiting.into = list(waiting.into(header.get("h") or {}))
        if waiting.into is not None and _fits(waiting.into, specs):
            waiting.landing = [
                given if given.is_contiguous() and given.device.type == "cpu" else spec.empty()
                for given, spec in zip(waiting.into, specs, strict=True)
            ]
        else:
            waiting.landing = [each.empty() for each in specs]
        return waiting.landing

    def arrived(self, header: dict[str, Any], tensors: list[Tensor], payload_bytes: int) -> None:
        if not self._welcomed:
            self._shake_hands(header)
            return
        if "reads" in header:
            if header["reads"] and self._connection is not None:
                self._connection.lender = self._endpoint.lender
            return
        if "done" in header:
            for number in header["done"]:
                self._succeed(self._waiting.pop(number, None), Answer({}, []))
            return
        waiting = self._waiting.pop(header["re"], None)
        if payload_bytes >= _ACKNOWLEDGED_BYTES and self._connection is not None:
            self._connection.send(Frame({"ack": header["re"]}, (), "control"))
        if waiting is None:
            return
        self._failures = 0
        if "error" in header:
            self._fail(waiting, from_wire(0, header))
            return
        if waiting.into is not None and not callable(waiting.into) and tensors:
            if len(tensors) != len(waiting.into) or not _fits(
                waiting.into, [Spec(t.dtype, tuple(t.shape)) for t in tensors]
            ):
                found = [(str(t.dtype), tuple(t.shape)) for t in tensors]
                why = f"{self.name} answered {waiting.operation} with {found}: it fits not `into`"
                self._fail(waiting, InvalidInput(why))
                return
            for given, came in zip(waiting.into, tensors, strict=True):
                if given is not came:
                    given.copy_(came)
            tensors = list(waiting.into)
        self._succeed(waiting, Answer(header.get("h") or {}, tensors))

    def _succeed(self, waiting: _Waiting | None, answer: Answer) -> None:
        if waiting is not None:
            self._failures = 0
            if waiting.frame is not None:
                waiting.frame.take_back()
            if waiting.future.set_running_or_notify_cancel():
                waiting.future.set_result(answer)

    def broke(self, why: str) -> None:
        with self._lock:
            self._connection = None
            self._welcomed = False
            self._trouble = why
            self._failures = min(self._failures + 1, 10)
            if self._waiting and self._gone is None and self._connecting is None:
                self._connecting = self._endpoint.loop.create_task(self._connect())

    def _shake_hands(self, header: dict[str, Any]) -> None:
        assert self._connection is not None
        secret = self._endpoint.secret
        if "ask" in header:
            answer = wire.proof(secret, f"caller {header['ask']}")
            self._connection.send(
                Frame(
                    {
                        "hello": self._endpoint.name, "incarnation": self._endpoint.incarnation,
                        "proof": answer, "ask": self._question,
                    },
                    (), "control",
                )
            )  # fmt: skip
        elif "refused" in header:
            self.cut(f"it refused the connection: {header['refused']}")
        elif not wire.proven(secret, f"called {self._question}", header.get("proof")):
            self.cut("it gave no proof of the group's secret")
        else:
            self._welcome(str(header["incarnation"]), header.get("memory"))

    def _welcome(self, incarnation: str, memory: Any) -> None:
        again = self._incarnation is not None and self._incarnation != incarnation
        self._incarnation = incarnation
        with self._lock:
            assert self._connection is not None
            self._welcomed = self._connection.trusted = True
            if memory is not None:
                self._connection.borrower = found = Borrower.of(memory)
                told = {"memory": self._endpoint.lender.told(), "reads": found is not None}
                self._connection.send(Frame(told, (), "control"))
            for waiting in list(self._waiting.values()):
                if again and waiting.sent:  # the one that may have done it is no more
                    self._fail(waiting, self._lost(waiting, "it was started again"))
                elif waiting.frame is not None:
                    waiting.sent = True
                    self._connection.send(waiting.frame)

    # -- ends -------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        """For all that waits: a request that is answered long before its deadline costs none."""
        with self._lock:
            ends = min(
                (w.ends for w in self._waiting.values() if w.ends is not None), default=None
            )
            if self._alarm is not None:
                if ends is not None and self._alarm.when() <= ends:
                    return
                self._alarm.cancel()
                self._alarm = None
            if ends is not None:
                self._alarm = self._endpoint.loop.call_at(ends, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._endpoint.loop.time()
        for each in list(self._waiting.values()):
            if each.ends is not None and each.ends <= now:
                self._too_late(each)
        self._set_alarm()

    def _too_late(self, waiting: _Waiting) -> None:
        if self._waiting.pop(waiting.number, None) is None:
            return
        self._let_go(waiting)
        trouble = f" ({self._trouble})" if self._trouble and not self._welcomed else ""
        seconds = waiting.deadline_seconds or 0.0
        self._fail(waiting, self._lost(waiting, f"nothing came for {seconds:.1f} s{trouble}"))

    def _let_go(self, waiting: _Waiting) -> None:
        """The memory of its tensors is the caller's again: a frame that is half sent or half
        received ends with its connection; the others' are sent again on the next one."""
        if self._connection is None:
            return
        half = waiting.frame is not None and not self._connection.unsend(waiting.frame)
        if waiting.landing is not None and self._connection.is_filling(waiting.landing):
            half = True
        if half:
            self._connection.close()
            self.broke("a message was given up halfway")

    def end(self, why: str) -> None:
        self._gone = self._gone or why
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self._fail(each, self._lost(each, self._gone or "it is lost"))

    def _lost(self, waiting: _Waiting, why: str) -> WindlassError:
        return lost([self.name], waiting.operation, waiting.step, why=why)

    def _fail(self, waiting: _Waiting, err: WindlassError) -> None:
        self._waiting.pop(waiting.number, None)
        if waiting.frame is not None:
            waiting.frame.take_back()
        if waiting.future.set_running_or_notify_cancel():
            waiting.future.set_exception(err)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _size_of(tensors: Sequence[Payload]) -> int:
    pieces = [one for each in tensors for one in ([each] if isinstance(each, Tensor) else each)]
    return sum(each.nbytes for each in pieces)


def _fits(into: Sequence[Tensor], specs: Sequence[Spec]) -> bool:
    return len(into) == len(specs) and all(
        given.dtype == spec.dtype and tuple(given.shape) == spec.shape
        for given, spec in zip(into, specs, strict=True)
    )
