"""One request, handed to the board that listens in its job's folder, and its answer.

Both sides are bounded and listed: so many at once, so large, so long; only headers that are named
here pass, in either direction. What answers is user code: its page is put into a sandbox, where it
has no origin, no cookie of ours, and may speak with nothing but its own address.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windlass.core.errors import Conflict, InvalidInput, Unavailable, WindlassError
from windlass.server.http import errors, exchange

SOCKET = "board.sock"
MOST = 64
"""Requests under way at once, of all boards of a server."""
ANSWER_BYTES = 1024**3
HEAD_BYTES = 65_536
HEAD_SECONDS = 120.0
PIECE_SECONDS = 60.0
PIECE = 65_536

ASKED = (
    "accept", "accept-encoding", "accept-language", "content-type",
    "x-tensorboard-feature-flags", "x-xsrf-protected",
)  # fmt: skip
"""Headers that a board is told."""
ANSWERED = ("content-type", "content-encoding", "content-disposition")
"""And those of its answer that a browser is told; with the length, which is checked."""

_SANDBOX = "sandbox allow-scripts allow-downloads"
_HOST = re.compile(r"[a-z0-9.-]+(:[0-9]+)?")
_TARGET = re.compile(rb"[!-~]*")
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_STATUS = re.compile(rb"HTTP/1\.[01] ([2-5][0-9][0-9])( |$)")
_MEDIA = re.compile(r"[\x20-\x7e]{1,200}")
_under_way = 0


class Unanswered(Exception):
    """The board is not there, or answers with what is no answer."""


class NotThere(Unanswered):
    """The job has no board, or not yet."""


def plug(run: Path) -> socket.socket:
    """Connected to the board of an attempt's folder. Raises Unanswered.

    The folder is the job's own: whatever it puts in the socket's place, a link above all, must
    lead nowhere else. So the file itself is opened first, looked at, and then connected to."""
    try:
        folder = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            there = os.open(SOCKET, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            if not stat.S_ISSOCK(os.fstat(there).st_mode):
                raise Unanswered("it is no socket")
            plugged = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                plugged.settimeout(2.0)
                plugged.connect(f"/proc/self/fd/{there}")
                plugged.setblocking(False)
            except BaseException:
                plugged.close()
                raise
            return plugged
        finally:
            os.close(there)
    except FileNotFoundError:
        raise NotThere("it has none") from None
    except OSError as err:
        raise Unanswered(err.strerror or type(err).__name__) from None


async def answers(run: Path) -> bool:
    """Whether a board listens there."""
    try:
        (await asyncio.to_thread(plug, run)).close()
    except Unanswered:
        return False
    return True


def target_of(scope: Scope, ref: str, secret: str) -> bytes:
    """What is asked of the board: what stands behind its own part of the path, as it was sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    mine = f"/tb/{ref}/{secret}/".encode()
    query: bytes = scope["query_string"]
    target = b"/" + raw[len(mine) :] + (b"?" + query if query else b"")
    if not raw.startswith(mine) or _TARGET.fullmatch(target) is None:
        raise InvalidInput("no address of a board is written so")
    return target


async def pass_on(request: Request, run: Path, target: bytes, mine: str) -> Response:
    """The board's answer. `mine` is the part of the path that is this board's, with its slash."""
    global _under_way
    if _under_way >= MOST:
        raise Unavailable("too many ask boards at once", retry_after_seconds=1)
    _under_way += 1
    writer: asyncio.StreamWriter | None = None
    try:
        body = await request.body()  # held to a cap by the outer wall
        reader, writer = await asyncio.open_unix_connection(
            sock=await asyncio.to_thread(plug, run), limit=HEAD_BYTES
        )
        async with asyncio.timeout(HEAD_SECONDS):
            writer.write(_head(request, target, len(body)) + body)
            await writer.drain()
            status, headers, length = _read(await reader.readuntil(b"\r\n\r\n"))
        bodiless = status in (204, 304)
        answer = _Passed(status, reader, writer, 0 if bodiless else length)
        answer.raw_headers = [
            *((name.encode(), value.encode("latin-1")) for name, value in headers.items()),
            *((k.encode(), v.encode("latin-1")) for k, v in sealed_off(request, mine).items()),
        ]
        if length is not None and not bodiless:
            answer.raw_headers.append((b"content-length", str(length).encode()))
        return answer
    except NotThere:
        _close(writer)
        raise Conflict("this job has no board, or not yet: see windlass tb") from None
    except (Unanswered, OSError, EOFError, asyncio.LimitOverrunError) as err:
        _close(writer)
        return no_answer(request, Unavailable(f"the board does not answer: {err}"), 502)
    except BaseException:
        _close(writer)
        raise


def no_answer(request: Request, error: WindlassError, status: int) -> Response:
    """Our own words in place of a board's: in the form of all errors, with a status of a proxy."""
    told = errors.answer(error, exchange.of(request.scope).request_id, status)
    told.headers["cache-control"] = "no-store"
    told.headers["content-security-policy"] = f"{_SANDBOX}; default-src 'none'"
    return told


def sealed_off(request: Request, mine: str) -> dict[str, str]:
    """The headers that keep a board's page to itself."""
    host = request.headers.get("host", "").lower()
    own = f"{host}{mine}" if _HOST.fullmatch(host) else "'self'"
    return {
        "content-security-policy": (
            f"{_SANDBOX}; default-src 'none'; connect-src {own}; frame-src {own}; "
            f"font-src {own} data:; img-src {own} data: blob:; worker-src blob:; "
            f"script-src {own} 'unsafe-inline' 'unsafe-eval' blob:; "
            f"style-src {own} 'unsafe-inline'; form-action 'none'; base-uri 'none'"
        ),
        # Its page has no origin: that is what `null` says, and a cookie is never asked for.
        "access-control-allow-origin": "null",
        "vary": "origin",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-store",
    }


def _head(request: Request, target: bytes, length: int) -> bytes:
    lines = [request.method.encode() + b" " + target + b" HTTP/1.0", b"host: board"]
    for name in ASKED:
        value = request.headers.get(name)
        if value is not None:
            lines.append(f"{name}: {value}".encode("latin-1"))
    if request.method == "POST":
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join([*lines, b"connection: close", b"", b""])


def _read(head: bytes) -> tuple[int, dict[str, str], int | None]:
    """The status, the headers that pass, and the length if it is told. Raises Unanswered."""
    first, *lines = head[:-4].split(b"\r\n")
    found = _STATUS.match(first)
    if found is None or 300 <= int(found[1]) < 400 and found[1] != b"304":
        raise Unanswered("it sends elsewhere, or no status")
    headers: dict[str, str] = {}
    length = None
    for line in lines:
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise Unanswered("a header of its answer is no header")
        name, value = parts[1].decode().lower(), parts[2].decode("latin-1").strip()
        if name == "transfer-encoding" or (name in headers and name in ANSWERED):
            raise Unanswered("its answer has no plain form")
        if name == "content-length":
            if length is not None or not re.fullmatch("[0-9]{1,12}", value):
                raise Unanswered("its answer has no length that can be read")
            length = int(value)
            if length > ANSWER_BYTES:
                raise Unanswered(f"its answer is larger than {ANSWER_BYTES} bytes")
        elif name in ANSWERED and _MEDIA.fullmatch(value):
            headers[name] = value
    return int(found[1]), headers, length


class _Passed(Response):
    """What is still to come of an answer, piece by piece."""

    def __init__(
        self,
        status: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        length: int | None,
    ) -> None:
        self.status_code = status
        self.background = None
        self._reader, self._writer, self._length = reader, writer, length

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            left = ANSWER_BYTES if self._length is None else self._length
            while left:
                async with asyncio.timeout(PIECE_SECONDS):
                    piece = await self._reader.read(min(PIECE, left))
                if not piece:
                    break
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if left if self._length is not None else not left:
                raise ClientDisconnect  # half an answer: the connection ends, so that it is seen
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (OSError, TimeoutError):
            raise ClientDisconnect from None
        finally:
            _close(self._writer)


def _close(writer: asyncio.StreamWriter | None) -> None:
    global _under_way
    _under_way -= 1
    if writer is not None:
        writer.close()
