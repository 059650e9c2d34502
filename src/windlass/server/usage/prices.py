"""The price book: what an hour of each resource costs, and since when. Rows are only added.

A price holds from now on, or from a time to come; the past has its price already, so an entry of
the ledger never changes what it costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from windlass.core.errors import InvalidInput
from windlass.core.usage import PriceBody, PricePage, PriceView, format_money
from windlass.server import feed
from windlass.server.clock import stamp
from windlass.server.store.prepared import Prepared
from windlass.server.usage.metering import Price
from windlass.server.usage.tables import prices

_ALL = Prepared(
    select(prices.c.resource, prices.c.from_ms, prices.c.price).order_by(
        prices.c.from_ms, prices.c.id
    )
)
_PAST_MS = 1_000
"""A time that was `now` when it was said."""


class Book:
    """All prices there are, were and will be."""

    def __init__(self, rows: Sequence[tuple[str, int, int | None]]) -> None:
        self.bounds = sorted({from_ms for _, from_ms, _ in rows})
        self._told: dict[str, tuple[list[int], list[int | None]]] = {}
        for resource, from_ms, price in rows:
            times, amounts = self._told.setdefault(resource, ([], []))
            times.append(from_ms)
            amounts.append(price)

    def at(self, ms: int, gpu_model: str) -> Price:
        if not self.bounds:
            return Price()
        gpu = self._of(f"gpu:{gpu_model}", ms) if gpu_model else None
        if gpu is None:
            gpu = self._of("gpu", ms)
        return Price(self._of("cpu", ms) or 0, self._of("memory", ms) or 0, gpu or 0)

    def _of(self, resource: str, ms: int) -> int | None:
        times, amounts = self._told.get(resource, ([], []))
        at = bisect_right(times, ms)
        return amounts[at - 1] if at else None


def book(conn: Connection) -> Book:
    ran = _ALL.run(conn, {})
    return Book(list(iter(ran.fetchone, None)))


def put(conn: Connection, body: PriceBody, *, by: str, now_ms: int) -> None:
    """Add a price. Raises InvalidInput for one of the past."""
    from_ms = now_ms if body.effective is None else body.effective
    if from_ms < now_ms - _PAST_MS:
        raise InvalidInput(
            f"effective: {stamp(from_ms)} is past, and what is past has its price already",
            hint="leave it out: the price then holds from now on",
        )
    from_ms = max(from_ms, now_ms)
    conn.execute(
        insert(prices).values(
            resource=body.resource, from_ms=from_ms, price=body.price, set_ms=now_ms, set_by=by
        )
    )
    told = "none" if body.price is None else format_money(body.price)
    feed.append(
        conn, job_id=None, project_id="", seq=0, attempt=None, kind="rules", at_ms=now_ms,
        state=None, reason=f"price of {body.resource} set to {told} by {by}",
        data={"of": "prices", "names": [body.resource], "count": 1},
    )  # fmt: skip


def page(conn: Connection, currency: str, now_ms: int) -> PricePage:
    """Every price that ever was, by resource, newest first."""
    query = select(prices).order_by(prices.c.resource, prices.c.from_ms.desc(), prices.c.id.desc())
    items: list[PriceView] = []
    held: set[str] = set()
    for row in conn.execute(query).mappings():
        items.append(_view(row, held, now_ms))
    return PricePage.model_construct(currency=currency, items=tuple(items))


def _view(row: Any, held: set[str], now_ms: int) -> PriceView:
    if row["from_ms"] > now_ms:
        state = "coming"
    else:
        state = "past" if row["resource"] in held else "now"
        held.add(row["resource"])
    return PriceView.model_construct(
        resource=row["resource"],
        price=None if row["price"] is None else format_money(row["price"]),
        effective=stamp(row["from_ms"]), set=stamp(row["set_ms"]), by=row["set_by"], state=state,
    )  # fmt: skip
