"""What a route is given on each call, and what no route may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, Header, Response
from pydantic import BaseModel

from windlass.core.errors import Conflict
from windlass.server.http.application import Application
from windlass.server.http.limits import Rules
from windlass.server.http.plan import Unplanned

calls: list[str] = []


async def first() -> str:
    calls.append("first")
    return "one"


async def second(one: Annotated[str, Depends(first)]) -> str:
    return one + " two"


class Answer(BaseModel):
    text: str


def make() -> Application:
    app = Application(Rules())

    @app.get("/both")
    async def both(a: Annotated[str, Depends(first)], b: Annotated[str, Depends(second)]) -> str:
        return f"{a}, {b}"

    @app.get("/things/{name}")
    async def thing(
        name: str, limit: int = 5, word: Annotated[str | None, Header(max_length=3)] = None
    ) -> dict[str, Any]:
        return {"name": name, "limit": limit, "word": word}

    @app.get("/things/special")
    async def shadowed() -> str:
        return "never: the route before it matches too"

    @app.get("/needs")
    async def needs(limit: int, must: Annotated[str, Header()]) -> str:
        return "all there"

    @app.post("/made", status_code=201)
    async def made() -> Answer:
        return Answer(text="ä")

    @app.delete("/gone", status_code=204)
    async def gone() -> None:
        return None

    @app.get("/refused")
    async def refused() -> str:
        raise Conflict("not now")

    @app.get("/wrong")
    async def wrong() -> Answer:
        return {"text": 1}  # type: ignore[return-value]

    return app


def ask(method: str, path: str, **options: Any) -> httpx.Response:
    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(make())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return asyncio.run(once())


def test_a_dependency_of_two_is_called_once() -> None:
    calls.clear()
    assert ask("GET", "/both").json() == "one, one two"
    assert calls == ["first"]


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/things/a%20b", {}, {"name": "a b", "limit": 5, "word": None}),
        ("/things/a?limit=7", {"Word": "abc"}, {"name": "a", "limit": 7, "word": "abc"}),
        ("/things/special", {}, {"name": "special", "limit": 5, "word": None}),
    ],
)
def test_parameters_come_from_path_query_and_headers(
    path: str, headers: dict[str, str], expected: dict[str, Any]
) -> None:
    assert ask("GET", path, headers=headers).json() == expected


def test_all_that_is_wrong_with_parameters_is_told_at_once() -> None:
    answer = ask("GET", "/needs?limit=many")
    assert answer.status_code == 422
    fields = {field["field"] for field in answer.json()["error"]["details"]["fields"]}
    assert fields == {"limit", "must"}


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/made", 201, '{"text":"ä"}'),
        ("DELETE", "/gone", 204, ""),
        ("GET", "/refused", 409, "not now"),
        ("GET", "/wrong", 500, "internal"),
        ("GET", "/nowhere", 404, "no such address"),
        ("POST", "/both", 405, "method not allowed"),
    ],
)
def test_what_a_route_returns_or_raises_becomes_an_answer(
    method: str, path: str, status: int, text: str
) -> None:
    answer = ask(method, path)
    assert (answer.status_code, text in answer.text) == (status, True)


def plain() -> str:
    return ""


async def closing() -> AsyncIterator[str]:
    yield ""


async def with_plain(a: Annotated[str, Depends(plain)]) -> None: ...
async def with_closing(a: Annotated[str, Depends(closing)]) -> None: ...
async def with_response(response: Response) -> None: ...
async def with_tasks(tasks: BackgroundTasks) -> None: ...
async def with_body(answer: Answer) -> None: ...


@pytest.mark.parametrize(
    "endpoint", [plain, with_plain, with_closing, with_response, with_tasks, with_body]
)
def test_a_route_that_asks_for_more_is_refused_at_the_start(endpoint: Any) -> None:
    app = Application(Rules())
    app.get("/x")(endpoint)
    with pytest.raises(Unplanned):
        app.build_middleware_stack()
