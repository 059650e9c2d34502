"""One signed request, and the same one again when that is safe.

`http.client` of the standard library, not httpx: importing httpx costs about 105 ms of CPU here,
http.client about 25, and the time from the start of `windlass run` to the first line of output is
what a user feels. What we need of HTTP is little: one connection kept open, JSON, one stream.

Retries: a request that is *repeatable* (it reads, or carries an idempotency key, or sets what is
already so) is sent again after a broken connection, 503 or 507, signed anew each time. Others are
sent again only when the first cannot have arrived. A server that never answered gets
`patience_seconds`; one that did (it restarts, its disk is full) gets `settle_seconds`.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from windlass.client.sse import Message, Stream, messages
from windlass.core.errors import (
    ClockSkew,
    Conflict,
    Internal,
    InvalidInput,
    SignatureReused,
    Unauthenticated,
    Unavailable,
    Unreachable,
    WindlassError,
    from_wire,
)

T = TypeVar("T")
PREFIX = "/api/v1"
MAX_ANSWER_BYTES = 256 * 2**20


def new_key() -> str:
    """An idempotency key: 128 random bits."""
    return os.urandom(16).hex()


def path_of(*parts: str) -> str:
    """A path below the API's root, each part quoted: a name is never read as a path."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


class Http:
    """A server and the key to speak to it with. Holds one connection; for one thread."""

    def __init__(
        self,
        url: str,
        *,
        access_key: str = "",
        secret_key: str = "",
        token: str = "",
        project: str | None = None,
        patience_seconds: float = 3.0,
        settle_seconds: float = 30.0,
        timeout_seconds: float = 60.0,
        relocate: Callable[[], str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._aim(url)
        self._relocate = relocate
        self._access_key = access_key
        self._secret_key = secret_key
        self._token = token
        self.project = project
        """The one that calls are about, said with each; None: the credential's own."""
        self.patience_seconds = patience_seconds
        self.settle_seconds = settle_seconds
        self.timeout_seconds = timeout_seconds
        self._sleep = sleep
        self._skew_ms = 0
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None

    # -- calls ------------------------------------------------------------------------------

    def get(
        self, path: str, query: Mapping[str, Any] | None = None, *, signed: bool = True
    ) -> Any:
        return self.call("GET", path, query=query, signed=signed)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        data: bytes | None = None,
        key: str | None = None,
        repeatable: bool | None = None,
        signed: bool = True,
        timeout_seconds: float | None = None,
    ) -> Any:
        """The decoded answer: JSON, or text when it is not. Raises the server's error."""
        content = data if data is not None else (b"" if body is None else _dump(body))
        headers = {}
        if content or method in ("POST", "PUT"):
            kind = "application/json" if data is None else "application/octet-stream"
            headers["Content-Type"] = kind
        if key:
            headers["Idempotency-Key"] = key
        if repeatable is None:
            repeatable = method in ("GET", "PUT") or key is not None
        target = self._target(path, query)
        if not repeatable:
            self.close()  # a stale connection that breaks would leave us unsure what arrived
        timeout = timeout_seconds or self.timeout_seconds

        def once() -> Any:
            response = self._send(method, target, headers, content, timeout, signed)
            raw = _whole(response)
            if response.will_close:
                self.close()
            return _answer(response, raw)

        return self._persist(once, repeatable)

    def put_file(self, path: str, source: str, digest: str, size: int) -> Any:
        """Send a file as it is, in blocks, signed by the digest that is known of it."""
        target = self._target(path, None)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(size),
            "X-Wl-Content-Sha256": digest,
        }

        def once() -> Any:
            with open(source, "rb") as file:
                response = self._send("PUT", target, headers, file, self.timeout_seconds, True)
                raw = _whole(response)
            if response.will_close:
                self.close()
            return _answer(response, raw)

        return self._persist(once, True)

    def blocks(self, path: str, *, start: int = 0, tag: str = "") -> Generator[bytes, None, None]:
        """The bytes of an answer from `start` on, as they come; `tag` is the digest that they must
        be of. Raises Unreachable when it breaks: ask again with what is here. Raises Conflict
        when the server has other bytes now."""
        headers = {"Range": f"bytes={start}-", "If-Range": f'"{tag}"'} if start else {}
        response, connection = self._open(self._target(path, None), headers, self.timeout_seconds)
        try:
            if start and response.status != 206:
                raise Conflict("the server has other bytes now: begin again")
            left = response.length
            while block := response.read(2**20):
                left = None if left is None else left - len(block)
                yield block
            if left:
                raise http.client.IncompleteRead(b"", left)
        except (OSError, http.client.HTTPException) as err:
            raise self._unreachable(err) from err
        finally:
            connection.close()

    def text(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[str]:
        """The lines of a text answer as they come. The connection is its own."""
        response, connection = self._open(self._target(path, query), {}, None)
        try:
            for raw in iter(response.readline, b""):
                yield raw.decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as err:
            raise self._unreachable(err) from err
        finally:
            connection.close()

    def stream(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        idle_seconds: float = 60.0,
        limit_seconds: float | None = None,
    ) -> Stream:
        """Server-sent events until the server ends them; open when this returns. Raises
        Unreachable when it breaks (the caller, who knows the last cursor, goes on from there),
        is silent for `idle_seconds`, or has lasted `limit_seconds`."""
        headers = {"Accept": "text/event-stream"}
        ends = None if limit_seconds is None else time.monotonic() + limit_seconds
        response, connection = self._open(self._target(path, query), headers, idle_seconds)
        plug = self._socket

        def lines() -> Iterator[bytes]:
            while True:
                if ends is not None and plug is not None:
                    left = ends - time.monotonic()
                    if left <= 0:
                        raise TimeoutError("the time is over")
                    plug.settimeout(min(idle_seconds, left))
                line = response.readline()
                if not line:
                    return
                yield line

        def read() -> Iterator[Message]:
            try:
                yield from messages(lines())
            except (OSError, http.client.HTTPException) as err:
                raise self._unreachable(err) from err
            finally:
                connection.close()

        return Stream(read(), connection.close)

    @contextmanager
    def speaking_for(self, project: str | None) -> Iterator[None]:
        """Calls made inside are about this project (None: about the one they were about)."""
        before, self.project = self.project, project or self.project
        try:
            yield
        finally:
            self.project = before

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- one request ------------------------------------------------------------------------

    def _aim(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(
                f"url: {url!r} is not an address of a server", hint="such as http://127.0.0.1:7400"
            )
        self.url = url.rstrip("/")
        self._parts = parts
        self._base = parts.path.rstrip("/") + PREFIX

    def _look_elsewhere(self) -> None:
        """A server of this machine that was started again may have another port."""
        if self._relocate is not None:
            url = self._relocate()
            if url.rstrip("/") != self.url:
                self.close()
                self._aim(url)

    def _open(
        self, target: str, headers: dict[str, str], timeout: float | None
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        def once() -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
            response = self._send("GET", target, headers, b"", timeout or 3600.0, True)
            if response.status >= 400:
                _answer(response, _whole(response))
            connection = self._connection
            assert connection is not None
            self._connection = None  # the stream has it now
            return response, connection

        return self._persist(once, True)

    def _target(self, path: str, query: Mapping[str, Any] | None) -> str:
        given = {name: _word(value) for name, value in (query or {}).items() if value is not None}
        return self._base + path + ("?" + urlencode(given, quote_via=quote) if given else "")

    def _send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | IO[bytes],
        timeout: float,
        signed: bool,
    ) -> http.client.HTTPResponse:
        whole = {"Host": self._parts.netloc.rpartition("@")[2], **headers}
        if signed:
            if self.project:
                whole["X-Wl-Project"] = self.project
            signable = content if isinstance(content, bytes) else b""
            whole.update(self._credential(method, target, whole, signable))
        if self._connection is None:
            self._connection = self._connect(timeout)
        connection = self._connection
        self._socket = connection.sock  # a response that ends its connection takes it away
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            try:
                connection.request(method, target, body=content or None, headers=whole)
            except (BrokenPipeError, ConnectionResetError):
                if isinstance(content, bytes):
                    raise
                # Who refuses a file says so before it has all of it: the answer may be here.
            return connection.getresponse()
        except BaseException:
            self.close()
            raise

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        connection.connect()
        # Small requests must not wait for the acknowledgement of the one before.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _credential(
        self, method: str, target: str, headers: dict[str, str], content: bytes
    ) -> dict[str, str]:
        if self._token:
            return {"Authorization": f"Bearer {self._token}"}
        if not (self._access_key and self._secret_key):
            self._knock()
            raise Unauthenticated(
                "there is no access key for this server",
                hint="`windlass up` writes one for a server on this machine; `windlass login URL` "
                "keeps one for another",
            )
        from windlass.core.signing import sign

        # Of the server's own path: a proxy may have put it below another one.
        path = target.removeprefix(self._base.removesuffix(PREFIX))
        address = f"{self._parts.scheme}://{self._parts.netloc}{path}"
        now_ms = int(time.time() * 1000) + self._skew_ms
        return sign(method, address, headers, content, self._access_key, self._secret_key, now_ms)

    def _knock(self) -> None:
        """Raises Unreachable when nobody listens: then that is what is wrong, not the key."""
        secure = self._parts.scheme == "https"
        port = self._parts.port or (443 if secure else 80)
        try:
            socket.create_connection((self._parts.hostname or "", port), timeout=5.0).close()
        except OSError as err:
            raise self._unreachable(err) from err

    # -- again ------------------------------------------------------------------------------

    def _persist(self, once: Callable[[], T], repeatable: bool) -> T:
        started = time.monotonic()
        reached = False
        corrected = 0
        for turn in range(1000):
            wait = min(2.0, 0.1 * 2**turn) * (0.75 + random.random() / 2)
            try:
                return once()
            except (ConnectionRefusedError, socket.gaierror) as err:
                problem: WindlassError = self._unreachable(err)
                arrived = False
                self._look_elsewhere()
            except (OSError, http.client.HTTPException) as err:
                problem = self._unreachable(err)
                arrived = True  # as far as we can know
                reached = reached or not isinstance(err, TimeoutError)
            except ClockSkew as err:
                if corrected or not isinstance(err.details.get("server_time_ms"), int):
                    raise
                corrected += 1
                self._skew_ms = err.details["server_time_ms"] - int(time.time() * 1000)
                continue
            except SignatureReused:
                corrected += 1  # the next signature has another nonce
                if corrected > 3:
                    raise
                continue
            except Unavailable as err:
                problem, arrived, reached = err, False, True
                wait = max(wait, float(err.details.get("retry_after_seconds") or 0))
                if err.details.get("outcome") == "unknown":
                    arrived = True
            limit = self.settle_seconds if reached else self.patience_seconds
            spent = time.monotonic() - started
            if (arrived and not repeatable) or spent + wait > limit:
                raise problem
            self._sleep(wait)
        raise Internal("too many turns")  # not reached: the limit of time comes first

    def _unreachable(self, err: Exception) -> Unreachable:
        if isinstance(err, TimeoutError):
            return Unreachable(
                f"the server at {self.url} is silent: it did not answer in time",
                hint="it hangs, or it or the network is very busy; `windlass status` tells more",
                url=self.url,
            )
        why = getattr(err, "strerror", None) or str(err) or type(err).__name__
        return Unreachable(
            f"no server answers at {self.url}: {why}",
            hint="start one with `windlass up`, or set WINDLASS_URL; `windlass doctor` tells more",
            url=self.url,
        )


def _dump(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _whole(response: http.client.HTTPResponse) -> bytes:
    """The body. Raises IncompleteRead when the connection ended inside it, which a read that
    names a size does not."""
    raw = response.read(MAX_ANSWER_BYTES)
    if len(raw) == MAX_ANSWER_BYTES:
        raise Internal(f"the server's answer is longer than {MAX_ANSWER_BYTES} bytes")
    if response.length:
        raise http.client.IncompleteRead(raw, response.length)
    return raw


def _answer(response: http.client.HTTPResponse, raw: bytes) -> Any:
    kind = response.headers.get("Content-Type", "")
    is_json = "json" in kind and "ndjson" not in kind
    try:
        value = json.loads(raw) if is_json and raw else raw.decode("utf-8", "replace")
    except ValueError as err:
        raise Internal(f"the server answered {response.status} with broken JSON") from err
    if response.status < 400:
        return value
    problem = from_wire(response.status, value)
    if isinstance(problem, Internal) and response.status in (502, 503, 504, 507):
        problem = Unavailable(f"the server answered {response.status}")  # a proxy before it
    after = response.headers.get("Retry-After", "")
    if after.isdigit():
        problem.details.setdefault("retry_after_seconds", min(int(after), 30))
    raise problem
