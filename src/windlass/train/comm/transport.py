"""Messages with tensors between members, who may die and come back at any moment.

    endpoint = Endpoint(seat.name, seat.meeting.secret, counters=seat.counters)
    endpoint.on("pull", lambda request: request.reply({"version": 7}, [parameters]))
    endpoint.publish(seat.meeting)                              where the others find it
    peer = endpoint.find("server 0", seat.meeting, deadline_seconds=30)
    answer = peer.call("pull", kind="control", step=3, deadline_seconds=30, into=[mine])

One asyncio loop in a daemon thread for each endpoint; its face is synchronous. Handlers run in a
few threads of their own, the requests of one sender in their order; those that never wait may run
in the endpoint's own thread, `at_once`. Each request is done once at a
living receiver however often its connection breaks; past its deadline, or when its receiver is
lost, it raises MemberLost.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable

from windlass.train.comm.answering import Door, Handler, Place, Request, Sender
from windlass.train.comm.connection import Connection
from windlass.train.comm.lending import Lender
from windlass.train.comm.meeting import Meeting, Roster
from windlass.train.comm.peer import Answer, Peer
from windlass.train.counters import Counters

__all__ = ["Answer", "Endpoint", "Handler", "Peer", "Place", "Request"]

HANDLER_THREADS = 4


class Endpoint:
    """Listens when made. Safe to call from any thread."""

    def __init__(
        self,
        name: str,
        secret: bytes,
        *,
        host: str = "127.0.0.1",
        counters: Counters,
        threads: int = HANDLER_THREADS,
    ) -> None:
        self.name = name
        self.secret = secret
        self.counters = counters
        self.incarnation = secrets.token_hex(8)
        self.lender = Lender()
        self.handlers: dict[str, Handler] = {}
        self.at_once: set[str] = set()
        self.places: dict[str, Place] = {}
        self.doors: set[Door] = set()
        self._senders: dict[str, Sender] = {}
        self._peers: dict[str, Peer] = {}
        self._roster = Roster()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=256)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.loop = asyncio.new_event_loop()
        self._ready: queue.SimpleQueue[Sender | None] = queue.SimpleQueue()
        self._handling = [
            threading.Thread(target=self._handle, name=f"{name} handler {n}", daemon=True)
            for n in range(threads)
        ]
        self._thread = threading.Thread(target=self._run, name=f"{name} endpoint", daemon=True)
        self._thread.start()
        for each in self._handling:
            each.start()

    def on(
        self,
        operation: str,
        handler: Handler,
        *,
        place: Place | None = None,
        at_once: bool = False,
    ) -> None:
        """What an operation does. An exception that a handler raises refuses the request.
        `place` gives the memory into which the request's tensors are received. `at_once`: in the
        endpoint's thread, which it must not hold up, before requests that wait for a handler."""
        if place is not None:
            self.places[operation] = place
        if at_once:
            self.at_once.add(operation)
        self.handlers[operation] = handler

    def peer(self, name: str, address: tuple[str, int]) -> Peer:
        """Another member's endpoint: connected at first use and again after a break. The same
        object for the same address, until it is cut."""
        with self._lock:
            found = self._peers.get(name)
            if found is None or found.address != address or found.is_cut:
                if found is not None:
                    found.cut("it was started again")
                found = self._peers[name] = Peer(self, name, address)
            gone = self._gone(name)
        if gone is not None:
            found.cut(gone)
        return found

    def _gone(self, name: str) -> str | None:
        lost = self._roster.lost.get(name)
        return lost if lost is not None else "it left" if name in self._roster.left else None

    def publish(self, meeting: Meeting, key: str = "address") -> None:
        """Where this endpoint listens, for `find`; and from now on, who is lost is cut."""
        meeting.put(f"{key}/{self.name}", json.dumps([*self.address, self.incarnation]).encode())
        meeting.on_change(self._take_roster)

    def find(
        self,
        name: str,
        meeting: Meeting,
        *,
        deadline_seconds: float,
        key: str = "address",
        step: int | None = None,
    ) -> Peer:
        """The peer of that name, when it has published. Raises MemberLost."""

        def look(seconds: float = 1.0) -> tuple[str, int]:
            value = meeting.get(
                f"{key}/{name}", owner=name, operation="meeting", step=step,
                deadline_seconds=seconds,
            )  # fmt: skip
            host, port, _ = json.loads(value)
            return host, port

        found = self.peer(name, look(deadline_seconds))
        found.lookup = look
        return found

    def close(self) -> None:
        """Never waits for a peer. What waits for one raises."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            peers = list(self._peers.values())
        for peer in peers:
            peer.cut("this member's endpoint is closed")
        self.loop.call_soon_threadsafe(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join(10)
        for _ in self._handling:
            self._ready.put(None)
        for each in self._handling:
            if each is not threading.current_thread():
                each.join(5)

    # -- for peers and requests -------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_here(self) -> bool:
        """Whether this is the endpoint's thread."""
        return threading.get_ident() == self._thread.ident

    def next_number(self) -> int:
        """From any thread."""
        return next(self._numbers)

    def post(self, what: Callable[[], None]) -> bool:
        """Have it done in the endpoint's thread. False when there is none any more."""
        try:
            (self.loop.call_soon if self.is_here else self.loop.call_soon_threadsafe)(what)
        except RuntimeError:
            return False
        return True

    def sender(self, name: str, incarnation: str) -> Sender:
        found = self._senders.get(name)
        if found is None or found.incarnation != incarnation:
            if found is not None and found.connection is not None:
                found.connection.close()
            found = self._senders[name] = Sender(name, incarnation)
        return found

    def hand_over(self, sender: Sender, handler: Handler, request: Request) -> None:
        with sender.lock:
            sender.queue.append((handler, request))
            if sender.busy:
                return
            sender.busy = True
        self._ready.put(sender)

    def handle(self, handler: Handler, request: Request) -> None:
        try:
            handler(request)
        except Exception as err:
            if not request.is_answered:
                request.refuse(err)

    # -- threads ----------------------------------------------------------------------------

    def _handle(self) -> None:
        while (sender := self._ready.get()) is not None:
            handler, request = sender.queue.popleft()
            self.handle(handler, request)
            del handler, request  # its tensors are not this thread's to keep
            with sender.lock:
                sender.busy = bool(sender.queue)
                if not sender.busy:
                    continue
            self._ready.put(sender)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.add_reader(self._listener.fileno(), self._accept)
        try:
            self.loop.run_forever()
            for peer in list(self._peers.values()):  # also one that was made meanwhile
                peer.end("this member's endpoint is closed")
            self._cancel_all()
            # What was asked for meanwhile is told that it is too late.
            self.loop.run_until_complete(asyncio.sleep(0))
            self._cancel_all()
        finally:
            self.loop.close()

    def _cancel_all(self) -> None:
        left = asyncio.all_tasks(self.loop)
        for each in left:
            each.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        door = Door(self, Connection(self.loop, connection, self.counters))
        self.doors.add(door)
        door.open()

    def _end(self) -> None:
        self.loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for sender in self._senders.values():
            sender.tell()  # or whoever waits for the word would wait out its deadline
        for door in self.doors:
            door.close()
        self.doors.clear()
        self.loop.stop()

    def _take_roster(self, roster: Roster) -> None:
        with self._lock:
            self._roster = roster
            gone = [
                (peer, why)
                for peer in self._peers.values()
                if not (self._closed or peer.is_cut) and (why := self._gone(peer.name)) is not None
            ]
        for peer, why in gone:
            peer.cut(why)
