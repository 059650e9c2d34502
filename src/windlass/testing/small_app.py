"""A small server with a route of each kind, for tests of what stands around routes.

The HTTP layer, the keys and the signatures are the real ones; only the nouns are missing.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

import httpx
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Query, Request, WebSocket
from sqlalchemy import Connection

from windlass.core import signing
from windlass.core.access import CallerKind, Principal, Right, rights_of
from windlass.core.jobs import JobSpec
from windlass.core.strict import Count, Line, Strict
from windlass.server.access import tables
from windlass.server.access.calls import Call, spend
from windlass.server.access.keys import NewKey
from windlass.server.access.sealing import load
from windlass.server.access.service import Access, new_token
from windlass.server.audit.tables import audit
from windlass.server.http.application import Application
from windlass.server.http.body import byte_stream, json_body
from windlass.server.http.limits import Cap, Rules
from windlass.server.http.marks import Guarded, check_marked, require
from windlass.server.http.openapi import describe
from windlass.server.http.query import WholeNumber
from windlass.server.store.inline import InlineStore


class Thing(Strict):
    name: Line
    count: Count = 0
    ratio: float = 0.0


class Submit(Strict):
    spec: JobSpec
    dry_run: bool = False


@dataclass
class SmallServer:
    app: FastAPI
    store: InlineStore
    access: Access
    key: NewKey
    worker_token: str
    tokens: dict[str, Principal]
    url: str = ""


def make(home: Path, now_ms: Callable[[], int] | None = None, **rules: Any) -> SmallServer:
    store = InlineStore()
    asyncio.run(store.write(_create_tables))
    tokens: dict[str, Principal] = {}

    async def find_token(digest: str) -> Principal | None:
        return tokens.get(digest)

    options = {} if now_ms is None else {"now_ms": now_ms}
    access = Access(store, load(home / "kek"), find_token, **options)
    key = asyncio.run(access.first_start())
    assert key is not None
    token, digest = new_token(CallerKind.WORKER)
    tokens[digest] = Principal(
        kind=CallerKind.WORKER,
        project_id="p",
        attempt_id="a",
        rights=rights_of(CallerKind.WORKER),
    )
    caps = (Cap("PUT", "/api/v1/blobs/", 4 * 1024 * 1024),)
    app = Application(Rules(caps=caps, **rules), title="small")
    app.state.access = access
    app.include_router(_routes(store), prefix="/api/v1")
    app.mount("/files", Guarded(_hello, Right.JOB_READ))
    check_marked(app)
    return SmallServer(app, store, access, key, token, tokens)


def _create_tables(conn: Connection) -> None:
    named = ("projects", "users", "memberships", "keys", "tokens", "signatures")
    for table in (*(getattr(tables, name) for name in named), audit):
        table.create(conn)


def _routes(store: InlineStore) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health")
    async def health(call: Annotated[Call, Depends(require(Right.PUBLIC))]) -> dict[str, bool]:
        return {"ok": True}

    @routes.post("/open")
    async def open_post(
        call: Annotated[Call, Depends(require(Right.PUBLIC))],
        thing: Annotated[Thing, Depends(json_body(Thing))],
    ) -> Thing:
        return thing

    @routes.get("/openapi.json", include_in_schema=False)
    async def openapi(
        call: Annotated[Call, Depends(require(Right.SERVER_READ))], request: Request
    ) -> dict[str, Any]:
        return describe(request.app)

    @routes.get("/things")
    async def things(
        call: Annotated[Call, Depends(require(Right.JOB_READ))],
        limit: Annotated[WholeNumber, Query(ge=1, le=100)] = 50,
        name: Annotated[str, Query(max_length=40)] = "",
    ) -> dict[str, Any]:
        return {"limit": limit, "name": name, "user": call.principal.user_name}

    @routes.get("/things/{name}")
    async def thing_by_name(
        call: Annotated[Call, Depends(require(Right.JOB_READ))], name: str
    ) -> dict[str, str]:
        return {"name": name}

    @routes.post("/things", status_code=201)
    async def add(
        call: Annotated[Call, Depends(require(Right.JOB_WRITE))],
        thing: Annotated[Thing, Depends(json_body(Thing))],
    ) -> Thing:
        await store.write(lambda conn: spend(conn, call))
        return thing

    @routes.post("/jobs")
    async def submit(
        call: Annotated[Call, Depends(require(Right.JOB_WRITE))],
        body: Annotated[Submit, Depends(json_body(Submit))],
    ) -> Submit:
        await store.write(lambda conn: spend(conn, call))
        return body

    @routes.delete("/things/{name}")
    async def remove(
        call: Annotated[Call, Depends(require(Right.JOB_WRITE))], name: str
    ) -> dict[str, str]:
        await store.write(lambda conn: spend(conn, call))
        return {"removed": name}

    @routes.post("/forgetful")
    async def forgetful(
        call: Annotated[Call, Depends(require(Right.JOB_WRITE))],
    ) -> dict[str, str]:
        return {}

    @routes.put("/blobs/{digest}")
    async def put(
        call: Annotated[Call, Depends(require(Right.BUNDLE_WRITE, stream=True, repeatable=True))],
        request: Request,
        digest: str,
    ) -> dict[str, Any]:
        hasher = hashlib.sha256()
        async for piece in byte_stream(request):
            hasher.update(piece)
        return {"matches": hasher.hexdigest() == digest}

    @routes.get("/broken")
    async def broken(call: Annotated[Call, Depends(require(Right.JOB_READ))]) -> dict[str, str]:
        raise ZeroDivisionError("a secret detail")

    @routes.post("/worker/beat")
    async def beat(call: Annotated[Call, Depends(require(Right.WORKER))]) -> dict[str, str]:
        return {"attempt": call.principal.attempt_id or ""}

    @routes.websocket("/socket")
    async def talk(
        call: Annotated[Call, Depends(require(Right.JOB_READ))], websocket: WebSocket
    ) -> None:
        await websocket.accept()
        await websocket.send_text(call.principal.user_name)
        await websocket.close()

    return routes


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    await send(start)
    await send({"type": "http.response.body", "body": b"hi"})


def call(
    server: SmallServer,
    method: str,
    target: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    key: NewKey | None = None,
    at_ms: int | None = None,
) -> httpx.Response:
    """One signed call through the app, without a socket."""
    key = key or server.key
    sent = {"host": "127.0.0.1", **(headers or {})}
    if body and "content-type" not in {name.lower() for name in sent}:
        sent["content-type"] = "application/json"
    now_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
    url = f"http://127.0.0.1{target}"
    sent |= signing.sign(method, url, sent, body, key.access_key, key.secret_key, now_ms)
    return send(server.app, method, target, body, sent)


def send(
    app: Any, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> httpx.Response:
    """The app's answer to exactly these bytes; a websocket when the method is `WEBSOCKET`."""
    path, _, query = target.partition("?")
    websocket = method == "WEBSOCKET"
    scope: dict[str, Any] = {
        "type": "websocket" if websocket else "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "ws" if websocket else "http",
        "path": unquote(path, encoding="latin-1"),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items()],
        "server": ("127.0.0.1", 7400),
        "client": ("127.0.0.1", 1),
        "extensions": {"websocket.http.response": {}} if websocket else {},
        "subprotocols": [],
    }
    if websocket:
        del scope["method"]
    status, answer, content = 0, [], b""

    async def receive() -> dict[str, Any]:
        if websocket:
            return {"type": "websocket.connect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def reply(message: Any) -> None:
        nonlocal status, answer, content
        if message["type"].endswith("response.start"):
            status, answer = message["status"], message["headers"]
        elif message["type"].endswith("response.body"):
            content += message.get("body", b"")
        elif message["type"] == "websocket.accept":
            status = 101
        elif message["type"] == "websocket.send":
            content += message["text"].encode()

    asyncio.run(app(scope, receive, reply))
    return httpx.Response(status, headers=answer, content=content)


@contextmanager
def serving(server: SmallServer) -> Iterator[SmallServer]:
    """The server on a real loopback socket, in a thread, until the block ends."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(server.app, log_level="error", lifespan="off", ws="auto")
    running = uvicorn.Server(config)
    ready = threading.Event()
    startup = running.startup

    async def started(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets=sockets)
        ready.set()

    running.startup = started  # type: ignore[method-assign]  # to know when it listens
    thread = threading.Thread(target=running.run, args=([listener],), daemon=True)
    thread.start()
    try:
        assert ready.wait(20), "the server did not come up"
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield server
    finally:
        running.should_exit = True
        thread.join(20)
        listener.close()
