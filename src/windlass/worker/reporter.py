"""The worker's reports: one thread sends them in order, beats, ships spools, says goodbye.

Nothing here may hold up the ranks: a server that is away costs nothing but delay. The first word
`fenced` from the server ends the thread and is passed on.
"""

from __future__ import annotations

import threading
import time

from windlass.worker.launch import Launch, Refused
from windlass.worker.server import Fenced, Gone, Server
from windlass.worker.spool import Spools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from windlass.worker.masking import Masker
    from windlass.worker.pickup.usage import Kept

SPOOL_SECONDS = 1.0
GOODBYE_SECONDS = 5.0


class Reporter:
    """`ranks` gives what a beat says of them; `on_orders` and `on_fenced` are called from here."""

    def __init__(
        self,
        launch: Launch,
        server: Server,
        ranks: Callable[[], List[Dict[str, Any]]],
        on_step: Callable[[int, int], None],
        on_orders: Callable[[List[Dict[str, Any]]], None],
        on_fenced: Callable[[str], None],
    ) -> None:
        self._launch = launch
        self._server = server
        self._ranks = ranks
        self._on_step = on_step
        self._on_orders = on_orders
        self._on_fenced = on_fenced
        self._spools = Spools(launch.path("run"))
        self._seq = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._outbox: List[Tuple[str, Dict[str, Any]]] = []
        self._notes: List[Dict[str, Any]] = []
        self._record: Optional[Dict[str, Any]] = None
        self._until = self._ship_until = 0.0
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)
        self.usage: Optional[Kept] = None
        """Minutes of what the ranks used, which go with the beats."""
        self.masker: Optional[Masker] = None
        """What hides the attempt's secrets in all that is reported: stacks, spools, records."""
        self.started = False
        self.told_of_end = False
        """The server has the record, or wants none of it."""
        self.last_good = time.monotonic()
        """When the last report that the server took was sent; the lease counts from here."""

    def call(self, path: str, body: Dict[str, Any], deadline: Optional[float] = None) -> Any:
        """One report, now, from the caller's thread: for `register`, before `start`."""
        sent = time.monotonic()
        answer = self._server.call("POST", path, self._stamped(body), deadline=deadline)
        self.last_good = sent
        return answer

    def start(self) -> None:
        if not self.started:
            self.started = True
            self._thread.start()

    def post(self, path: str, body: Dict[str, Any]) -> None:
        """To be sent soon, in order."""
        with self._lock:
            self._outbox.append((path, body))
        self._wake.set()

    def note(self, note: Dict[str, Any]) -> None:
        """To go with a beat, at once."""
        with self._lock:
            self._notes.append(note)
        self._wake.set()

    def goodbye(self, record: Dict[str, Any], seconds: float = GOODBYE_SECONDS) -> None:
        """Send what is left and `ended`; for a few seconds only: the record is on disk, where
        the server reads it too, or was sent."""
        self._until = time.monotonic() + seconds
        self._ship_until = time.monotonic() + seconds / 2
        self._record = record
        self._wake.set()
        try:
            self.start()
        except RuntimeError:  # there is no process left for a thread
            self._run()
            return
        self._thread.join(seconds)

    def tell_of_end(self, record: Dict[str, Any], server: Server) -> None:
        """Once more after `goodbye`, from the caller's thread: the record alone, since it is
        nowhere else. The server finds on disk what else was left."""
        body = self._stamped({"record": {**record, "left": True}})
        try:
            server.call(
                "POST", "/api/v1/worker/ended", body, deadline=time.monotonic() + GOODBYE_SECONDS
            )
            self.told_of_end = True
        except Fenced:
            self.told_of_end = True  # nobody wants it any more
        except (Refused, Gone):
            pass

    def _run(self) -> None:
        next_beat = time.monotonic() + self._launch.beat_seconds
        try:
            while self._record is None:
                self._send_outbox()
                self._ship(until=next_beat)
                if self._notes or time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + self._launch.beat_seconds
                    self._beat()
                if self._record is None:
                    wait = min(SPOOL_SECONDS, max(0.0, next_beat - time.monotonic()))
                    self._wake.wait(wait)
                self._wake.clear()
            self._send_outbox()
            self._ship(until=self._ship_until)
            if self._notes or (self.usage is not None and self.usage.waiting):
                self._beat()
            record = {**self._record, "left": True} if self._spools.left() else self._record
            self.told_of_end = self._send("/api/v1/worker/ended", {"record": record}) is not None
        except Fenced as err:
            self.told_of_end = self._record is not None
            self._on_fenced(str(err))
        except Gone:
            pass

    def _send_outbox(self) -> None:
        while self._outbox:
            path, body = self._outbox[0]
            if self._send(path, body) is None and "/orders/" in path:
                # Somebody waits for this answer; a flame graph can be too large for the server.
                words = "the server refused the answer; it is in the attempt's debug folder"
                self._send(path, {"ok": False, "result": {"error": words}})
            with self._lock:
                self._outbox.pop(0)

    def _ship(self, until: float) -> None:
        """Spool lines, as many as there are; but a long backlog keeps no beat waiting."""
        for batch in self._spools.batches():
            if batch.step is not None:
                self._on_step(batch.rank, batch.step)
            body = {
                "rank": batch.rank,
                "offset": batch.offset,
                "end": batch.end,
                "lines": batch.lines,
            }
            if batch.lines:
                # What the server refuses it would refuse again: it must not block what follows.
                self._send("/api/v1/worker/spool", body)
            self._spools.taken(batch)
            if time.monotonic() >= until:
                break

    def _beat(self) -> None:
        notes = list(self._notes)
        minutes = self.usage.sending() if self.usage is not None else []
        body = {
            "sent_ms": int(time.time() * 1000),
            "ranks": self._ranks(),
            "usage": {"minutes": minutes} if minutes else {},
            "notes": notes,
        }
        sent = time.monotonic()
        answer = self._send("/api/v1/worker/beat", body)
        with self._lock:
            del self._notes[: len(notes)]
        if self.usage is not None:
            self.usage.taken()
        if isinstance(answer, dict):
            self.last_good = sent
            self._on_orders(answer.get("orders") or [])

    def _send(self, path: str, body: Dict[str, Any]) -> Any:
        """Repeats until the server takes it; what it refuses (a 4xx) is let go: None."""
        stamped = self._stamped(body)
        while True:
            deadline = self._until if self._record is not None else time.monotonic() + 5
            try:
                return self._server.call("POST", path, stamped, deadline=deadline)
            except Refused:
                return None
            except Gone:
                # Come round now and then to see whether the end was called meanwhile.
                late = self._record is not None and time.monotonic() + 0.5 > self._until
                if late or self._server.stopped:
                    raise

    def _stamped(self, body: Dict[str, Any]) -> Dict[str, Any]:
        with self._lock:
            self._seq += 1
            number = self._seq
        if self.masker is not None:
            body = self.masker.value(body)
        return {
            "attempt": self._launch.attempt,
            "seq": number,
            "node": self._launch.node,
            **body,
        }
