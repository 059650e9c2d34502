"""A file of known digest as an answer: whole or a range of it, so that a download that was cut
goes on.

Its digest is the ETag: whoever asks for the rest of other bytes (`If-Range`) gets all of them.
Always an attachment of no particular kind: what users upload must not run as a page of ours.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windlass.core.errors import NotFound
from windlass.server.storage.reading import Source

_BLOCK = 512 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")


class Download(Response):
    """One file, read in a thread as fast as its reader takes it; closed in any case."""

    def __init__(self, source: Source, start: int, end: int, status: int, headers: dict[str, str]):
        super().__init__(status_code=status, headers=headers)
        self._source, self._start, self._end = source, start, end
        self.headers["content-length"] = str(end - start)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"type": "http.response.start", "status": self.status_code}
        try:
            await send({**head, "headers": self.raw_headers})
            at = self._end if scope["method"] == "HEAD" else self._start
            while at < self._end:
                size = min(_BLOCK, self._end - at)
                block = await self._source.read(size, at)
                if not block:
                    raise OSError("a file is shorter than it was")
                at += len(block)
                await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._source.close()


def download(request: Request, source: Source, digest: str, size: int, name: str) -> Response:
    """The answer to a GET (or HEAD) of a file, which it takes over; its `Range` and `If-…` headers
    looked at. Raises NotFound where it has another size: then it is not what was kept."""
    if source.size != size:
        source.close()
        raise NotFound(f"the bytes of {name} are not here as they were kept")
    answer = _answer(request, source, digest, size, name)
    if not isinstance(answer, Download):
        source.close()
    return answer


def _answer(request: Request, source: Source, digest: str, size: int, name: str) -> Response:
    tag = f'"{digest}"'
    headers = {
        "etag": tag,
        "accept-ranges": "bytes",
        "content-type": "application/octet-stream",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "content-security-policy": "sandbox",
        "cache-control": "private, no-cache",
    }
    if _same(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers={"etag": tag})
    wanted = _range(request, tag, size)
    if wanted is None:
        return Download(source, 0, size, 200, headers)
    start, end = wanted
    if start >= end:
        headers["content-range"] = f"bytes */{size}"
        return Response(status_code=416, headers=headers)
    headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    return Download(source, start, end, 206, headers)


def _range(request: Request, tag: str, size: int) -> tuple[int, int] | None:
    """From where to where (not included); None: all of it. Several ranges, and what is not
    understood, are answered with all, as HTTP allows."""
    asked = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if asked is None or asked[0] == "bytes=-":
        return None
    if request.headers.get("if-range", tag) != tag:
        return None
    if not asked[1]:  # the last so many
        last = int(asked[2])
        return (max(0, size - last), size) if last else (size, size)
    start = int(asked[1])
    end = min(int(asked[2]) + 1, size) if asked[2] else size
    if asked[2] and int(asked[2]) < start:
        return None
    return start, end


def _same(named: str, tag: str) -> bool:
    return named.strip() == "*" or tag in [each.strip() for each in named.split(",")]
