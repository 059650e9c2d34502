"""Sends the worker's files as they grow, and its exit record when all else is there.

Two threads, so that a large checkpoint holds up no log line. Nothing here may hold up the ranks:
a server that is away costs nothing but delay, until the end, which waits for it as long as the
lease allows.
"""

from __future__ import annotations

import json
import os
import threading
import time

from windlass.worker.launch import Refused
from windlass.worker.mirror.checkpoints import Outgoing
from windlass.worker.mirror.files import Files, Piece
from windlass.worker.server import Fenced, Gone, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from windlass.worker.launch import Launch

BUSY_SECONDS = 0.1
IDLE_SECONDS = 0.5
CHECKPOINT_SECONDS = 0.5


class Mirror:
    """`on_fenced` is called from its threads."""

    def __init__(self, launch: Launch, on_fenced: Callable[[str], None]) -> None:
        self._launch = launch
        self._on_fenced = on_fenced
        self._files = Files(launch.directory)
        self._server = Server(launch)
        self._outgoing = Outgoing(launch, Server(launch))
        self._ended = threading.Event()
        self._fenced = False
        self._threads: List[threading.Thread] = []

    def start(self) -> None:
        """Before anything else: the server hears of the worker by its `worker.json`."""
        for name, work in (("mirror", self._ship), ("checkpoints", self._save)):
            thread = threading.Thread(
                target=self._until_fenced, args=(work,), name=name, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def deliver(self, record: Dict[str, Any], seconds: float) -> bool:
        """All that is left, then the record. False when the server did not take all of it within
        this time, or not at all."""
        until = time.monotonic() + seconds
        self._ended.set()
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        late = any(thread.is_alive() for thread in self._threads)
        self._server.stop()
        self._outgoing.stop()
        if self._fenced:
            return False
        if late:
            print("the server did not take all files in time", flush=True)
        server = Server(self._launch)
        body = json.dumps(record).encode()
        try:
            _put(self._launch, server, Piece("exit.json", 0, body, False), until)
        except (Fenced, Refused, Gone) as err:
            print("the server did not take the exit record: %s" % err, flush=True)
            return False
        return not late

    def _until_fenced(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Fenced as err:
            self._fenced = True
            self._on_fenced(str(err))
        except Gone:
            pass
        except Refused as err:
            print("the server has refused what was sent: %s" % err, flush=True)

    def _ship(self) -> None:
        with open(self._launch.path("worker.json"), "rb") as file:
            _put(self._launch, self._server, Piece("worker.json", 0, file.read(), False))
        while True:
            ended = self._ended.is_set()
            busy = False
            for piece in self._files.pieces(ended):
                busy = True
                try:
                    size = _put(self._launch, self._server, piece)
                except Refused as err:
                    self._files.refused(piece.path)
                    print("the server has refused %s: %s" % (piece.path, err), flush=True)
                    continue
                self._files.taken(piece, size)
            for path in self._files.gone():
                try:
                    self._server.call("DELETE", _address(self._launch, path))
                except Refused:
                    pass
            if ended and not busy:
                return
            if not ended:
                self._ended.wait(BUSY_SECONDS if busy else IDLE_SECONDS)

    def _save(self) -> None:
        while True:
            ended = self._ended.is_set()
            sent = self._outgoing.send_one()
            if ended and not sent:
                return
            if not sent:
                self._ended.wait(CHECKPOINT_SECONDS)


def _put(launch: Launch, server: Server, piece: Piece, deadline: Optional[float] = None) -> int:
    path = "%s&offset=%d%s" % (
        _address(launch, piece.path), piece.offset, "&cut=true" if piece.cut else "",
    )  # fmt: skip
    answer = server.call("PUT", path, data=piece.data, deadline=deadline, timeout=60)
    return int(answer["bytes"])


def _address(launch: Launch, path: str) -> str:
    from urllib.parse import quote

    name = quote(os.fsencode(path), safe="/")
    return "/api/v1/worker/mirror/%s?node=%s" % (name, launch.node)
