"""docs/reference/api.md: every route with its permission mark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from docs.writers.markdown import code, sentence, table
from windlass.core.access import Right
from windlass.server.app import create_app
from windlass.server.http.marks import check_marked

HEAD = """# HTTP API

Everything is below `/api/v1`. The OpenAPI document is at `/api/v1/openapi.json`; it needs no key.
Every route carries a mark: the right that a caller needs. A server with a route that has none
does not start.

Calls of users are signed with an access key and a secret key in the form of AWS Signature
Version 4: [how to call it with curl](../how-to/curl.md). Workers and user code use the bearer
token of their attempt. Errors have [one form](errors.md).
"""


def application() -> Any:
    """The app as the server assembles it, over parts that nothing here touches."""
    parts = SimpleNamespace(settings=SimpleNamespace(hosts=()), access=None)
    return create_app(parts)  # type: ignore[arg-type]


def routes() -> list[tuple[str, str, Right]]:
    """(method, path, mark) of every way into the server."""
    found = []
    for where, mark in check_marked(application()).items():
        methods, path = where.split(" ", 1)
        found += [(method, path, mark) for method in methods.split(",")]
    return found


def page() -> str:
    document = application().openapi()
    by_mark: dict[str, list[tuple[str, str, str]]] = {"Users": [], "Workers and user code": []}
    for method, path, mark in routes():
        operation = document["paths"][path][method.lower()]
        words = sentence(operation["description"])
        who = "Workers and user code" if mark in (Right.WORKER, Right.RUN) else "Users"
        by_mark[who].append((code(f"{method} {path}"), code(mark), words))
    parts = [HEAD]
    for who, rows in by_mark.items():
        parts += [f"## {who}\n", table(("call", "mark", "what it does"), rows)]
    return "\n".join(parts)
