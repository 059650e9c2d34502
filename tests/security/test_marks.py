"""R-S1, R-S2: no way into the server lies beside its authentication."""

from __future__ import annotations

import time
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from windlass.core import signing
from windlass.core.access import Right
from windlass.server.access.calls import Call
from windlass.server.http.body import json_body
from windlass.server.http.marks import Guarded, Unmarked, check_marked, require
from windlass.testing import small_app
from windlass.testing.small_app import call, send


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    return small_app.make(tmp_path_factory.mktemp("home"))


def bare() -> FastAPI:
    return FastAPI(openapi_url=None, docs_url=None, redoc_url=None)


async def plain(request=None):
    return PlainTextResponse("open")


async def talk(websocket: WebSocket):
    await websocket.accept()


def with_route(app):
    app.get("/open")(plain)


def with_included_route(app):
    router, outer = APIRouter(), APIRouter()
    router.get("/open")(plain)
    outer.include_router(router, prefix="/inner")
    app.include_router(outer, prefix="/outer")


def with_websocket(app):
    app.websocket("/open")(talk)


def with_included_websocket(app):
    router = APIRouter()
    router.websocket("/open")(talk)
    app.include_router(router, prefix="/outer")


def with_starlette_route(app):
    app.router.routes.append(Route("/open", plain))


def with_starlette_websocket(app):
    app.router.routes.append(WebSocketRoute("/open", talk))


def with_mounted_app(app):
    app.mount("/open", Starlette(routes=[Route("/x", plain)]))


def with_mounted_fastapi(app):
    app.mount("/open", FastAPI())  # its own documents are routes too


def with_files(app):
    app.mount("/open", StaticFiles(directory="."))


def with_asgi_mount(app):
    async def asgi(scope, receive, send):
        raise AssertionError

    app.mount("/open", asgi)


def with_host(app):
    app.router.routes.append(Host("open.example", Starlette(routes=[Route("/x", plain)])))


def with_mount_in_a_mount(app):
    app.mount("/outer", Starlette(routes=[Mount("/open", routes=[Route("/x", plain)])]))


def with_mark_in_second_place(app):
    @app.post("/open")
    async def late(
        body: Annotated[small_app.Thing, Depends(json_body(small_app.Thing))],
        call: Annotated[Call, Depends(require(Right.JOB_READ))],
    ) -> None: ...


def with_documents(app):
    app.include_router(APIRouter())
    app.openapi_url, app.docs_url = "/openapi.json", "/docs"
    app.setup()


@pytest.mark.parametrize(
    "add", [value for name, value in list(globals().items()) if name.startswith("with_")]
)
def test_a_way_in_without_a_mark_does_not_start(add):
    app = bare()
    add(app)
    with pytest.raises(Unmarked, match="open|docs"):
        check_marked(app)


def test_unmarked_files_of_a_frontend_do_not_start(tmp_path):
    (tmp_path / "index.html").write_text("hi")
    app = bare()
    app.frontend("/", directory=str(tmp_path))
    with pytest.raises(Unmarked):
        check_marked(app)
    router = APIRouter()
    router.frontend("/", directory=str(tmp_path))
    app = bare()
    app.include_router(router, prefix="/ui")
    with pytest.raises(Unmarked):
        check_marked(app)
    marked = APIRouter(dependencies=[Depends(require(Right.SERVER_READ))])
    marked.frontend("/", directory=str(tmp_path))
    app = bare()
    app.include_router(marked, prefix="/ui")
    assert set(check_marked(app).values()) == {Right.SERVER_READ}


def test_a_mark_on_the_router_marks_its_routes():
    router = APIRouter(dependencies=[Depends(require(Right.NODE_READ))])
    router.get("/nodes")(plain)
    app = bare()
    app.include_router(router, prefix="/api")
    app.mount("/files", Guarded(StaticFiles(directory="."), Right.JOB_READ))
    assert check_marked(app) == {"GET /api/nodes": Right.NODE_READ, "/files/*": Right.JOB_READ}


def test_a_stranger_gets_401_from_every_way_in(server):
    marked = check_marked(server.app)
    assert len(marked) > 10
    for where, right in marked.items():
        if right is Right.PUBLIC:
            continue
        method, _, path = where.rpartition(" ")
        path = path.replace("{name}", "a").replace("{digest}", "a").replace("*", "x")
        method = {"": "GET", "WS": "WEBSOCKET"}.get(method, method)
        for headers in ({}, {"authorization": "Bearer wlw_x"}, {"authorization": "Basic YTpi"}):
            answer = send(server.app, method, path, b"", {"host": "localhost", **headers})
            assert answer.status_code == 401, where
            assert answer.json()["error"]["code"] == "unauthenticated"


def test_a_stranger_learns_nothing_from_a_bad_body_or_query(server):
    headers = {"host": "localhost", "content-type": "application/json"}
    assert send(server.app, "POST", "/api/v1/things", b"{nonsense", headers).status_code == 401
    assert send(server.app, "GET", "/api/v1/things?bad=1", b"", headers).status_code == 401


def test_a_known_caller_comes_in_where_it_has_the_right(server):
    assert call(server, "GET", "/api/v1/things").json()["user"] == "owner"
    assert call(server, "GET", "/files/x").text == "hi"
    key, at = server.key, {"host": "127.0.0.1"}
    at |= signing.sign(
        "GET", "http://127.0.0.1/api/v1/socket", at, b"", key.access_key, key.secret_key,
        time.time_ns() // 10**6,
    )  # fmt: skip
    assert send(server.app, "WEBSOCKET", "/api/v1/socket", b"", at).text == "owner"


def test_a_token_opens_its_own_door_and_no_other(server):
    token = {"host": "localhost", "authorization": f"Bearer {server.worker_token}"}
    assert send(server.app, "POST", "/api/v1/worker/beat", b"", token).json() == {"attempt": "a"}
    for method, path in (("GET", "/api/v1/things"), ("DELETE", "/api/v1/things/a")):
        answer = send(server.app, method, path, b"", token)
        assert answer.status_code == 403 and answer.json()["error"]["code"] == "forbidden"
    assert call(server, "POST", "/api/v1/worker/beat").status_code == 403
    token["authorization"] += "x"
    assert send(server.app, "POST", "/api/v1/worker/beat", b"", token).status_code == 401
