"""Requests are counted by the template of their route, whatever callers send."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from windlass.core.errors import Conflict
from windlass.server.http.application import Application
from windlass.server.http.limits import Rules
from windlass.server.http.tally import BOUNDS, UNMATCHED, Tally


def make() -> Application:
    app = Application(Rules())

    @app.get("/jobs/{ref}")
    async def show(ref: str) -> dict[str, Any]:
        if ref == "bad":
            raise Conflict("no")
        if ref == "broken":
            raise RuntimeError("on purpose")
        return {"ref": ref}

    return app


def test_every_answer_is_counted_once_by_route_method_and_kind() -> None:
    app = make()

    async def ask() -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in ("/jobs/a", "/jobs/b", "/jobs/bad", "/jobs/broken", "/none/x", "/none/y"):
                await client.get(path)
            await client.post("/jobs/a")
            await client.request("BREW", "/jobs/a")
            await client.get("/jobs/a", headers={"Host": "elsewhere"})

    asyncio.run(ask())
    assert list(app.tally.answers()) == [
        ("/jobs/{ref}", "GET", "2xx", 2),
        ("/jobs/{ref}", "GET", "4xx", 1),
        ("/jobs/{ref}", "GET", "5xx", 1),
        (UNMATCHED, "GET", "4xx", 3),
        (UNMATCHED, "POST", "4xx", 1),
        (UNMATCHED, "other", "4xx", 1),
    ]


def test_spans_add_up() -> None:
    tally = Tally()
    for seconds in (0.0005, 0.001, 0.003, 99.0):
        tally.add("/x", "GET", 200, seconds)
    [(route, method, counts, total)] = tally.spans()
    assert (route, method) == ("/x", "GET")
    assert counts[:3] == [2, 2, 3] and counts[-2:] == [3, 4] and len(counts) == len(BOUNDS) + 1
    assert abs(total - 99.0045) < 1e-9
