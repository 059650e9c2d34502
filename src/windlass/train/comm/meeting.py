"""A member's side of the gathering: say that one lives, learn who does, share small values."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from windlass.core.errors import MemberLost
from windlass.train.comm import wire
from windlass.train.failures import lost


@dataclass(frozen=True)
class Roster:
    """Names are such as `worker 0`, `server 1`. `epoch` grows with each change."""

    epoch: int = 0
    present: frozenset[str] = frozenset()
    lost: dict[str, str] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    fell: tuple[str, ...] = ()
    """Each loss so far, in order, also of members that came back."""


Changed = Callable[[Roster], None]


class Meeting:
    """Connected when made. Threads: one that reads and beats. Safe to call from any thread."""

    def __init__(
        self,
        address: tuple[str, int],
        name: str,
        secret: bytes,
        *,
        room: str = "",
        beat_seconds: float = 1.0,
        connect_seconds: float = 30.0,
    ) -> None:
        """`room`: where one gathering serves several trainings, whom this member is with."""
        self.name = name
        self.room = room
        self.address = address
        self.secret = secret
        self.scope = ""
        """What keys of values begin with: those of one training are not those of the next."""
        self._beat_seconds = beat_seconds
        self._roster = Roster()
        self._changed = threading.Condition()
        self._listeners: list[Changed] = []
        self._hearers: list[Callable[[dict[str, Any]], None]] = []
        self._asked: dict[int, Future[bytes | None]] = {}
        self._number = 0
        self._sending = threading.Lock()
        self._open = True
        self._connection = self._connect(secret, connect_seconds)
        self._host: str = self._connection.getsockname()[0]
        self._thread = threading.Thread(target=self._listen, name="meeting", daemon=True)
        self._beating = threading.Thread(target=self._beat, name="beat", daemon=True)
        self._stopped = threading.Event()
        self._thread.start()
        self._beating.start()

    @property
    def host(self) -> str:
        """This machine's address as the others can reach it: the one we came from."""
        return self._host

    # -- who is here ------------------------------------------------------------------------

    @property
    def roster(self) -> Roster:
        return self._roster

    @property
    def is_out(self) -> bool:
        """Whether the others have given this member up, or it has lost sight of them all."""
        return not self._open or (self._roster.epoch > 0 and self.name not in self._roster.present)

    def on_change(self, listener: Changed) -> None:
        """Called in the meeting's thread with each new roster, and now with the one there is."""
        with self._changed:
            self._listeners.append(listener)
            roster = self._roster
        listener(roster)
        while roster is not (roster := self._roster):  # a newer one was told meanwhile, or is now
            listener(roster)

    def wait_for(
        self, names: Sequence[str], *, operation: str, step: int | None, deadline_seconds: float
    ) -> None:
        """Until all are present. Raises MemberLost with the names of those that are not."""
        ends = time.monotonic() + deadline_seconds
        with self._changed:
            while True:
                missing = [name for name in names if name not in self._roster.present]
                if not missing:
                    return
                left = ends - time.monotonic()
                if left <= 0 or not self._open:
                    raise lost(missing, operation, step, waited=deadline_seconds)
                self._changed.wait(left)

    def wait_for_change(self, known: Roster, seconds: float) -> None:
        """Until the roster is another than the known one, or so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._roster is not known or not self._open, seconds)

    def wait_for_number(
        self, count: int, *, operation: str, deadline_seconds: float, lost_too: bool = False
    ) -> frozenset[str]:
        """Until so many members have come; their names. `lost_too`: those that came and were
        lost are counted, by one that comes back."""
        ends = time.monotonic() + deadline_seconds
        with self._changed:
            while True:
                here = self._roster.present | self._roster.left
                if lost_too and self.name in here:
                    here |= set(self._roster.lost)
                if len(here) >= count:
                    return here
                left = ends - time.monotonic()
                if left <= 0 or not self._open:
                    why = f"{len(here)} of {count} came: {', '.join(sorted(here))}"
                    raise lost([f"{count - len(here)} members"], operation, None, why=why)
                self._changed.wait(left)

    # -- small values -----------------------------------------------------------------------

    def put(self, key: str, value: bytes, *, once: bool = False) -> None:
        """`once`: unless somebody has put something there; what is there first stays."""
        told = {"op": "put", "key": self.scope + key}
        self._send({**told, "once": True} if once else told, value)

    def get(
        self,
        key: str,
        *,
        owner: str = "",
        needs: Sequence[str] = (),
        operation: str,
        step: int | None = None,
        deadline_seconds: float,
    ) -> bytes:
        """What somebody puts under this key. Raises MemberLost past the deadline, or as soon as
        `owner`, who would put it, is lost, or one without whom the owner would give up too."""
        found: bytes = self._ask(
            {"op": "get", "key": self.scope + key}, owner, operation, step, deadline_seconds,
            needs,
        )  # fmt: skip
        return found

    def look(self, key: str, *, operation: str, deadline_seconds: float) -> bytes | None:
        """What is there under this key now; None: nothing. Raises MemberLost."""
        header = {"op": "get", "key": self.scope + key, "now": True}
        found: bytes | None = self._ask(header, "", operation, None, deadline_seconds)
        return found

    def _ask(
        self,
        header: dict[str, Any],
        owner: str,
        operation: str,
        step: int | None,
        deadline_seconds: float,
        needs: Sequence[str] = (),
    ) -> Any:
        with self._changed:
            self._number += 1
            number = self._number
            answer: Future[bytes | None] = Future()
            self._asked[number] = answer
        self._send({**header, "id": number})
        answer.add_done_callback(lambda _: self._wake())
        ends = time.monotonic() + deadline_seconds
        with self._changed:
            while not answer.done():
                left = ends - time.monotonic()
                gone = {n: why for n, why in self._roster.lost.items() if n in (owner, *needs)}
                if gone:
                    why = "; ".join(sorted(set(gone.values())))
                    raise lost(sorted(gone), operation, step, why=why)
                if left <= 0:
                    raise lost([owner] if owner else [], operation, step, waited=deadline_seconds)
                self._changed.wait(left)
        return answer.result()

    def gather(
        self, key: str, value: bytes, names: Sequence[str], *, operation: str,
        step: int | None = None, deadline_seconds: float,
    ) -> dict[str, bytes]:  # fmt: skip
        """Each of `names` calls it with its own value and gets everybody's."""
        self.put(f"{key}/{self.name}", value)
        return {
            name: self.get(
                f"{key}/{name}", owner=name, operation=operation, step=step,
                deadline_seconds=deadline_seconds,
            )
            for name in names
        }  # fmt: skip

    def say(self, what: dict[str, Any], *, operation: str, deadline_seconds: float) -> None:
        """To everybody here, oneself too (`on_said`); returns when all have heard it."""
        self._ask({"op": "say", "what": what}, "", operation, None, deadline_seconds)

    def on_said(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Called in the meeting's thread; what it did counts as heard."""
        with self._changed:
            self._hearers.append(listener)

    def tell(self, what: dict[str, Any], payload: bytes = b"") -> None:
        """Something for whoever holds the gathering: progress, results."""
        self._send({"op": "tell", "what": what}, payload)

    def leave(self) -> None:
        """Farewell: from now on this member is not lost but gone. Never raises."""
        if not self._open:
            return
        self._send_quietly({"op": "bye"})
        self._close("it left")
        if threading.current_thread() is not self._thread:
            self._thread.join(5)
        self._stopped.set()
        self._beating.join(5)

    def fall(self) -> None:
        """Be lost, at once and to all: this member is of no use any more, though it could speak.
        Never raises."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is lost, or has left, already

    # -- threads ----------------------------------------------------------------------------

    def _connect(self, secret: bytes, seconds: float) -> socket.socket:
        ends = time.monotonic() + seconds
        while True:
            connection = None
            try:
                connection = socket.create_connection(self.address, max(0.1, seconds))
                self._greet(connection, secret)
                return wire.without_delay(connection)
            except BaseException as err:
                if connection is not None:
                    connection.close()
                if not isinstance(err, OSError):
                    raise
                if time.monotonic() >= ends:
                    host, port = self.address
                    raise lost(
                        ["the gathering"], "joining", None, why=f"nobody at {host}:{port}: {err}"
                    ) from err
                time.sleep(0.05)  # whoever holds it may still be starting

    def _greet(self, connection: socket.socket, secret: bytes) -> None:
        unpacker = wire.Unpacker()
        found: list[tuple[dict[str, Any], bytes]] = []
        while not found:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the gathering closed the connection")
            found = list(unpacker.feed(data))
        answer = wire.proof(secret, found[0][0]["question"])
        hello = {"op": "hello", "name": self.name, "room": self.room, "proof": answer}
        connection.sendall(wire.pack(hello))
        connection.settimeout(None)

    def _send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        try:
            with self._sending:
                self._connection.sendall(wire.pack(header, payload))
        except OSError as err:
            raise lost(["the gathering"], str(header["op"]), None, why=str(err)) from err

    def _send_quietly(self, header: dict[str, Any]) -> bool:
        try:
            self._send(header)
            return True
        except MemberLost:
            return False

    def _beat(self) -> None:
        while not self._stopped.wait(self._beat_seconds):
            if not self._send_quietly({"op": "beat"}):
                return

    def _listen(self) -> None:
        unpacker = wire.Unpacker()
        why = "the gathering closed the connection"
        while self._open:
            try:
                data = self._connection.recv(1 << 18)
            except OSError as err:
                why, data = str(err), b""
            if not data:
                break
            for header, payload in unpacker.feed(data):
                if header["op"] == "value":
                    with self._changed:
                        answer = self._asked.pop(header["id"], None)
                    if answer is not None:
                        answer.set_result(None if header.get("none") else payload)
                elif header["op"] == "said":
                    for hearer in list(self._hearers):
                        hearer(header["what"])
                    self._send_quietly({"op": "heard", "say": header["say"]})
                elif header["op"] == "roster":
                    self._take_roster(
                        Roster(
                            header["epoch"], frozenset(header["present"]), header["lost"],
                            frozenset(header["left"]), tuple(header.get("fell", ())),
                        )
                    )  # fmt: skip
        self._close(why)

    def _take_roster(self, roster: Roster) -> None:
        with self._changed:
            self._roster = roster
            listeners = list(self._listeners)
            self._changed.notify_all()
        for listener in listeners:
            listener(roster)

    def _close(self, why: str) -> None:
        """Once. To this member everybody else is out of sight then."""
        with self._changed:
            was_open, self._open = self._open, False
            asked, self._asked = self._asked, {}
        for answer in asked.values():
            answer.set_exception(lost(["the gathering"], "waiting", None, why=why))
        if was_open:
            self._stopped.set()
            try:
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._connection.close()
            now = self._roster
            if why != "it left":
                gone = {name: f"out of sight: {why}" for name in now.present if name != self.name}
                self._take_roster(
                    Roster(now.epoch + 1, frozenset(), {**now.lost, **gone}, now.left, now.fell)
                )

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
