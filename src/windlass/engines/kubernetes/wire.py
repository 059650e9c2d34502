"""HTTP/1.1 to one server: connections that are kept, answers whole or line by line.

The standard library has no client for an event loop, and httpx costs a server that never sees a
cluster 100 ms at its start; what is needed here is little.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from weakref import WeakSet

import httptools

_PIECE = 1 << 16
_MOST_IDLE = 16
_OPEN_SECONDS = 2.0
_MOST_BYTES = 256 * 2**20
_GONE = (OSError, EOFError, httptools.HttpParserError)


class Unreached(Exception):
    """No whole answer came: nothing is known of what the server did."""


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    """What the certificate must be for, where that is not the host."""


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Wire:
    """Many requests at once, each on a connection of its own; up to sixteen are kept."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[_Connection] = []
        self._opened: WeakSet[_Connection] = WeakSet()
        self._opening: set[asyncio.Task[_Connection]] = set()
        self._closed = False

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, seconds: float
    ) -> Answer:
        """The whole answer. Raises Unreached. One that a kept connection did not even begin to
        answer is asked again on a new one: every request of ours may be repeated."""
        try:
            async with asyncio.timeout(seconds):
                while self._idle:
                    kept = self._idle.pop()
                    try:
                        return await self._ask(kept, method, target, headers, body)
                    except _GONE:
                        if kept.heard:
                            raise
                fresh = await self._open()
                return await self._ask(fresh, method, target, headers, body)
        except TimeoutError:
            raise Unreached(f"no answer within {seconds:g} s") from None
        except _GONE as err:
            raise Unreached(str(err) or type(err).__name__) from err

    async def _ask(
        self,
        connection: _Connection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        try:
            await connection.send(self._head(method, target, headers, body), body)
            answer = Answer()
            pieces = []
            size = 0
            async for piece in connection.answer(answer):
                pieces.append(piece)
                size += len(piece)
                if size > _MOST_BYTES:
                    raise EOFError(f"an answer of more than {_MOST_BYTES >> 20} MiB")
            answer.body = b"".join(pieces)
        except BaseException:
            connection.close()
            raise
        if connection.keeps and len(self._idle) < _MOST_IDLE and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    @contextlib.asynccontextmanager
    async def lines(
        self, target: str, headers: Mapping[str, str], open_seconds: float, silent_seconds: float
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """The head of an answer and its lines as they come. Raises Unreached, also from the lines:
        when it breaks off, or when nothing comes for `silent_seconds`. It ends where the server
        ends it."""
        connection = None
        try:
            try:
                async with asyncio.timeout(open_seconds):
                    connection = await self._open()
                    await connection.send(self._head("GET", target, headers, b""), b"")
                    answer = Answer()
                    pieces = connection.answer(answer, silent_seconds)
                    first = await anext(pieces, b"")  # the head is there once something is
            except TimeoutError:
                raise Unreached(f"no answer within {open_seconds:g} s") from None
            except _GONE as err:
                raise Unreached(str(err) or type(err).__name__) from err
            yield answer, _lines(first, pieces)
        finally:
            if connection is not None:
                connection.close()

    def _head(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        host = self._address.host
        shown = f"[{host}]" if ":" in host else host
        lines = [f"{method} {target} HTTP/1.1", f"Host: {shown}:{self._address.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method in ("POST", "PUT", "PATCH", "DELETE"):
            lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _open(self) -> _Connection:
        """Whoever is cancelled meanwhile leaves the opening to itself: asyncio says a long goodbye
        on a connection whose opening is cancelled, and a loop that ends leaves it open."""
        if self._closed:  # it was asked by somebody who is asked to leave, too
            raise EOFError("it was closed")
        opening = asyncio.create_task(_Connection.open(self._address))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            connection = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_drop)
            raise
        self._opened.add(connection)
        if self._closed:
            connection.close()
            raise EOFError("it was closed")
        return connection

    async def close(self) -> None:
        """All of them, those too that were left and are not gone yet. What is still asked on them
        fails, and is not asked again."""
        self._closed = True
        opened = list(self._opened)
        if self._opening:
            done, late = await asyncio.wait(set(self._opening), timeout=_OPEN_SECONDS)
            for opening in late:
                opening.cancel()  # it is not even connected
            opened += [each.result() for each in done if _is_there(each)]
        self._idle.clear()
        for connection in opened:
            connection.close()
        await asyncio.gather(*(each.gone() for each in opened), return_exceptions=True)


def _is_there(opening: asyncio.Task[_Connection]) -> bool:
    return not opening.cancelled() and opening.exception() is None


def _drop(opening: asyncio.Task[_Connection]) -> None:
    if _is_there(opening):
        opening.result().close()


async def _lines(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    try:
        piece: bytes | None = first
        while piece is not None:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                if line:
                    yield line
            piece = await anext(pieces, None)
    except TimeoutError:
        raise Unreached("it fell silent") from None
    except _GONE as err:
        raise Unreached(str(err) or type(err).__name__) from err


class _Connection:
    """One connection, with one request on it at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.heard = False
        self.keeps = False

    @classmethod
    async def open(cls, at: Address) -> _Connection:
        name = (at.server_name or at.host) if at.tls else None
        return cls(
            *await asyncio.open_connection(at.host, at.port, ssl=at.tls, server_hostname=name)
        )

    async def send(self, head: bytes, body: bytes) -> None:
        self.heard = False
        self._writer.write(head + body)
        await self._writer.drain()

    async def answer(
        self, found: Answer, silent_seconds: float | None = None
    ) -> AsyncIterator[bytes]:
        """Fills the head in, then gives the body in pieces: the first one, maybe empty, with the
        head. Raises EOFError when the end is missing."""
        reading = _Reading(found)
        parser = httptools.HttpResponseParser(reading)
        told = False
        while not reading.complete:
            async with asyncio.timeout(silent_seconds):
                data = await self._reader.read(_PIECE)
            if not data:
                raise EOFError("the connection broke off")
            self.heard = True
            parser.feed_data(data)
            if reading.headed:
                found.status = parser.get_status_code()
                self.keeps = found.headers.get("connection", "").lower() != "close"
                piece = b"".join(reading.pieces)
                reading.pieces.clear()
                if piece or not told:
                    told = True
                    yield piece

    def close(self) -> None:
        """At once: nothing of what was sent is waited for."""
        self._writer.transport.abort()

    async def gone(self) -> None:
        await self._writer.wait_closed()


class _Reading:
    """What the parser calls."""

    def __init__(self, found: Answer) -> None:
        self._found = found
        self.pieces: list[bytes] = []
        self.headed = self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._found.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.headed = True

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.complete = True
