"""Connections: who is slow on purpose, or many, gets a bounded share and then none.

uvicorn waits for ever for a head that does not come, for a reader that does not read, and takes
as many connections as the system has files. So here each connection

    must send a whole head within `HEAD_SECONDS`, and of no more than `HEAD_BYTES`;
    that is sent more than it reads is dropped when it does not catch up in `STALL_SECONDS`
        (a watcher comes back with its cursor and misses nothing);
    is one of at most `most`, and of at most three quarters of those from one address;
    is not taken where its descriptor is of those that the server keeps for its own work: what
        it launches, its database, its logs go on while strangers hold all they can.

What comes between the pieces of a body (its framing, trailers that nobody reads) counts as a head
does. How fast a body must come is `limits.py`.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windlass.server.settings import Settings

log = logging.getLogger("windlass.server.http")

HEAD_SECONDS = 20.0
HEAD_BYTES = 64 * 1024
STALL_SECONDS = 30.0
LINGER_SECONDS = 5.0
IDLE_SECONDS = 75
OWN_FILES = 200
_MOST_FILES = 65_536


@dataclass(frozen=True, slots=True)
class Room:
    """What the system's limit on open files leaves for connections."""

    most: int
    """Connections: each may hold a file that it sends besides its socket."""
    files: int
    """Descriptors from this one on are the server's own."""

    @staticmethod
    def within(limit: int) -> Room:
        files = limit - min(OWN_FILES, limit // 2)
        return Room(most=max(32, files // 2), files=files)


def allow_many() -> Room:
    """Take as many files as the system lets us; what room that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return Room.within(_MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES))


def serving(
    app: Any, settings: Settings, room: Room, tls: ssl.SSLContext | None = None
) -> uvicorn.Config:
    """How an application is served on one socket."""

    class Limited(Connection):
        crowd = Crowd(room.most, settings.proxies)
        files = room.files

    secure = [("strict-transport-security", "max-age=31536000")] if tls is not None else []
    config = uvicorn.Config(
        app, log_config=None, access_log=False, http=Limited, loop="none", ws="none",
        lifespan="off", timeout_graceful_shutdown=1, server_header=False, date_header=False,
        proxy_headers=bool(settings.proxies), forwarded_allow_ips=list(settings.proxies),
        timeout_keep_alive=IDLE_SECONDS, backlog=2048, headers=secure,
    )  # fmt: skip
    config.load()
    config.ssl = tls
    told = logging.getLogger("uvicorn.error")
    if not any(isinstance(each, Seldom) for each in told.filters):
        told.addFilter(Seldom())
    return config


class Seldom(logging.Filter):
    """Lets a warning through a few times a minute: what strangers cause must not fill the disk."""

    def __init__(self, most: int = 10) -> None:
        super().__init__()
        self._most = most
        self._minute = 0
        self._count: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING:
            return True
        minute = int(record.created // 60)
        if minute != self._minute:
            self._minute = minute
            self._count.clear()
        self._count[str(record.msg)] += 1
        return self._count[str(record.msg)] <= self._most


class Crowd:
    """Who is connected, by address."""

    def __init__(self, most: int, proxies: Iterable[str] = ()) -> None:
        self.most = most
        self.share = most - most // 4
        self.proxies = frozenset(proxies)
        self.count = 0
        self._of: Counter[str] = Counter()
        self._refused = 0
        self._told = 0.0

    def enter(self, address: str) -> bool:
        """Whether there is room; one who was let in must `leave`."""
        theirs = self._of[address] + 1
        if self.count >= self.most or (theirs > self.share and address not in self.proxies):
            self.turn_away()
            return False
        self.count += 1
        self._of[address] = theirs
        return True

    def leave(self, address: str) -> None:
        self.count -= 1
        self._of[address] -= 1
        if self._of[address] <= 0:
            del self._of[address]

    def turn_away(self) -> None:
        """Count one who is refused; say so now and then."""
        self._refused += 1
        now = time.monotonic()
        if now - self._told > 10:
            self._told = now
            log.warning("%d connections refused: %d are open", self._refused, self.count)


class Connection(HttpToolsProtocol):
    crowd: Crowd
    files: int
    head_seconds = HEAD_SECONDS
    stall_seconds = STALL_SECONDS

    _address: str | None = None
    _in_head = False
    _unparsed = 0
    """Bytes since the last piece of a body, or the last whole head."""
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        # The system gives the lowest free number: with this one, all below it are taken.
        if self._descriptor() >= self.files:
            self.crowd.turn_away()
            self._refuse(b"503 Service Unavailable")
            return
        if not self.crowd.enter(address):
            self._refuse(b"503 Service Unavailable")
            return
        self._address = address
        self._head_timer = self.loop.call_later(self.head_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.crowd.leave(self._address)
            self._address = None
        self._cancel_head()
        self._cancel_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        waited = self._head_timer is not None
        self._unparsed += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unparsed > HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large")
            return
        idle = self.cycle is None or self.cycle.response_complete
        if not self._in_head and not (idle and self.timeout_keep_alive_task is None):
            self._cancel_head()
        elif not waited:
            self._head_timer = self.loop.call_later(self.head_seconds, self._too_slow)

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unparsed = 0
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what follows a body in pieces is read by nobody
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stall()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._linger()

    def _descriptor(self) -> int:
        found = self.transport.get_extra_info("socket")
        return -1 if found is None else int(found.fileno())

    def _too_slow(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer is under way: nothing else can be said
        else:
            self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        self._cancel_head()
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()
        self._linger()

    def _linger(self) -> None:
        """Closing waits for what is left to be read, which may be for ever."""
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _cancel_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
