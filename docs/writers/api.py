"""docs/reference/api.md: every route with its permission mark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from docs.writers.markdown import code, sentence, table
from windlass.core.access import Right
from windlass.server.app import create_app
from windlass.server.http.marks import check_marked
from windlass.server.settings import Settings

HEAD = """# HTTP API

Everything is below `/api/v1`. The OpenAPI document is at `/api/v1/openapi.json`; it needs no key.
Every route carries a mark: the right that a caller needs. A server with a route that has none
does not start.

Calls of users are signed with an access key and a secret key in the form of AWS Signature
Version 4: [how to call it with curl](../how-to/curl.md), or carry an API token. Which role has
which right: [users and projects](../how-to/users-and-projects.md). Workers and user code use the
bearer token of their attempt. Errors have [one form](errors.md).
"""


PAGES = "/{path:path}"
PAGES_WORDS = "The dashboard: its files, and its page for every path that is none of the above."

MLFLOW = """## MLflow's own

What an [MLflow client](../how-to/track-with-mlflow.md) calls, in MLflow's form and with its error
codes; any other address below answers `ENDPOINT_NOT_FOUND`. A token goes as bearer, or as the
password of Basic.
"""


def application() -> Any:
    """The app as the server assembles it, over parts that nothing here touches."""
    settings = Settings(Path("home"))
    parts = SimpleNamespace(settings=settings, access=None, refusals=None)
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
    wire: list[tuple[str, str]] = []
    for method, path, mark in routes():
        if path.startswith("/mlflow/"):
            wire.append((code(f"{method} {path}"), code(mark)))
            continue
        if path == PAGES:
            by_mark["Users"].append((code(f"{method} {path}"), code(mark), PAGES_WORDS))
            continue
        operation = document["paths"][path.replace(":path}", "}")][method.lower()]
        words = sentence(operation["description"])
        who = "Workers and user code" if mark in (Right.WORKER, Right.RUN) else "Users"
        by_mark[who].append((code(f"{method} {path}"), code(mark), words))
    parts = [HEAD]
    for who, rows in by_mark.items():
        parts += [f"## {who}\n", table(("call", "mark", "what it does"), rows)]
    parts += [MLFLOW, table(("call", "mark"), wire)]
    return "\n".join(parts)
