"""The dashboard's files: what `make web` built into `windlass/_ui`, the same for everybody.

Its names carry a hash, so a browser keeps them for good; `index.html` names them and is never
kept. It answers for every path that is a page (the router in the browser knows which there are).
Three things are put into it as it is served: where the server's paths begin (`<base>`, so that
all other addresses in it can be relative); a nonce, by which the styles that the page makes at run
time are told from those that somebody slipped in; and the scripts of the page that was asked for,
so that they are on their way before the first one has run (`pages.json`, which the build writes).
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from windlass.core.access import Right
from windlass.core.errors import NotFound
from windlass.server.http import errors, exchange
from windlass.server.http.marks import Guarded

FOLDER = Path(__file__).resolve().parent.parent / "_ui"
ELSEWHERE = ("api", "login", "tb", "mlflow", "metrics")
"""First words of a path under which no page lies: what is not found there stays not found."""

COMMON = {
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every answer that a browser shows."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'self'; frame-ancestors 'none'"
)
"""No script but our files, nothing from elsewhere, in nobody's frame. Style attributes are not
allowed either: a script that sets `element.style` does not need them."""
FOR_GOOD = "public, max-age=31536000, immutable"

_KINDS = {
    ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2",
    ".json": "application/json", ".txt": "text/plain; charset=utf-8", ".html": "text/html",
}  # fmt: skip
_PACKED = ((".br", "br"), (".gz", "gzip"))
_BASE = re.compile(r'<base href="/"\s*/?>')
_NONCE = re.compile(r'<meta name="style-nonce" content=""\s*/?>')
_NOT_BUILT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Windlass</title></head>
<body>
<h1>Windlass</h1>
<p>The server runs, but its page was not built: this is a checkout of the source. In its folder,
<code>make web</code> builds it; then load this page anew.</p>
<p>Everything else works: <code>windlass --help</code>.</p>
</body>
</html>
"""


@dataclass(frozen=True)
class Built:
    """What lies in the folder at one moment."""

    index: str
    version: int
    pages: Mapping[str, tuple[str, ...]]
    """By address (`/jobs/$job`), the scripts of a page beside those that every page has."""
    files: Mapping[str, Path]
    """By path below the folder, with slashes; the packed ones too."""


class Page:
    """An ASGI app for GET and HEAD."""

    def __init__(self, base_path: str = "", folder: Path = FOLDER) -> None:
        self._base = f"{base_path}/"
        self._folder = folder
        self._known: Built | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        built = self._built()
        name = scope["path"].lstrip("/")
        headers = Headers(scope=scope)
        response: Response
        if built is not None and name in built.files and name != "index.html":
            response = _file(built, name, headers)
        elif name.startswith("assets/"):
            response = errors.answer(
                NotFound("no such file", hint="the page was built anew: load it again"),
                exchange.of(scope).request_id,
            )
        elif built is None:
            response = Response(
                _NOT_BUILT, media_type="text/html", headers=_page_headers(secrets.token_hex(16))
            )
        else:
            response = self._index(built, name)
        if scope["method"] == "HEAD" and not isinstance(response, FileResponse):
            response.body = b""
        await response(scope, receive, send)

    def _index(self, built: Built, name: str) -> Response:
        nonce = secrets.token_hex(16)
        text = _BASE.sub(f'<base href="{escape(self._base)}">', built.index, count=1)
        soon = "".join(
            f'<link rel="modulepreload" crossorigin href="./{escape(each)}">'
            for each in _scripts(built.pages, name)
        )
        text = text.replace("</head>", f"{soon}</head>", 1)
        text = _NONCE.sub(f'<meta name="style-nonce" content="{nonce}">', text, count=1)
        return Response(text, media_type="text/html", headers=_page_headers(nonce))

    def _built(self) -> Built | None:
        """Read anew when `index.html` is another than before: somebody built it while we run."""
        index = self._folder / "index.html"
        try:
            version = index.stat().st_mtime_ns
            if self._known is None or self._known.version != version:
                files = _files(self._folder)
                pages = (
                    json.loads(files["pages.json"].read_text()) if "pages.json" in files else {}
                )
                self._known = Built(index.read_text("utf-8"), version, pages, files)
        except OSError:
            self._known = None
        return self._known


class Pages(Route):
    """Every path that is not the API's, for GET and HEAD."""

    def __init__(self, page: Page) -> None:
        super().__init__(
            "/{path:path}", Guarded(page, Right.PUBLIC), methods=["GET"], include_in_schema=False
        )

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and not _is_page(scope["path"]):
            return Match.NONE, {}
        return super().matches(scope)


def _is_page(path: str) -> bool:
    return path.lstrip("/").partition("/")[0] not in ELSEWHERE


def _scripts(pages: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """Of the page at that path: `jobs/brisk-otter` is `/jobs/$job`, `jobs/new` is itself."""
    exact = pages.get(f"/{name}")
    if exact is not None:
        return exact
    words = name.split("/")
    for address, scripts in pages.items():
        parts = address.lstrip("/").split("/")
        if len(parts) == len(words) and all(
            part.startswith("$") or part == word for part, word in zip(parts, words, strict=True)
        ):
            return scripts
    return ()


def _files(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def _page_headers(nonce: str) -> dict[str, str]:
    policy = POLICY.format(nonce=nonce)
    return {**COMMON, "content-security-policy": policy, "cache-control": "no-store"}


def _file(built: Built, name: str, headers: Headers) -> Response:
    path, encoding = built.files[name], ""
    if "range" not in headers:  # a part of what is packed is of no use to who asks for a part
        taken = _accepted(headers.get("accept-encoding", ""))
        for suffix, word in _PACKED:
            if word in taken and name + suffix in built.files:
                path, encoding = built.files[name + suffix], word
                break
    found = os.stat(path)
    etag = f'"{found.st_mtime_ns:x}-{found.st_size:x}{encoding and "-" + encoding}"'
    told: dict[str, Any] = {
        **COMMON, "etag": etag, "vary": "accept-encoding",
        "cache-control": FOR_GOOD if name.startswith("assets/") else "no-cache",
        "content-security-policy": "default-src 'none'; sandbox",
    }  # fmt: skip
    if etag in headers.get("if-none-match", ""):
        return Response(status_code=304, headers=told)
    if encoding:
        told["content-encoding"] = encoding
    kind = _KINDS.get(Path(name).suffix, "application/octet-stream")
    return FileResponse(path, headers=told, media_type=kind, stat_result=found)


def _accepted(header: str) -> set[str]:
    """The encodings that are wanted: those with `q=0` are not."""
    taken = set()
    for part in header.lower().split(","):
        word, _, weight = part.strip().partition(";")
        if weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            taken.add(word.strip())
    return taken
