"""/api/v1/jobs/…: what a job wrote, read back or followed as it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.errors import InvalidInput
from windlass.core.patterns import names_of
from windlass.patterns.automaton import Automaton
from windlass.server.access.lasting import while_allowed
from windlass.server.clock import stamp
from windlass.server.http.openapi import EVENT_STREAM, answers
from windlass.server.http.query import QueryCursor, QueryLine, WholeNumber, moment
from windlass.server.jobs import service, views
from windlass.server.jobs.routes import JobRef, Read
from windlass.server.jobs.stream import follow_job, parse_cursor
from windlass.server.logs import reader
from windlass.server.parts import Wired
from windlass.server.storage import catalogue as storage

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

_LIVE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get("/{ref}/stream", response_class=StreamingResponse, responses=EVENT_STREAM)
async def stream(
    call: Read,
    parts: Wired,
    ref: JobRef,
    cursor: QueryCursor | None = None,
    since: QueryLine | None = None,
    tail: WholeNumber | None = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=8192)] = None,
) -> StreamingResponse:
    """Everything about one job as it happens (server-sent events): `event`, `log`, and `end` when
    it is over. `id` is a cursor to go on from. With `since` (ISO-8601) or `tail` (lines of each
    rank) it begins there instead of at the beginning. `metrics` and `system`, without an `id`, say
    that there are new points and samples to read (see `/feed`)."""
    since_ms = moment("since", since or None)
    _check_tail(tail)
    given = last_event_id or cursor
    parse_cursor(given)  # a wrong one is an answer, not a stream that breaks
    job = await parts.store.read(lambda conn: service.find(conn, call.principal, ref))
    told = follow_job(parts, job, given, since_ms=since_ms, last=tail)
    source = while_allowed(call, Right.JOB_READ, told)
    return StreamingResponse(source, media_type="text/event-stream", headers=_LIVE)


@router.get(
    "/{ref}/logs",
    response_class=StreamingResponse,
    responses=answers("text/plain", "application/x-ndjson"),
)
async def logs(
    call: Read,
    parts: Wired,
    ref: JobRef,
    rank: QueryLine | None = None,
    stream: QueryLine | None = None,
    since: QueryLine | None = None,
    grep: QueryLine | None = None,
    tail: WholeNumber | None = None,
    attempt: WholeNumber | None = None,
    format: QueryLine = "text",
) -> StreamingResponse:
    """Output of the ranks in order of time. `since` is an ISO-8601 time; `rank` a number or a
    name such as worker-0-1; `attempt` defaults to the newest."""
    since_ms = moment("since", since or None) or 0
    if stream not in (None, "out", "err"):
        raise InvalidInput(f"stream: out or err (found {stream!r})")
    if format not in ("text", "json"):
        raise InvalidInput(f"format: text or json (found {format!r})")
    _check_tail(tail)
    pattern = _looked_for(grep) if grep else None

    def look(conn: Connection) -> list[dict[str, Any]]:
        job = service.find(conn, call.principal, ref)
        return service.attempts_of(conn, job["id"])

    attempts = await parts.store.read(look)
    chosen = [each for each in attempts if attempt in (None, each["number"])][-1:]
    if attempt is not None and not chosen:
        raise InvalidInput(f"attempt: there is no attempt {attempt}; there are {len(attempts)}")
    folders = []
    for each in chosen:
        for node in views.nodes_of(each):
            folders.append(parts.settings.logs_of(each["id"], node))
            await parts.shelf.bring(storage.logs_of(each["id"], node), folders[-1])

    def produce() -> Iterator[bytes]:
        found = reader.streams(folders)
        wanted = [
            each
            for number, each in _numbered(found)
            if (stream is None or each.stream == stream)
            and (
                rank is None
                or rank in (str(number), each.rank)
                or each.rank.rsplit("-", 1)[0] == rank
            )
        ]
        for line in reader.lines(wanted, since_ms=since_ms, pattern=pattern, last=tail):
            if format == "json":
                yield json.dumps(_line(line)).encode() + b"\n"
            else:
                yield line.text.encode() + b"\n"

    kind = "application/x-ndjson" if format == "json" else "text/plain; charset=utf-8"
    return StreamingResponse(_in_pages(produce), media_type=kind)


def _looked_for(grep: str) -> Automaton:
    try:
        names_of(grep)
    except ValueError as err:
        raise InvalidInput(f"grep: {err}") from err
    return Automaton(grep)


def _numbered(found: list[reader.Stream]) -> Iterator[tuple[int, reader.Stream]]:
    ranks = list(dict.fromkeys(each.rank for each in found))
    for each in found:
        yield ranks.index(each.rank), each


def _line(line: reader.Line) -> dict[str, Any]:
    return {
        "rank": line.rank, "stream": line.stream, "at": stamp(line.at_ms),
        "offset": line.offset, "text": line.text,
    }  # fmt: skip


async def _in_pages(produce: Callable[[], Iterator[bytes]]) -> AsyncIterator[bytes]:
    """Run a blocking generator in a thread, a page at a time."""
    source = produce()

    def page() -> bytes:
        parts: list[bytes] = []
        size = 0
        for piece in source:
            parts.append(piece)
            size += len(piece)
            if size > 256 * 1024:
                break
        return b"".join(parts)

    while block := await asyncio.to_thread(page):
        yield block


def _check_tail(tail: int | None) -> None:
    if tail is not None and not 0 <= tail <= 1_000_000:
        raise InvalidInput(f"tail: from 0 to 1000000 (found {tail})")
