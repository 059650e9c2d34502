"""A server whose paths begin with a word of their own, `--base-path /windlass`: so several of
them, or other things, can share one name behind a reverse proxy.

Some proxies take the word off before they pass a call on, some do not: both are understood, and
whoever comes without it (the workers of this machine) is served too. Nothing behind this knows of
it, signatures neither: they are of the path without it.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from windlass.core.errors import InvalidInput

_FORM = re.compile(r"(/[A-Za-z0-9_~.-]{1,64}){1,8}")


def checked(text: str) -> str:
    """`/windlass` of `windlass/` and the like; "" for none. Raises InvalidInput."""
    words = text.strip("/")
    path = f"/{words}" if words else ""
    if path and (not _FORM.fullmatch(path) or {".", ".."} & set(words.split("/"))):
        raise InvalidInput(
            f"base path: {text!r}: words of letters, digits and _ ~ . - such as /windlass"
        )
    if words.partition("/")[0] in ("api", "assets", "login", "metrics", "mlflow", "tb"):
        raise InvalidInput(f"base path: {text!r} begins like a path of the server's own")
    return path


class BasePath:
    """Outermost: takes the word off and passes on."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path
        self._raw = path.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            path: str = scope["path"]
            if path == self._path or path.startswith(self._path + "/"):
                raw: bytes = scope.get("raw_path") or path.encode()
                short = raw.removeprefix(self._raw)
                if short != raw:  # escaped otherwise, it is none of ours
                    rest = path[len(self._path) :] or "/"
                    scope = {**scope, "path": rest, "raw_path": short or b"/"}
        await self._app(scope, receive, send)
