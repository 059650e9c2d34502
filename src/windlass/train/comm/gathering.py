"""The place where members meet: who is here, who is lost, and small values by name.

One thread: in the process that started the members; in worker 0's where a platform started them;
in the platform's own where the others must go on when worker 0 is lost (see
`docs/decisions/gathering.md`). A member is lost when its connection ends without a farewell, or
when it says nothing for `silent_seconds`: a process that merely stopped is found in seconds, not
at the end of a timeout.

    member                      gathering
      | <------- ask {question}    |
      | hello {name, proof} -----> |    its secret is proven, never sent
      | <-------- roster {epoch}   |    to all, at each change
      | beat, put, get, tell ----> |
      | <-------------- value {id} |    when somebody has put it
      | say -> said … heard        |    to all; the speaker is answered when all have heard
      | bye ---------------------> |

A hello names a `room`: each training of one gang has its own, in which nobody of another is seen.

The platform's worker carries this module and `wire` in itself, for any Python from 3.8 on.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.train.comm import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    Told = Callable[[str, dict[str, Any], bytes], None]

MOST_GUESTS = 8192
MOST_STRANGERS = 256
"""Who have not proven the secret yet."""
_LONGEST_TURN_SECONDS = 1.0
_SLOW_READER_BYTES = 1 << 24
"""So much more than the largest value may wait for a guest that does not read."""


@dataclass
class _Guest:
    connection: socket.socket
    question: str
    unpacker: wire.Unpacker = field(default_factory=lambda: wire.Unpacker(largest=0))
    name: str = ""
    room: str = ""
    heard: float = field(default_factory=time.monotonic)
    out: bytearray = field(default_factory=bytearray)


class _Room:
    """Those who train together, and what they have said."""

    def __init__(self) -> None:
        self.present: dict[str, _Guest] = {}
        self.lost: dict[str, str] = {}
        self.left: set[str] = set()
        self.fell: list[str] = []
        """Each loss so far, in order; who came back stays in it."""
        self.values: dict[str, bytes] = {}
        self.waiting: dict[str, list[tuple[_Guest, int]]] = {}
        self.hearing: dict[int, tuple[_Guest, int, set[str]]] = {}
        self.epoch = 0


class Gathering:
    def __init__(
        self,
        secret: bytes,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: socket.socket | None = None,
        silent_seconds: float = 10.0,
        largest: int = wire.LARGEST_PAYLOAD,
        most: int | None = None,
        told: Told | None = None,
    ) -> None:
        """`told` hears what members `tell`, in the gathering's thread. No value is larger than
        `largest`, all together hold no more than `most` bytes: who puts more is not heard."""
        self._secret = secret
        self._silent = silent_seconds
        self._largest = largest
        self._most = most
        self._told = told
        self._listener = listener or socket.create_server((host, port), backlog=256)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_here, self._wake_there = socket.socketpair()
        self._selector.register(self._wake_here, selectors.EVENT_READ)
        self._guests: dict[socket.socket, _Guest] = {}
        self._rooms: dict[str, _Room] = {}
        self._bytes = 0
        self._said = 0
        self._looked = time.monotonic()
        self._open = True
        self._emptied = threading.Event()
        self._emptied.set()
        self._thread = threading.Thread(target=self._run, name="gathering", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> frozenset[str]:
        """Who went without a farewell, or has said nothing for long; in the room without a name,
        in which whoever started the members knows them."""
        room = self._rooms.get("")
        return frozenset(list(room.lost)) if room is not None else frozenset()

    def close(self, patience_seconds: float = 0.0) -> None:
        """Wait so long for those who are still here to leave; then end."""
        self._emptied.wait(patience_seconds)
        self._open = False
        self._wake_there.send(b"x")
        self._thread.join(5)
        for each in (self._wake_here, self._wake_there, self._listener, *self._guests):
            each.close()
        self._selector.close()

    # -- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while self._open:
            # Where nobody is there is nobody to miss.
            patience = min(0.5, self._silent / 4) if self._guests else None
            found = self._selector.select(patience)
            if patience is None:
                self._looked = time.monotonic()
            for key, mask in found:
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Guest) and key.data.connection in self._guests:
                    self._serve(key.data, mask)
            self._look_for_silent()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return  # it thought better of it
        except OSError:
            time.sleep(0.02)  # out of descriptors, say: it would be tried again at once
            return
        strangers = sum(not each.name for each in self._guests.values())
        if len(self._guests) >= MOST_GUESTS or strangers >= MOST_STRANGERS:
            connection.close()  # it tries again
            return
        connection.setblocking(False)
        guest = _Guest(wire.without_delay(connection), wire.challenge())
        self._guests[connection] = guest
        self._selector.register(connection, selectors.EVENT_READ, guest)
        self._send(guest, {"op": "ask", "question": guest.question})

    def _serve(self, guest: _Guest, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(guest)
            if mask & selectors.EVENT_READ:
                data = guest.connection.recv(1 << 18)
                if not data:
                    self._drop(guest, "its connection ended")
                    return
                guest.heard = time.monotonic()
                for header, payload in guest.unpacker.feed(data):
                    self._take(guest, header, payload)
        except BlockingIOError:
            return
        except Exception as err:  # whatever it sent, the others do not suffer for it
            self._drop(guest, f"its connection broke: {err}")

    def _take(self, guest: _Guest, header: dict[str, Any], payload: bytes) -> None:
        op = header["op"]
        if not guest.name:
            if op != "hello" or not wire.proven(self._secret, guest.question, header.get("proof")):
                raise ValueError("no proof of the group's secret")
            guest.unpacker.largest = self._largest
            self._greet(guest, str(header["name"]), str(header.get("room", "")))
        elif op == "put":
            self._put(header["key"], payload, guest.room, once=bool(header.get("once")))
        elif op == "get":
            room, key = self._rooms[guest.room], header["key"]
            if key in room.values:
                self._send(guest, {"op": "value", "id": header["id"]}, room.values[key])
            elif header.get("now"):
                self._send(guest, {"op": "value", "id": header["id"], "none": True})
            else:
                room.waiting.setdefault(key, []).append((guest, header["id"]))
        elif op == "say":
            self._say(guest, header)
        elif op == "heard":
            self._heard(self._rooms[guest.room], header["say"], guest.name)
        elif op == "tell" and self._told is not None:
            self._told(guest.name, header["what"], payload)
        elif op == "bye":
            room = self._rooms[guest.room]
            room.present.pop(guest.name, None)
            room.left.add(guest.name)
            guest.name = ""
            self._tell_roster(room)

    def _say(self, guest: _Guest, header: dict[str, Any]) -> None:
        """To everybody here; the speaker is answered when all have it, or are gone."""
        room = self._rooms[guest.room]
        self._said += 1
        room.hearing[self._said] = (guest, header["id"], set(room.present))
        for each in list(room.present.values()):
            self._send(each, {"op": "said", "say": self._said, "what": header["what"]})

    def _heard(self, room: _Room, number: int, name: str) -> None:
        speaker, asked, waiting = room.hearing.get(number, (None, 0, set()))
        waiting.discard(name)
        if speaker is not None and not waiting:
            del room.hearing[number]
            if speaker.connection in self._guests:
                self._send(speaker, {"op": "value", "id": asked})

    def _greet(self, guest: _Guest, name: str, inside: str) -> None:
        room = self._rooms.setdefault(inside, _Room())
        before = room.present.get(name)
        if before is not None:  # it was started again, and its end has not been heard yet
            room.fell.append(name)
            before.name = ""
            self._drop(before, "")
        guest.name, guest.room = name, inside
        room.present[name] = guest
        room.lost.pop(name, None)
        room.left.discard(name)
        self._tell_roster(room)

    def _put(self, key: str, value: bytes, inside: str = "", once: bool = False) -> None:
        """With `once`, what was put first stays: all see the same, whoever thought to decide."""
        room = self._rooms.setdefault(inside, _Room())
        if once and key in room.values:
            return
        more = len(value) - len(room.values.get(key, b""))
        if self._most is not None and self._bytes + more > self._most:
            raise ValueError(f"all values together may have {self._most} bytes")
        self._bytes += more
        room.values[key] = value
        for guest, number in room.waiting.pop(key, ()):
            if guest.connection in self._guests:
                self._send(guest, {"op": "value", "id": number}, value)

    def _tell_roster(self, room: _Room) -> None:
        room.epoch += 1
        someone = any(each.present for each in self._rooms.values())
        (self._emptied.clear if someone else self._emptied.set)()
        told = {
            "op": "roster",
            "epoch": room.epoch,
            "present": sorted(room.present),
            "lost": room.lost,
            "left": sorted(room.left),
            "fell": room.fell,
        }
        for guest in list(room.present.values()):
            self._send(guest, told)
        for number, (_, _, waiting) in list(room.hearing.items()):
            for name in waiting - set(room.present):
                self._heard(room, number, name)
        if not room.present and room.left and not room.lost:  # all said farewell
            self._bytes -= sum(map(len, room.values.values()))
            room.values.clear()
            room.waiting.clear()

    def _look_for_silent(self) -> None:
        now = time.monotonic()
        deaf, self._looked = now - self._looked - _LONGEST_TURN_SECONDS, now
        if deaf > 0:
            # This process itself was away (the machine slept, or had no time for it): what it
            # has not heard meanwhile says nothing about the others.
            for guest in self._guests.values():
                guest.heard = min(now, guest.heard + deaf)
        oldest = now - self._silent
        for guest in [each for each in self._guests.values() if each.heard < oldest]:
            self._drop(guest, f"no sign of life for {self._silent:g} s")

    def _drop(self, guest: _Guest, why: str) -> None:
        if self._guests.pop(guest.connection, None) is None:
            return
        self._selector.unregister(guest.connection)
        guest.connection.close()
        room = self._rooms.get(guest.room)
        if guest.name and room is not None and room.present.get(guest.name) is guest:
            del room.present[guest.name]
            room.lost[guest.name] = why
            room.fell.append(guest.name)
            self._tell_roster(room)

    def _send(self, guest: _Guest, header: dict[str, Any], payload: bytes = b"") -> None:
        guest.out += wire.pack(header, payload)
        try:
            self._flush(guest)
            if len(guest.out) > self._largest + _SLOW_READER_BYTES:
                raise OSError("it does not read")
        except OSError as err:
            self._drop(guest, f"its connection broke: {err}")

    def _flush(self, guest: _Guest) -> None:
        while guest.out:
            try:
                sent = guest.connection.send(guest.out)
            except BlockingIOError:
                break
            del guest.out[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.out else 0)
        if guest.connection in self._guests:
            self._selector.modify(guest.connection, wanted, guest)
