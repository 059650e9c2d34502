"""Usage: seconds of each resource on a ledger, what they cost, and budgets that watch over it.

Money is integer micro-units of the one currency of an installation; outside it is a text such as
`12.50`. A price is for an hour of one CPU, one GiB of memory or one GPU.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from windlass.core.strict import MomentMs, Strict

MICRO = 1_000_000
MAX_MICRO = 10**15
"""A billion: what is more is a slip of the pen, and sums must stay below 2^63."""
MAX_PRICE = 10**12
"""A million for an hour of one: times all there is, it must stay below 2^63 as well."""

LINES: dict[str, str] = {
    "charged": "what the project pays for, less what it got back",
    "grace": "the time in which a preempted attempt saved and left: nobody is charged",
    "lost": "work of a preempted attempt since its last checkpoint: nobody is charged",
}
KINDS: dict[str, str] = {
    "run": "an attempt held it",
    "refund": "taken back from `run`: it was lost work after all; negative",
    "grace": LINES["grace"],
    "lost": LINES["lost"],
}
"""What an entry of the ledger is about."""
LINE_OF = {"run": "charged", "refund": "charged", "grace": "grace", "lost": "lost"}

By = Literal["project", "user", "job", "gpu", "pool", "day"]
BudgetKind = Literal["project", "user"]
PERCENTS = (50, 80, 100)
"""Of a budget: each is told once."""


def parse_money(value: Any) -> Any:
    """`12`, `12.5` or `"12.50"` as micro-units; never through a float that would round."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PydanticCustomError("money", _MONEY)
    text = format(value, ".9f").rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    found = re.fullmatch(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?", text)
    if found is None:
        raise PydanticCustomError("money", _MONEY)
    micro = int(found[1]) * MICRO + int((found[2] or "").ljust(6, "0"))
    if micro > MAX_MICRO:
        raise PydanticCustomError("money", _MONEY)
    return micro


def format_money(micro: int) -> str:
    """At least two places, and as many of six as it needs."""
    sign, micro = ("-", -micro) if micro < 0 else ("", micro)
    whole, part = divmod(micro, MICRO)
    return f"{sign}{whole}.{f'{part:06}'.rstrip('0').ljust(2, '0')}"


_MONEY = "an amount of money, such as 12 or 0.35: up to a billion, at most six places"
Money = Annotated[
    int,
    BeforeValidator(parse_money),
    Field(ge=0, le=MAX_MICRO),
    PlainSerializer(format_money),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,6})?$"},
                {"type": "number", "minimum": 0, "maximum": 10**9},
            ],
            "description": _MONEY,
        }
    ),
]
"""Micro-units inside; outside a text such as `12.50`."""

RESOURCE = r"^(cpu|memory|gpu|gpu:[A-Za-z0-9]([A-Za-z0-9 ._/+-]{0,61}[A-Za-z0-9])?)$"
Resource = Annotated[str, Field(pattern=RESOURCE, max_length=80)]
"""cpu, memory (a GiB of it), gpu (any that has no price of its own), or gpu:MODEL."""


class PriceBody(Strict):
    resource: Resource
    price: Annotated[Money, Field(le=MAX_PRICE)] | None
    """For one hour, up to a million; null: it has none any more."""
    effective: MomentMs | None = None
    """From when on; absent: from now. What is past has its price already."""


class PriceView(Strict):
    resource: str
    price: str | None
    effective: str
    set: str
    by: str
    state: Literal["past", "now", "coming"]


class PricePage(Strict):
    currency: str
    items: tuple[PriceView, ...]


class BudgetBody(Strict):
    amount: Money
    period: Literal["month", "total"] = "month"
    """A calendar month (UTC), or all there ever was."""
    on_spent: Literal["hold", "stop"] = "hold"
    """hold: what runs goes on, nothing new starts. stop: what runs saves and waits too."""


class BudgetView(Strict):
    kind: BudgetKind
    name: str
    amount: str
    period: str
    on_spent: str
    cost: str
    """Of this period, to this moment."""
    percent: int
    spent: bool
    """Nothing of it starts."""
    warned: tuple[int, ...]
    """The percentages that were told in this period."""
    changed: str
    by: str


class BudgetPage(Strict):
    currency: str
    items: tuple[BudgetView, ...]


class UsageRow(Strict):
    """One line of a report: what was held and used, and what it costs."""

    key: str
    line: Literal["charged", "grace", "lost", "free"]
    """One of LINES; `free` in the sum of all that nobody is charged for."""
    project: str | None = None
    user: str | None = None
    job: str | None = None
    cpu_seconds: float
    memory_byte_seconds: int
    gpu_seconds: float
    used_cpu_seconds: float
    used_memory_byte_seconds: int
    peak_memory_bytes: int
    cost: str
    cost_micro: int


class UsageReport(Strict):
    by: str
    since: str
    until: str
    currency: str
    rows: tuple[UsageRow, ...]
    left_off: int = 0
    """Rows that were more than asked for; the total has them."""
    total: UsageRow
    """Of all charged lines."""
    platform: UsageRow
    """Of all that nobody is charged for."""
