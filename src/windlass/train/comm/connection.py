"""One TCP connection on an asyncio loop: frames out, frames in, no copy in between.

The loop's own streams copy what the socket does not take at once (twice over in large writes), so
this watches the socket itself: what is wanted is received straight into the memory of its tensor,
what is sent goes from there. All methods belong to the loop's thread, but for `send`.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Protocol

from torch import Tensor

from windlass.train.comm import frames
from windlass.train.comm.frames import Frame, Head, Spec
from windlass.train.comm.lending import LENT_BYTES, Borrower, Lender
from windlass.train.comm.wire import without_delay
from windlass.train.counters import Counters

_TURN_BYTES = 8 << 20  # then it is the next connection's turn
_SMALL = 1 << 16  # below this, several pieces are taken in one call
_LONGEST_STRANGER = 4096
_NOTHING = memoryview(b"")


class Owner(Protocol):
    def buffers(self, header: dict[str, Any], specs: list[Spec]) -> list[Tensor] | None:
        """Where the payload goes (contiguous, on the CPU), or None: nobody wants it."""
        ...

    def arrived(self, header: dict[str, Any], tensors: list[Tensor], payload_bytes: int) -> None:
        """A whole message. Raises ValueError on one that is none of ours."""
        ...

    def broke(self, why: str) -> None:
        """Once, and never after `close`."""
        ...


class Connection:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, connected: socket.socket, counters: Counters
    ) -> None:
        self.trusted = False
        """Until the secret is proven only small headers are read."""
        self.lender: Lender | None = None
        """What is large is lent, to a side that has shown that it can read our memory."""
        self.borrower: Borrower | None = None
        """The other side's memory, where we can read it."""
        self.owner: Owner | None = None
        self.is_within = _one_address(connected)
        """Whether both ends have one address: what has two is to go over what is between them,
        be it on one machine (namespaces with links of their own, as `train.sim` makes them)."""
        self._loop = loop
        self._socket = without_delay(connected)
        self._counters = counters
        self._thread = threading.get_ident()
        self._sending = threading.Lock()
        """Around what is to go out and the socket's end of it."""
        self._out: deque[tuple[Frame, list[memoryview]]] = deque()
        self._begun = False
        self._writing = False
        self._open = True
        self._small = memoryview(bytearray(4 * _SMALL))
        self._machine = self._frames()
        self._wanted = _NOTHING
        self._filling: list[Tensor] | None = None

    def start(self, owner: Owner) -> None:
        self.owner = owner
        self._wanted = next(self._machine)
        self._loop.add_reader(self._socket.fileno(), self._readable)

    def send(self, frame: Frame) -> None:
        """From any thread: what the socket takes goes out before this returns, the rest after."""
        with self._sending:
            if not self._open:
                return
            lender = self.lender if frame.payload_bytes >= LENT_BYTES else None
            views = frame.views() if lender is None else frame.lent(lender)
            self._out.append((frame, views))
            if self._writing:
                return
            trouble = self._push()
            self._writing = bool(self._out) and trouble is None
            watch = self._writing
        if trouble is not None:
            self._soon(lambda: self._break(trouble))
        elif watch:
            self._soon(self._watch)

    def unsend(self, frame: Frame) -> bool:
        """Takes back a frame of which nothing has gone out. False: a part of it has."""
        with self._sending:
            for at, (each, _) in enumerate(self._out):
                if each is frame:
                    if at == 0 and self._begun:
                        return False
                    del self._out[at]
                    return True
        return True

    def is_filling(self, tensors: list[Tensor]) -> bool:
        """Whether a message is being received into these right now."""
        return self._filling is tensors

    def close(self) -> None:
        """At once: nothing more is read from or written to anyone's memory."""
        with self._sending:
            if not self._open:
                return
            self._open = False
            number = self._socket.fileno()
            self._loop.remove_reader(number)
            self._loop.remove_writer(number)
            self._socket.close()
            self._out.clear()
        self._filling = None

    # -- out --------------------------------------------------------------------------------

    def _push(self) -> str | None:
        """As much as the socket takes, and no more than a turn; what it ran into. With the lock
        held."""
        budget = _TURN_BYTES
        try:
            while self._out and budget > 0:
                frame, views = self._out[0]
                sent = self._socket.sendmsg(views[:64])
                self._begun = True
                budget -= sent
                _advance(views, sent)
                if not views:
                    self._out.popleft()
                    self._begun = False
                    self._count_sent(frame)
        except BlockingIOError:
            pass
        except OSError as err:
            return str(err)
        return None

    def _writable(self) -> None:
        with self._sending:
            if not self._open:
                return
            trouble = self._push()
            if not self._out and trouble is None:
                self._writing = False
                self._loop.remove_writer(self._socket.fileno())
        if trouble is not None:
            self._break(trouble)

    def _watch(self) -> None:
        """`_writing` says so already: whoever sends leaves it to the loop."""
        with self._sending:
            if self._open:
                self._loop.add_writer(self._socket.fileno(), self._writable)

    def _soon(self, what: Callable[[], None]) -> None:
        """In the loop's thread."""
        if threading.get_ident() == self._thread:
            self._loop.call_soon(what)
            return
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            pass  # it has ended, and everything with it

    def _count_sent(self, frame: Frame) -> None:
        if frame.payload_bytes:
            self._counters.sent(frame.kind, frame.payload_bytes)
        self._counters.sent("control", frame.head_bytes)

    # -- in ---------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            budget = _TURN_BYTES
            while self._open and budget > 0:
                direct = len(self._wanted) >= _SMALL
                count = self._socket.recv_into(self._wanted if direct else self._small)
                if count == 0:
                    self._break("its connection ended")
                    return
                budget -= count
                if direct:
                    self._filled(count)
                else:
                    self._hand_out(count)
                if count < _SMALL:
                    return  # most likely all there was; if not, the loop calls again
        except BlockingIOError:
            return
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as err:
            self._break(f"its connection broke: {err}")

    def _hand_out(self, count: int) -> None:
        """What came into the small buffer, to whoever wants it."""
        at = 0
        while at < count and self._open:
            some = min(count - at, len(self._wanted))
            self._wanted[:some] = self._small[at : at + some]
            at += some
            self._filled(some)

    def _filled(self, count: int) -> None:
        self._wanted = self._wanted[count:]
        if not len(self._wanted) and self._open:
            self._wanted = next(self._machine, _NOTHING)

    def _frames(self) -> Generator[memoryview, None, None]:
        """Yields what is to be filled next."""
        prefix = bytearray(frames.PREFIX.size)
        while True:
            yield memoryview(prefix)
            header_bytes, payload_bytes = frames.read_prefix(prefix)
            if not self.trusted and (header_bytes > _LONGEST_STRANGER or payload_bytes):
                raise ValueError("no proof of the group's secret")
            text = bytearray(header_bytes)
            if header_bytes:
                yield memoryview(text)
            head = frames.read_header(text, payload_bytes)
            if head.specs and not self.trusted:
                raise ValueError("no proof of the group's secret")
            yield from self._message(head)
            if not self._open:
                return
            self._counters.received("control", header_bytes + frames.PREFIX.size)

    def _message(self, head: Head) -> Generator[memoryview, None, None]:
        """On its own, so that nothing of a message is held until the next one."""
        assert self.owner is not None
        tensors = self.owner.buffers(head.header, head.specs) if head.specs else []
        if tensors is None:
            yield from _discard(head.payload_bytes if head.at is None else 0)
            return
        if head.at is not None:
            self._borrow(head, tensors)
        else:
            self._filling = tensors
            for each in tensors:
                if each.numel():
                    yield frames.memory_of(each)
            self._filling = None
        if head.payload_bytes:
            self._counters.received(str(head.header.get("k", "control")), head.payload_bytes)
        self.owner.arrived(head.header, tensors, head.payload_bytes)

    def _borrow(self, head: Head, tensors: list[Tensor]) -> None:
        if self.borrower is None or head.at is None:
            raise ValueError("what is lent cannot be read")
        try:
            self.borrower.read(head.at, frames.pieces_of(tensors), *head.cell)
        except OSError as err:  # not one of the socket's
            raise ValueError(str(err)) from err

    def _break(self, why: str) -> None:
        if self._open:
            self.close()
            if self.owner is not None:
                self.owner.broke(why)


def _one_address(connected: socket.socket) -> bool:
    try:
        found: bool = connected.getsockname()[0] == connected.getpeername()[0]
    except OSError:  # it has ended already
        return False
    return found


def _advance(views: list[memoryview], count: int) -> None:
    while count:
        if count >= len(views[0]):
            count -= len(views.pop(0))
        else:
            views[0] = views[0][count:]
            return


def _discard(count: int) -> Generator[memoryview, None, None]:
    scratch = memoryview(bytearray(min(count, 1 << 20)))
    while count:
        some = min(count, len(scratch))
        yield scratch[:some]
        count -= some
