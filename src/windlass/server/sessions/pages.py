"""/login: the page that logs a browser in, and tells who is. It stands apart from the dashboard,
so that a stranger is given three small files, and works where the dashboard was not built."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from windlass.core.access import Right
from windlass.server.access.calls import Call
from windlass.server.http.marks import require
from windlass.server.http.openapi import answers
from windlass.server.http.query import QueryWords
from windlass.server.page import COMMON
from windlass.server.parts import Wired

router = APIRouter(tags=["pages"])

Anyone = Annotated[Call, Depends(require(Right.PUBLIC))]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'self'; frame-ancestors 'none'"
)
"""Nothing inline, nothing from elsewhere, in nobody's frame."""

HEADERS = {**COMMON, "content-security-policy": POLICY, "cache-control": "no-cache"}
_FOLDER = Path(__file__).with_name("page")
_BASE, _CAME = '<base href="/">', '<meta name="came" content="">'


@router.get("/login", response_class=Response, responses=answers("text/html"))
async def page(
    call: Anyone,
    parts: Wired,
    next: QueryWords = "",
    site: Annotated[str, Header(alias="Sec-Fetch-Site", max_length=64)] = "",
) -> Response:
    """The page where one logs in; the same for everybody, whatever its address carries. `next` is
    where the browser goes afterwards: the page looks at it, the server does not."""
    text = _read("login.html").decode()
    text = text.replace(_BASE, f'<base href="{escape(parts.settings.path)}/">')
    # A link that another page holds must not log in whoever comes across it: those have a button.
    # One that the user opened from elsewhere (a terminal, the address bar) needs none.
    text = text.replace(_CAME, f'<meta name="came" content="{"alone" * (site == "none")}">')
    headers = {**HEADERS, "cache-control": "no-store", "vary": "sec-fetch-site"}
    return Response(text, media_type="text/html", headers=headers)


@router.get("/login/login.js", response_class=Response, responses=answers("text/javascript"))
async def script(call: Anyone) -> Response:
    """Its script."""
    return _file("login.js", "text/javascript")


@router.get("/login/login.css", response_class=Response, responses=answers("text/css"))
async def style(call: Anyone) -> Response:
    """Its style."""
    return _file("login.css", "text/css")


def _file(name: str, kind: str) -> Response:
    return Response(_read(name), media_type=kind, headers=HEADERS)


@cache
def _read(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
