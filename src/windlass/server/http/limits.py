"""The outer wall: what a request may be at all, before anyone asks who sent it.

Pure ASGI and in one layer, because it is on the path of every call. It caps headers and bodies
(as they arrive: the server below has no cap of its own), answers only to its own names (so that
a page which points its own name at 127.0.0.1 gets nothing), refuses what another site's page
made the browser send, gives each request a number, and turns whatever is raised inside into an
answer. All rules are lists of what is allowed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.core.errors import (
    Forbidden,
    Internal,
    InvalidInput,
    TooLarge,
    WindlassError,
)
from windlass.core.explain import found
from windlass.core.signing import SAFE_METHODS
from windlass.server.audit import refusals
from windlass.server.http import errors, exchange
from windlass.server.http.tally import UNMATCHED, Tally

log = logging.getLogger("windlass.server.http")

MIB = 1024 * 1024
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
METHODS = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}
CLIENT_HEADER = b"x-wl-client"
"""A header no form can send: a call that rides on a cookie must carry it."""


PIECE_BYTES = 8 * MIB
"""Of a file that a worker sends in pieces."""


FILE_PREFIXES = ("/api/v1/blobs/", "/api/v1/runs/", "/mlflow/")
"""Below these a PUT carries a file, streamed to the disk."""


BOARDS = "/tb/"
"""Below this lie pages that are kept apart from all others, and know nothing of a cookie."""


@dataclass(frozen=True, slots=True)
class Cap:
    """A route's own cap on its body."""

    method: str
    prefix: str
    max_bytes: int


_CAPS = (
    Cap("POST", "/api/v1/bundles", 16 * MIB),
    Cap("POST", "/api/v1/models/", 16 * MIB),
    Cap("POST", "/api/v1/worker/", 16 * MIB),
    Cap("PUT", "/api/v1/worker/", PIECE_BYTES),
    Cap("PUT", "/api/v1/quotas", 16 * MIB),
)


@dataclass(frozen=True, slots=True)
class Rules:
    hosts: frozenset[str] = LOOPBACK
    """Names (lower case, without port) this server answers to."""
    origins: frozenset[str] = frozenset()
    """Origins other than its own whose pages may call it."""
    body_bytes: int = MIB
    caps: tuple[Cap, ...] = _CAPS
    max_headers: int = 100
    header_bytes: int = 32 * 1024
    path_bytes: int = 4096
    pause_seconds: float = 20.0
    """A body that stops arriving for this long is given up."""
    bytes_per_second: int = 2048
    """And one that on the whole is slower than this."""

    @staticmethod
    def answering_to(
        hosts: Iterable[str], origins: Iterable[str] = (), file_bytes: int = 64 * MIB
    ) -> Rules:
        """`file_bytes`: the most that one file of a run or of a model may have."""
        files = tuple(Cap("PUT", prefix, file_bytes) for prefix in FILE_PREFIXES)
        return Rules(
            hosts=LOOPBACK | {host.lower() for host in hosts},
            origins=frozenset(origins),
            caps=(*files, *_CAPS),
        )


class Limits:
    """The outermost layer around an application."""

    def __init__(
        self, app: ASGIApp, rules: Rules | None = None, tally: Tally | None = None
    ) -> None:
        self.app = app
        self.rules = rules or Rules()
        self._tally = tally or Tally()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._websocket(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        current, began = exchange.begin(scope, next_request_id()), perf_counter()
        added = [
            (b"x-wl-request-id", current.request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                if current.call is not None and current.call.owes and message["status"] < 400:
                    raise Internal("a route changed something and did not spend the signature")
                current.started = True
                self._count(scope, current.route, message["status"], perf_counter() - began)
                message["headers"] = [*message.get("headers", ()), *added]
                if current.given_up:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        failure: Response
        try:
            length = self._judge(scope)
            cap = self._cap(scope)
            if length > cap:
                raise _too_large(cap)
            await self.app(scope, self._counted(receive, cap, current), send_on)
            return
        except ClientDisconnect:
            return
        except WindlassError as error:
            if isinstance(error, Internal):
                failure = errors.internal(error, current.request_id, _what(scope))
            else:
                refusals.note(scope, current.call, error)
                failure = errors.answer(error, current.request_id)
        except Exception as error:
            failure = errors.internal(error, current.request_id, _what(scope))
        if not current.started:
            current.call = None
            # The rest of the request was not read: it must not be taken for the next one.
            failure.headers["connection"] = "close"
            await failure(scope, receive, send_on)

    def _count(self, scope: Scope, route: str, status: int, seconds: float) -> None:
        method = scope["method"]
        known = method if method in METHODS else "other"
        self._tally.add(route or UNMATCHED, known, status, seconds)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        current = exchange.begin(scope, next_request_id())
        accepted = over = False

        async def send_on(message: Message) -> None:
            nonlocal accepted, over
            accepted = accepted or message["type"] == "websocket.accept"
            over = over or message["type"] not in ("websocket.accept", "websocket.send")
            await send(message)

        try:
            self._judge(scope)
            await self.app(scope, receive, send_on)
            return
        except WindlassError as error:
            refusals.note(scope, current.call, error)
            failure = errors.answer(error, current.request_id)
        except Exception as error:
            failure = errors.internal(error, current.request_id, _what(scope))
        if over:
            return
        if accepted:
            await send({"type": "websocket.close", "code": 1011})
        elif "websocket.http.response" in scope.get("extensions", {}):
            start = "websocket.http.response.start"
            await send(
                {"type": start, "status": failure.status_code, "headers": failure.raw_headers}
            )
            await send({"type": "websocket.http.response.body", "body": failure.body})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _judge(self, scope: Scope) -> int:
        """The body's announced length, once the head of the request is allowed."""
        rules = self.rules
        headers = scope["headers"]
        if len(headers) > rules.max_headers:
            raise TooLarge(f"more than {rules.max_headers} headers")
        size = 0
        host = origin = site = mode = None
        cookie = client = False
        length = 0
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"host":
                if host is not None:
                    raise InvalidInput("more than one Host header")
                host = value
            elif name == b"content-length":
                length = int(value) if value.isdigit() and len(value) < 19 else 2**63
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
            elif name == b"cookie":
                cookie = True
            elif name == CLIENT_HEADER:
                client = True
        if size > rules.header_bytes:
            raise TooLarge(f"headers of more than {rules.header_bytes} bytes")
        path = scope["path"]
        if len(scope.get("raw_path") or path) > rules.path_bytes or "\0" in path:
            raise InvalidInput(f"a path has at most {rules.path_bytes} bytes and no NUL")
        self._judge_host(host)
        if origin == b"null" and not cookie and _of_board(scope):
            return length
        websocket = scope["type"] == "websocket"
        if not websocket and scope["method"] not in METHODS:
            raise InvalidInput(f"no method {found(scope['method'])}")
        if websocket or scope["method"] not in SAFE_METHODS:
            own = self._judge_origin(scope, host or b"", origin)
            own = self._judge_fetch(site, mode, websocket) or own
            if cookie and not (own and (client or websocket)):
                raise Forbidden("a call with a cookie needs its own Origin and X-Wl-Client")
        elif cookie and site not in _OWN_READER and mode != b"navigate":
            raise Forbidden("a page of another site may not read with your cookie")
        return length

    def _judge_host(self, host: bytes | None) -> None:
        name = (host or b"").decode("latin-1").lower()
        name, colon, port = (
            (name, "", "") if name.endswith("]") or ":" not in name else name.rpartition(":")
        )
        if name not in self.rules.hosts or (colon and not port.isdigit()):
            raise Forbidden(
                f"this server does not answer to the name {found(name)}",
                hint="start the server with this name among its allowed hosts",
            )

    def _judge_origin(self, scope: Scope, host: bytes, origin: bytes | None) -> bool:
        """Whether an Origin is there and is ours; a foreign one (`null` too) is refused."""
        if origin is None:
            return False
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        text, name = origin.decode("latin-1").lower(), host.decode("latin-1").lower()
        # Under its public name a page comes from the public address alone, not also over HTTP.
        public = any(name == each.partition("//")[2] for each in self.rules.origins)
        if text not in self.rules.origins and (public or text != f"{scheme}://{name}"):
            raise Forbidden(f"a page of {found(text)} may not call this server")
        return True

    def _judge_fetch(self, site: bytes | None, mode: bytes | None, websocket: bool) -> bool:
        """Whether the browser says that our own page calls; any other page is refused."""
        if site is not None and site != b"same-origin":
            raise Forbidden("a page of another site may not call this server")
        allowed = (
            (b"cors", b"same-origin", b"websocket") if websocket else (b"cors", b"same-origin")
        )
        if mode is not None and mode not in allowed:
            raise Forbidden("only a script of our own page may call this server")
        return site is not None

    def _cap(self, scope: Scope) -> int:
        for cap in self.rules.caps:
            if scope["method"] == cap.method and scope["path"].startswith(cap.prefix):
                return cap.max_bytes
        return self.rules.body_bytes

    def _counted(self, receive: Receive, cap: int, current: exchange.Exchange) -> Receive:
        seen = 0
        whole = False
        loop = asyncio.get_running_loop()
        patience = self.rules.pause_seconds
        waited = 0.0

        async def receive_on() -> Message:
            nonlocal seen, whole, waited
            if whole:  # what comes now is the disconnect, and may take for ever
                return await receive()
            began = loop.time()
            left = patience + seen / self.rules.bytes_per_second - waited
            try:
                async with asyncio.timeout(min(patience, left)):
                    message = await receive()
            except TimeoutError:
                current.given_up = True
                raise InvalidInput("the body stopped arriving, or came too slowly") from None
            waited += loop.time() - began
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if seen > cap:
                    current.given_up = True
                    raise _too_large(cap)
            return message

        return receive_on


def _of_board(scope: Scope) -> bool:
    """Whether a page in a sandbox may ask for this: it has no origin, its address says who it
    is."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "POST", "OPTIONS"):
        return False
    path: str = scope["path"]
    return path.startswith(BOARDS)


_OWN_READER = (None, b"same-origin", b"none")
"""What a browser says of a page that reads, when the page is ours or the user typed the address;
None: it is no browser, or an old one, which keeps the cookie back by SameSite alone."""

_PROCESS = secrets.token_hex(4)
_numbers = itertools.count(secrets.randbelow(2**24))


def next_request_id() -> str:
    """16 hex digits, unlike any other's. Counted, since it need not be a secret: asking the
    system for random bytes lets another thread in, and costs the call a turn of waiting."""
    return f"{_PROCESS}{next(_numbers) & 0xFFFFFFFF:08x}"


def _too_large(cap: int) -> TooLarge:
    return TooLarge(f"the body is larger than {cap} bytes", max_bytes=cap)


def _what(scope: Scope) -> str:
    return f"{scope.get('method', 'websocket')} {found(scope['path'])}"
