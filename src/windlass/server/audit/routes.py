"""/api/v1/audit: who did what. Nothing here changes it, and no call removes from it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import Connection

from windlass.core.access import Principal, Right
from windlass.core.audit import FIELDS, AuditHead, AuditRow
from windlass.core.errors import Forbidden, InvalidInput
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.audit import chain as chains
from windlass.server.audit import service
from windlass.server.http.marks import require
from windlass.server.http.openapi import answers
from windlass.server.http.query import QueryLine, WholeNumber, moment
from windlass.server.parts import Parts, Wired

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])
Read = Annotated[Call, Depends(require(Right.AUDIT_READ))]
PROJECT, SERVER = "project", "server"


class AuditPage(Strict):
    items: tuple[AuditRow, ...]
    next: str | None


@router.get("", response_model=AuditPage)
async def listing(
    call: Read,
    parts: Wired,
    chain: QueryLine = PROJECT,
    user: QueryLine | None = None,
    action: QueryLine | None = None,
    object: QueryLine | None = None,
    outcome: QueryLine | None = None,
    since: QueryLine | None = None,
    until: QueryLine | None = None,
    before: WholeNumber | None = None,
    limit: WholeNumber = 50,
) -> Any:
    """Newest first. `chain` is `project` (the caller's) or `server` (what is about all of it);
    `action` such as jobs.submit, or `jobs.` for all of a kind; `outcome` such as ok, forbidden,
    or `refused` for all that were."""
    if not 1 <= limit <= 1000:
        raise InvalidInput(f"limit: from 1 to 1000 (found {limit})")
    wanted = service.Wanted(
        _chain(call.principal, chain), user, action, object, outcome, moment("since", since),
        moment("until", until),
    )  # fmt: skip
    rows, following = await parts.store.read(
        lambda conn: service.newest(conn, wanted, before, limit)
    )
    page = AuditPage.model_construct(
        items=tuple(rows), next=None if following is None else str(following)
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/head", response_model=AuditHead)
async def head(call: Read, parts: Wired, chain: QueryLine = PROJECT) -> AuditHead:
    """The end of the chain, and the end that this server noted outside the database."""
    named = _chain(call.principal, chain)
    number, digest = await parts.store.read(lambda conn: chains.head(conn, named))
    noted = parts.chain.note
    noted_number, noted_hash = noted.heads.get(named, (0, ""))
    return AuditHead(
        project_id=named, number=number, hash=digest, noted_number=noted_number,
        noted_hash=noted_hash,
        lost=tuple(each for each in noted.lost if each["project_id"] == named),
    )  # fmt: skip


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=answers("application/x-ndjson", "text/csv"),
)
async def export(
    call: Read,
    parts: Wired,
    chain: QueryLine = PROJECT,
    format: QueryLine = "jsonl",
    since: QueryLine | None = None,
    until: QueryLine | None = None,
    after: WholeNumber = 0,
) -> StreamingResponse:
    """Every row in the chain's order with its hash, as JSON lines or CSV. A whole export, or one
    that begins after a row whose hash is known, can be checked without us."""
    if format not in ("jsonl", "csv"):
        raise InvalidInput(f"format: jsonl or csv (found {format!r})")
    wanted = service.Wanted(
        _chain(call.principal, chain),
        since_ms=moment("since", since),
        until_ms=moment("until", until),
    )
    kind = "text/csv; charset=utf-8" if format == "csv" else "application/x-ndjson"
    return StreamingResponse(_pages(parts, wanted, after, format), media_type=kind)


@router.get("/{number}", response_model=AuditRow)
async def show(
    call: Read,
    parts: Wired,
    number: Annotated[WholeNumber, Path(description="the row's number in its chain")],
    chain: QueryLine = PROJECT,
) -> AuditRow:
    """One row."""
    named = _chain(call.principal, chain)
    return await parts.store.read(lambda conn: service.one(conn, named, number))


async def _pages(
    parts: Parts, wanted: service.Wanted, after: int, format: str
) -> AsyncIterator[bytes]:
    if format == "csv":
        yield _csv([list(FIELDS)])
    while True:

        def look(conn: Connection, after: int = after) -> Sequence[dict[str, Any]]:
            return service.following(conn, wanted, after)

        rows = await parts.store.read(look)
        if rows:
            after = rows[-1]["number"]
            if format == "csv":
                yield _csv([[_cell(row[field]) for field in FIELDS] for row in rows])
            else:
                yield b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        if len(rows) < service.PAGE:
            return


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else service.csv_cell(value)


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _chain(who: Principal, word: str) -> str:
    if word == PROJECT:
        return who.project_id
    if word != SERVER:
        raise InvalidInput(f"chain: project or server (found {word!r})")
    if not who.may(Right.AUDIT_READ_ALL):
        raise Forbidden(
            f"this credential lacks the right {Right.AUDIT_READ_ALL}",
            right=str(Right.AUDIT_READ_ALL),
        )
    return ""
