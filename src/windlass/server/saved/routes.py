"""/api/v1/views: a user's own views of the dashboard's pages, in the project at hand. Nobody else
sees them: who wants to share one sends its address."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection, delete, func, select

from windlass.core.access import Principal, Right
from windlass.core.errors import LimitExceeded, NotFound
from windlass.core.saved import PageName, SavedBody, SavedName, SavedPage, SavedView
from windlass.server.access.calls import Call, spend
from windlass.server.access.tenant import of_tenant
from windlass.server.clock import stamp
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import QueryLine
from windlass.server.parts import Wired
from windlass.server.saved.tables import saved_views
from windlass.server.store.upsert import insert_of

router = APIRouter(prefix="/api/v1/views", tags=["views"])

Read = Annotated[Call, Depends(require(Right.JOB_READ))]
Own = Annotated[Call, Depends(require(Right.JOB_WRITE))]
OfPage = Annotated[PageName, Path(description="the page, such as jobs")]
Named = Annotated[SavedName, Path(description="the view's name")]
MOST = 500
"""Of one user in one project."""


@router.get("", response_model=SavedPage)
async def listing(call: Read, parts: Wired, page: QueryLine | None = None) -> SavedPage:
    """The caller's own views, by page and name."""

    def look(conn: Connection) -> SavedPage:
        query = select(saved_views).where(*_own(call.principal))
        if page is not None:
            query = query.where(saved_views.c.page == page)
        rows = conn.execute(query.order_by(saved_views.c.page, saved_views.c.name)).mappings()
        return SavedPage(items=tuple(_view(row) for row in rows))

    return await parts.store.read(look)


@router.put("/{page}/{name}", response_model=SavedView)
async def put(
    call: Own,
    parts: Wired,
    page: OfPage,
    name: Named,
    body: Annotated[SavedBody, Depends(json_body(SavedBody))],
) -> SavedView:
    """Keep what stands in the address of a page under a name, in place of what had it."""
    me = call.principal
    row = {
        "project_id": me.project_id, "user_id": me.user_id, "page": page, "name": name,
        "search": body.search, "changed_ms": parts.clock.now_ms(),
    }  # fmt: skip

    def write(conn: Connection) -> SavedView:
        spend(conn, call)
        there = select(func.count()).select_from(saved_views).where(*_own(me))
        others = there.where((saved_views.c.page != page) | (saved_views.c.name != name))
        if (conn.execute(others).scalar() or 0) >= MOST:
            raise LimitExceeded(f"{MOST} views are kept at most", hint="remove one of them")
        upsert = insert_of(conn)(saved_views).values(row)
        changed = {key: upsert.excluded[key] for key in ("search", "changed_ms")}
        keys = ["project_id", "user_id", "page", "name"]
        conn.execute(upsert.on_conflict_do_update(index_elements=keys, set_=changed))
        return _view(row)

    return await parts.store.write(write)


@router.delete("/{page}/{name}", status_code=204)
async def remove(call: Own, parts: Wired, page: OfPage, name: Named) -> Response:
    """Forget one of the caller's views."""

    def write(conn: Connection) -> None:
        spend(conn, call)
        this = (saved_views.c.page == page, saved_views.c.name == name)
        gone = conn.execute(delete(saved_views).where(*_own(call.principal), *this)).rowcount
        if gone != 1:
            raise NotFound(f"no view {name!r} of the page {page}")

    await parts.store.write(write)
    return Response(status_code=204)


def _own(who: Principal) -> tuple[Any, Any]:
    return of_tenant(saved_views.c.project_id, who), saved_views.c.user_id == who.user_id


def _view(row: Any) -> SavedView:
    return SavedView(
        page=row["page"], name=row["name"], search=row["search"], changed=stamp(row["changed_ms"])
    )
