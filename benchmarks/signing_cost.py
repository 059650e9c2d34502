"""Claim: a signed call costs the server at most 1.15x the CPU of the same call unsigned.

The whole application in this process, called as its HTTP server would call it, with a real SQLite
file behind. For the unsigned calls the part that authenticates is swapped for one that believes
everyone; all else is the same. The CPU of all threads counts: the check of the signature on the
loop, and its use in the write. Calls are signed beforehand.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from benchmarks.load import SUBMIT
from benchmarks.measure import Row, at_most, folder, median, script
from windlass.core.signing import sign
from windlass.server.access.calls import Call
from windlass.server.app import create_app, running
from windlass.server.settings import Settings

ROUNDS = 60
CALLS = 40
HOST = "127.0.0.1:7400"


class Believing:
    """Takes everyone for one caller."""

    def __init__(self, call: Call) -> None:
        self._principal = call.principal

    async def authenticate(
        self, parts: Any, read_hash: Any, request_id: str, project: str | None
    ) -> Call:
        return Call(self._principal, request_id)


def measure() -> list[Row]:
    with folder() as place:
        os.environ["WINDLASS_HOME"] = str(place)  # where the first key is written
        found = asyncio.run(_measure(Settings(home=place, loops=False)))
    return [
        at_most(
            f"signing, CPU of {what}", median(found[name, True]), median(found[name, False]),
            1.15, lambda value: f"{value * 1e6:.0f} us",
        )
        for name, what in (("submit", "a submit"), ("list", "a list of 50 jobs"))
    ]  # fmt: skip


async def _measure(settings: Settings) -> dict[tuple[str, bool], list[float]]:
    found: dict[tuple[str, bool], list[float]] = {}
    async with running(settings, ["true"]) as parts:
        app = create_app(parts)
        key = json.loads((settings.home / "credentials.json").read_text())
        believing = Believing(await _principal(parts, key))
        for turn in range(-5, ROUNDS):
            for name, method, body in (("submit", "POST", SUBMIT), ("list", "GET", None)):
                for with_key in (True, False):
                    app.state.access = parts.access if with_key else believing
                    scopes = [scope(method, key, body) for _ in range(CALLS)]
                    # The loop's and the writer's thread; what waits costs nothing.
                    before = time.process_time()
                    for each, content in scopes:
                        await call(app, each, content)
                    if turn >= 0:
                        spent = (time.process_time() - before) / CALLS
                        found.setdefault((name, with_key), []).append(spent)
    return found


async def _principal(parts: Any, key: dict[str, str]) -> Call:
    """The caller that the key stands for, found by a real call."""
    seen: list[Call] = []
    access = parts.access

    class Listening:
        async def authenticate(self, *given: Any) -> Call:
            seen.append(await access.authenticate(*given))
            return seen[-1]

    app = create_app(parts)
    app.state.access = Listening()
    await call(app, *scope("GET", key, None))
    return seen[0]


def scope(method: str, key: dict[str, str], body: Any) -> tuple[dict[str, Any], bytes]:
    content = b"" if body is None else json.dumps(body).encode()
    headers = {"host": HOST}
    if content:
        headers |= {"content-type": "application/json", "content-length": str(len(content))}
        headers["idempotency-key"] = secrets.token_hex(16)
    headers |= sign(
        method, f"http://{HOST}/api/v1/jobs", headers, content, key["access_key"],
        key["secret_key"], time.time_ns() // 1_000_000,
    )  # fmt: skip
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": "/api/v1/jobs",
        "raw_path": b"/api/v1/jobs",
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 7400),
        "state": {},
    }, content


async def call(app: Callable[..., Any], request: dict[str, Any], content: bytes) -> None:
    answered = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        answered.append(message)

    await app(request, receive, send)
    assert answered[0]["status"] in (200, 201), answered


if __name__ == "__main__":
    script(measure)
