"""/api/v1/usage: who used what and what it costs; prices and budgets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection, select

from windlass.core.access import Right
from windlass.core.errors import InvalidInput, NotFound
from windlass.core.strict import parse_moment_ms
from windlass.core.usage import (
    BudgetBody,
    BudgetKind,
    BudgetPage,
    By,
    PriceBody,
    PricePage,
    UsageReport,
)
from windlass.server.access.calls import Call, spend
from windlass.server.access.lasting import while_allowed
from windlass.server.access.tables import projects
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.openapi import answers
from windlass.server.http.query import ObjectName, QueryId, QueryLine, WholeNumber
from windlass.server.parts import Parts, Wired
from windlass.server.settings import DAY_MS
from windlass.server.usage import budgets, prices, views
from windlass.server.usage.report import Asked, job_page, report
from windlass.server.usage.tables import holdings, ledger

router = APIRouter(prefix="/api/v1/usage", tags=["usage"])

Read = Annotated[Call, Depends(require(Right.USAGE_READ))]
Write = Annotated[Call, Depends(require(Right.PRICE_WRITE))]
From = Annotated[QueryLine | None, Query(alias="from")]
Form = Literal["json", "csv"]
Kind = Annotated[BudgetKind, Path(description="project or user")]
Subject = Annotated[ObjectName, Path(description="its name")]
_CSV = "text/csv; charset=utf-8"
_PAGE = 1000
_MOST = 100_000


@router.get("", response_model=UsageReport, responses=answers("text/csv"))
async def usage(
    call: Read,
    parts: Wired,
    by: By = "project",
    since: From = None,
    to: QueryLine | None = None,
    project: QueryLine | None = None,
    user: QueryLine | None = None,
    job: QueryId | None = None,
    limit: WholeNumber = 1000,
    format: Form = "json",
) -> Any:
    """What was held, used and charged, from `from` (ISO-8601; 7 days ago) to `to` (now). What runs
    counts up to this moment. Members see their project; auditors and administrators all."""
    now = parts.clock.now_ms()
    from_ms, to_ms = _range(since, to, now)
    if not 1 <= limit <= _MOST:
        raise InvalidInput(f"limit: from 1 to {_MOST} (found {limit})")

    ids = await parts.store.read(lambda conn: _seen(conn, call, project))
    asked, currency = Asked(by, from_ms, to_ms, ids, user, job), parts.settings.currency
    if format == "csv" and by == "job":
        pages = _job_pages(parts, asked, now)
        return StreamingResponse(while_allowed(call, Right.USAGE_READ, pages), media_type=_CSV)
    sums = await parts.store.read(lambda conn: report(conn, asked, now))
    if format == "csv":
        return Response(b"".join(views.report_csv(asked, sums, currency)), media_type=_CSV)
    made = views.report_view(asked, sums, currency, limit, min(to_ms, now))
    return Response(made.model_dump_json(), media_type="application/json")


@router.get(
    "/entries",
    response_class=StreamingResponse,
    responses=answers("text/csv", "application/x-ndjson"),
)
async def entries(
    call: Read,
    parts: Wired,
    since: From = None,
    to: QueryLine | None = None,
    project: QueryLine | None = None,
    format: Form = "csv",
) -> StreamingResponse:
    """The entries of the ledger that begin in the range, in the order they were written; as many
    as there are. What is held now has no entry yet."""
    from_ms, to_ms = _range(since, to, parts.clock.now_ms())
    ids = await parts.store.read(lambda conn: _seen(conn, call, project))
    read = partial(_entries, from_ms=from_ms, to_ms=to_ms, project_ids=ids)
    currency = parts.settings.currency
    kind = _CSV if format == "csv" else "application/x-ndjson"
    pages = _entry_pages(parts, read, format, currency)
    return StreamingResponse(while_allowed(call, Right.USAGE_READ, pages), media_type=kind)


@router.get("/prices", response_model=PricePage)
async def price_list(call: Read, parts: Wired) -> Any:
    """Every price that is, was and will be."""
    now, currency = parts.clock.now_ms(), parts.settings.currency
    return _answer(await parts.store.read(lambda conn: prices.page(conn, currency, now)))


@router.post("/prices", response_model=PricePage)
async def price_set(
    call: Write, parts: Wired, body: Annotated[PriceBody, Depends(json_body(PriceBody))]
) -> Any:
    """Set the price of a resource from now on, or from a time to come."""
    now, currency = parts.clock.now_ms(), parts.settings.currency

    def write(conn: Connection) -> PricePage:
        spend(conn, call, about=body.resource, **body.model_dump(mode="json"))
        prices.put(conn, body, by=call.principal.user_name, now_ms=now)
        return prices.page(conn, currency, now)

    return _answer(await parts.store.write(write))


@router.get("/budgets", response_model=BudgetPage)
async def budget_list(call: Read, parts: Wired) -> Any:
    """The budget of the caller's project; every one for auditors and administrators."""
    now, currency = parts.clock.now_ms(), parts.settings.currency
    every = call.principal.may(Right.USAGE_READ_ALL)
    only = None if every else call.principal.project_id
    return _answer(await parts.store.read(lambda conn: budgets.page(conn, currency, now, only)))


@router.put("/budgets/{kind}/{name}", response_model=BudgetPage)
async def budget_put(
    call: Write,
    parts: Wired,
    kind: Kind,
    name: Subject,
    body: Annotated[BudgetBody, Depends(json_body(BudgetBody))],
) -> Any:
    """Make or change the budget of a project or a user; effective at once."""
    now, currency = parts.clock.now_ms(), parts.settings.currency

    def write(conn: Connection) -> BudgetPage:
        spend(conn, call, **body.model_dump(mode="json"))
        budgets.put(conn, kind, name, body, by=call.principal.user_name, now_ms=now)
        return budgets.page(conn, currency, now)

    return _answer(await parts.store.write(write))


@router.delete("/budgets/{kind}/{name}", status_code=204)
async def budget_remove(call: Write, parts: Wired, kind: Kind, name: Subject) -> Response:
    """Remove a budget: what waited for it may start."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call)
        budgets.remove(conn, kind, name, by=call.principal.user_name, now_ms=now)

    await parts.store.write(write)
    return Response(status_code=204)


def _seen(conn: Connection, call: Call, project: str | None) -> tuple[str, ...] | None:
    """The projects that a caller asks for and may see; None: all."""
    who = call.principal
    if not who.may(Right.USAGE_READ_ALL):
        if project not in (None, who.project_name):
            raise NotFound(f"no project {project}")
        return (who.project_id,)
    if project is None:
        return None
    # By the ledger too: a project that was removed has left its bill behind.
    ids = set(conn.scalars(select(projects.c.id).where(projects.c.name == project)))
    ids |= set(
        conn.scalars(
            select(holdings.c.project_id).where(holdings.c.project_name == project).distinct()
        )
    )
    if not ids:
        raise NotFound(f"no project {project}")
    return tuple(sorted(ids))


def _range(since: str | None, to: str | None, now_ms: int) -> tuple[int, int]:
    from_ms = now_ms - 7 * DAY_MS if since is None else _moment("from", since)
    to_ms = now_ms if to is None else _moment("to", to)
    if from_ms >= to_ms:
        raise InvalidInput("from: must be before `to`")
    return from_ms, to_ms


def _moment(name: str, text: str) -> int:
    try:
        return int(parse_moment_ms(text))
    except PydanticCustomError as err:
        raise InvalidInput(f"{name}: {err.message()} (found {text!r})") from None


def _entries(
    conn: Connection,
    after: int,
    *,
    from_ms: int,
    to_ms: int,
    project_ids: tuple[str, ...] | None,
) -> list[Any]:
    query = (
        select(ledger, holdings)
        .select_from(
            ledger.join(
                holdings,
                (holdings.c.attempt_id == ledger.c.attempt_id)
                & (holdings.c.part == ledger.c.part),
            )
        )
        .where(ledger.c.id > after, ledger.c.from_ms >= from_ms, ledger.c.from_ms < to_ms)
        .order_by(ledger.c.id)
        .limit(_PAGE)
    )
    if project_ids is not None:
        query = query.where(ledger.c.project_id.in_(project_ids))
    return list(conn.execute(query).all())


async def _entry_pages(
    parts: Parts, read: Callable[..., list[Any]], form: str, currency: str
) -> AsyncGenerator[bytes, None]:
    if form == "csv":
        yield views.csv_line(views.ENTRY_HEAD)
    after = 0
    while True:
        rows = await parts.store.read(partial(read, after=after))
        block = []
        for row in rows:
            entry = row._mapping
            if form == "csv":
                block.append(views.entry_csv(entry, currency))
            else:
                block.append(json.dumps(views.entry_view(entry)).encode() + b"\n")
        if block:
            yield b"".join(block)
            after = rows[-1].id
        if len(rows) < _PAGE:
            return


async def _job_pages(parts: Parts, asked: Asked, now_ms: int) -> AsyncGenerator[bytes, None]:
    last, head = "", True
    while last or head:
        found = await parts.store.read(
            partial(job_page, asked=asked, last=last, size=_PAGE, now_ms=now_ms)
        )
        yield b"".join(views.report_csv(asked, found.sums, parts.settings.currency, head=head))
        last, head = found.last, False


def _answer(found: PricePage | BudgetPage) -> Response:
    """Written here: these are our own rows, and FastAPI would check each once more."""
    return Response(found.model_dump_json(), media_type="application/json")
