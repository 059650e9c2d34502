"""The server as the worker sees it: calls that are repeated for ever, and the word `fenced`.

Each thread has its own `Server` (its own connection); they share what they learn of the address.
"""

from __future__ import annotations

import json
import os
import threading
import time

from windlass.worker.http import Connection, NotTaken, Unreachable
from windlass.worker.launch import Launch, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional

FIRST_BACKOFF = 0.2
LAST_BACKOFF = 5.0


class Fenced(Exception):
    """This attempt is over, or older than the job's fence: nothing it does counts any more."""


class Gone(Exception):
    """The caller's time was up, or it was told to stop, before the server answered."""


class Server:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._urls: List[str] = list(launch.urls)
        self._connection: Optional[Connection] = None
        self._stopped = threading.Event()

    def call(
        self,
        method: str,
        path: str,
        body: Optional[Dict[str, Any]] = None,
        deadline: Optional[float] = None,
        timeout: float = 15.0,
        sink: Optional[Callable[[bytes], object]] = None,
        restart: Optional[Callable[[], object]] = None,
        data: Optional[bytes] = None,
    ) -> Any:
        """The answer's JSON; `data` is a body that is no JSON. Repeats over network errors and 5xx
        until `deadline` (monotonic) or `stop`; then raises Gone. Raises Fenced (401, 409),
        Refused (any other 4xx), and OSError when `sink` fails: a full disk is not the server's."""
        kind = "application/json" if data is None else "application/octet-stream"
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
        backoff = FIRST_BACKOFF
        while not self._stopped.is_set():
            if restart is not None:
                restart()
            try:
                return self._once(method, path, data, timeout, sink, kind)
            except NotTaken as err:
                raise err.trouble from err
            except Unreachable as err:
                wait = backoff * (0.75 + os.urandom(1)[0] / 512)
                backoff = min(backoff * 2, LAST_BACKOFF)
                if deadline is not None and time.monotonic() + wait >= deadline:
                    raise Gone(str(err)) from err
                self._stopped.wait(wait)
        raise Gone("told to stop")

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """From any thread: the call under way, and every later one, ends with Gone."""
        self._stopped.set()
        connection = self._connection
        if connection is not None:
            connection.close()

    def _once(
        self,
        method: str,
        path: str,
        data: Optional[bytes],
        timeout: float,
        sink: Optional[Callable[[bytes], object]],
        kind: str,
    ) -> Any:
        trouble = Unreachable("no address of a server is known")
        for url in _known_then(self._urls, self._from_file):
            if self._connection is None or self._connection.url != url:
                if self._connection is not None:
                    self._connection.close()
                self._connection = Connection(url, self._launch.token)
            try:
                status, answer = self._connection.request(method, path, data, timeout, sink, kind)
            except Unreachable as err:
                trouble = err
                continue
            if status >= 500 or status == 429:
                trouble = Unreachable("%s answered %d" % (url, status))
                continue
            if url in self._urls:
                self._urls.remove(url)
            self._urls.insert(0, url)
            return _understood(status, answer)
        raise trouble

    def _from_file(self) -> Optional[str]:
        if not self._launch.server_file:
            return None
        try:
            with open(self._launch.server_file, "rb") as file:
                url = json.loads(file.read()).get("url")
        except (OSError, ValueError, AttributeError):
            return None
        return url if isinstance(url, str) else None


def _known_then(known: List[str], more: Callable[[], Optional[str]]) -> Iterator[str]:
    """The known addresses, then the one in the server's own file: a restarted server may have
    another port."""
    tried = list(known)
    for url in tried:
        yield url
    last = more()
    if last and last not in tried:
        yield last


def _understood(status: int, answer: bytes) -> Any:
    if 200 <= status < 300:
        try:
            return json.loads(answer) if answer else {}
        except ValueError as err:
            raise Refused("the server's answer is not JSON") from err
    words = answer[:2000].decode("utf-8", "replace")
    if status in (401, 409):
        raise Fenced("the server answered %d: %s" % (status, words))
    raise Refused("the server answered %d: %s" % (status, words))
