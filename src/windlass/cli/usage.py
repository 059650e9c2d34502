"""`windlass usage`: who used what and what it costs; `usage price` and `usage budget`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import moments, output
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.client.usage import UsageLine, UsageReport
from windlass.core.errors import InvalidInput

BY = ("project", "user", "job", "gpu", "pool", "day", "entry")
PRICE_HEAD = ["RESOURCE", "PRICE", "PER", "FROM", "STATE", "BY"]
BUDGET_HEAD = ["OF", "NAME", "COST", "AMOUNT", "PERIOD", "SPENT", "ON-SPENT"]
UNITS = {"cpu": "CPU hour", "memory": "GiB hour"}


class _Reporting(click.Group):
    """`usage --by user` is `usage report --by user`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["report", *args]
        return super().parse_args(ctx, args)


@click.group("usage", cls=_Reporting)
def command() -> None:
    """Who used what, and what it costs.

    Alone it is `usage report`. Members see their project, auditors and administrators all.

    \b
    Examples:
      windlass usage --by user --from 7d
      windlass usage --by entry --from 30d -o csv > entries.csv
      windlass usage price set gpu:H200 2.50
    """


@verb("report", outputs=("table", "json", "csv", "yaml"), quiet=False, group=command)
@click.option(
    "--by", type=click.Choice(BY), default="project", show_default=True, help="Lines by."
)
@click.option("--from", "since", default="7d", show_default=True, metavar="WHEN",
              help="From then: 7d ago, or an ISO-8601 time.")  # fmt: skip
@click.option("--to", "until", metavar="WHEN", help="Until then; now.")
@click.option("--user", metavar="NAME", help="Only this user's.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, help="So many lines.")
def report(
    session: Session, by: str, since: str, until: str | None, user: str | None, limit: int
) -> None:
    """Seconds held and used, and their cost, by project, user, job, GPU model, pool or day.

    --project shows one project. Lines `grace` and `lost` are of preempted jobs: nobody is charged
    for them. `--by entry` is the ledger itself, as CSV.

    \b
    Examples:
      windlass usage --by user --from 7d
      windlass usage --by gpu --from 2026-11-01 --to 2026-12-01 -o csv
    """
    given: dict[str, Any] = {
        "since": _moment("--from", since),
        "until": None if until is None else _moment("--to", until),
        "project": session.config.layers[0].values.get("project"),
    }
    if by == "entry":
        if session.form != "csv" or user is not None:
            raise InvalidInput(
                "--by entry is the whole ledger: as CSV, of all users", hint="-o csv"
            )
    else:
        given["user"] = user
    if session.form == "csv":
        for line in session.client.usage.csv(by, **given):
            click.echo(line, nl=False)
        return
    found = session.client.usage.report(by, limit=limit, **given)
    if session.one(found.data):
        return
    head, rows = table(found)
    output.print_table(head, rows, colour=None)
    if found.left_off:
        session.say(f"{found.left_off} more lines: --limit, or -o csv for all")


def table(found: UsageReport) -> tuple[list[str], list[list[Any]]]:
    """Head and rows of a report for people: hours, and the whole as the last row."""
    names = ["JOB", "USER", "PROJECT"] if found.by == "job" else [found.by.upper()]
    head = [*names, "LINE", "GPU-H", "CPU-H", "GIB-H", "USED CPU-H", f"COST {found.currency}"]
    rows = [[*_names(found.by, line), line.line, *_amounts(line)] for line in found.lines]
    blank = [""] * (len(names) - 1)
    rows.append(["total", *blank, "charged", *_amounts(found.total)])
    platform = found.platform
    if platform.cpu_seconds or platform.gpu_seconds or platform.memory_byte_seconds:
        rows.append(["platform", *blank, "free", *_amounts(platform)])
    return head, rows


def _names(by: str, line: UsageLine) -> list[str]:
    if by == "job":
        return [line.job or line.key[:12], line.user or "", line.project or ""]
    return [line.key or ("none" if by == "gpu" else "")]


def _amounts(line: UsageLine) -> list[str]:
    return [
        _hours(line.gpu_seconds), _hours(line.cpu_seconds),
        _hours(line.memory_byte_seconds / 2**30), _hours(line.used_cpu_seconds), line.cost,
    ]  # fmt: skip


def _hours(seconds: float) -> str:
    """Hours to the thousandth; a few seconds are not nothing."""
    hours = seconds / 3600
    if 0 < hours < 0.001:
        return "<0.001"
    return f"{hours:.3f}".rstrip("0").rstrip(".") if hours < 1000 else f"{hours:,.0f}"


def _moment(flag: str, text: str) -> str:
    """ISO-8601 with its zone; a date or time without one is UTC, as the ledger is."""
    found = moments.since(flag, text)
    if "T" not in found and " " not in found:
        return f"{found}T00:00:00Z"
    has_zone = found.endswith("Z") or "+" in found[10:] or "-" in found[10:]
    return found if has_zone else found + "Z"


@command.group("price")
def price() -> None:
    """What an hour of each resource costs."""


@verb("ls", outputs=LISTS, group=price)
@click.option("--all", "every", is_flag=True, help="Past ones too.")
def price_ls(session: Session, every: bool) -> None:
    """The prices that hold, and those to come."""
    _prices(session, session.client.usage.prices(), every)


@verb("set", outputs=LISTS, group=price)
@click.option("--from", "effective", metavar="WHEN", help="From then: 2h from now, ISO-8601; now.")
@click.argument("resource", metavar="RESOURCE")
@click.argument("amount", metavar="PRICE")
def price_set(session: Session, resource: str, amount: str, effective: str | None) -> None:
    """Set the price of an hour of RESOURCE: cpu, memory (a GiB), gpu, or gpu:MODEL.

    It holds from now on; what was used before keeps its price. PRICE `none` takes it away.

    \b
    Examples:
      windlass usage price set cpu 0.04
      windlass usage price set gpu:H200 2.50 --from 2026-12-01
    """
    when = None if effective is None else moments.coming("--from", effective)
    given = None if amount == "none" else amount
    _prices(session, session.client.usage.set_price(resource, given, effective=when), False)


@command.group("budget")
def budget() -> None:
    """What projects and users may cost: warns at 50, 80 and 100 %, then holds."""


@verb("ls", outputs=LISTS, group=budget)
def budget_ls(session: Session) -> None:
    """The budgets, and how far each is spent."""
    found = session.client.usage.budgets()
    session.items(found, BUDGET_HEAD, [budget_row(item) for item in found])
    if session.plain and not found:
        session.say("no budgets. `windlass usage budget set PROJECT 1000`")


@verb("set", outputs=OBJECTS, group=budget)
@click.option("--user", "of_user", is_flag=True, help="NAME is a user, not a project.")
@click.option("--period", type=click.Choice(["month", "total"]), default="month",
              show_default=True, help="A calendar month (UTC), or all time.")  # fmt: skip
@click.option("--on-spent", type=click.Choice(["hold", "stop"]), default="hold", show_default=True,
              help="hold: what runs goes on; stop: it saves, and waits.")  # fmt: skip
@click.argument("name", metavar="NAME")
@click.argument("amount", metavar="AMOUNT")
def budget_set(
    session: Session, name: str, amount: str, of_user: bool, period: str, on_spent: str
) -> None:
    """Make or change the budget of a project or a user; effective at once.

    \b
    Examples:
      windlass usage budget set vision 5000
      windlass usage budget set ann 200 --user --on-spent stop
    """
    kind = "user" if of_user else "project"
    found = session.client.usage.set_budget(
        name, amount, kind=kind, period=period, on_spent=on_spent
    )
    if not session.one(found):
        output.print_table(BUDGET_HEAD, [budget_row(found)], colour=None)


@verb("rm", outputs=WORDS, group=budget)
@click.option("--user", "of_user", is_flag=True, help="NAME is a user, not a project.")
@click.argument("name", metavar="NAME")
def budget_rm(session: Session, name: str, of_user: bool) -> None:
    """Remove a budget: what waited for it may start."""
    session.client.usage.delete_budget(name, kind="user" if of_user else "project")
    session.say(f"removed the budget of {name}")


def budget_row(item: Mapping[str, Any]) -> list[Any]:
    return [
        item["kind"], item["name"], item["cost"], item["amount"], item["period"],
        f"{item['percent']} %", item["on_spent"],
    ]  # fmt: skip


def _prices(session: Session, found: Sequence[Mapping[str, Any]], every: bool) -> None:
    shown = [item for item in found if every or item["state"] != "past"]
    rows = [
        [
            item["resource"], item["price"] or "none", UNITS.get(item["resource"], "GPU hour"),
            item["effective"], item["state"], item["by"],
        ]
        for item in shown
    ]  # fmt: skip
    session.items(shown, PRICE_HEAD, rows)
    if session.plain and not found:
        session.say("no prices: nothing costs anything. `windlass usage price set gpu 2.50`")
