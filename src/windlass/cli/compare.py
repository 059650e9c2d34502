"""`windlass compare`: jobs beside each other, by name or by a filter over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from windlass.cli import columns, comparison, output
from windlass.cli.comparison import Cell, Row, Side
from windlass.cli.completion import complete_job
from windlass.cli.session import Session, verb
from windlass.client.runs import Run
from windlass.core.errors import NotFound

EXAMPLES = """\b
Examples:
  windlass compare brisk-otter calm-fox
  windlass compare --where 'metrics.loss < 0.3 and params.lr = 0.1' --sort=-max.acc
  windlass compare a b c -o latex
"""


@verb("compare", outputs=("table", "md", "csv", "latex", "json"), quiet=False, epilog=EXAMPLES)
@click.option("--all", "everything", is_flag=True, help="Also the params that are the same.")
@click.option("--where", "chosen", metavar="FILTER", help="Jobs that told or were given this.")
@click.option("--sort", metavar="KEY", help="By metrics.loss, -max.acc, params.lr …")
@click.option("--column", "columns", multiple=True, metavar="KEY",
              help="With --where: params.lr, metrics.loss …; may be given again.")  # fmt: skip
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True,
              help="With --where: at most so many.")  # fmt: skip
@click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete_job)
def command(
    session: Session,
    jobs: Sequence[str],
    everything: bool,
    chosen: str | None,
    sort: str | None,
    columns: Sequence[str],
    limit: int,
) -> None:
    """Differing params and metrics of jobs, side by side.

    The first is the baseline. Which way a metric is better says the job's `metrics.goal`, or the
    metric's name."""
    if bool(jobs) == bool(chosen is not None or sort):
        raise click.UsageError("name jobs, or choose them by --where or --sort")
    if jobs:
        sides = [side_of(session, session.ref(job)) for job in jobs]
    else:
        page = session.client.runs.page(
            filter=chosen or "", sort=sort or "", columns=columns, limit=limit
        )
        sides = [side_of_run(run) for run in page.items]
        left = page.total - len(sides)
        if left > 0:
            session.say(f"{left} more: --limit, or a narrower --where")
        if page.more_columns:
            session.say(f"{page.more_columns} more columns: choose with --column")
    if not sides:
        session.say("no job is so")
    show(session, sides, comparison.compare(sides, everything=everything))


def side_of(session: Session, ref: str) -> Side:
    """A job with what it was given and told; also a run that MLflow's client made."""
    try:
        detail = session.client.jobs.detail(ref)
    except NotFound:
        found = session.client.runs.of([ref]).get(ref)
        if found is None:
            raise
        return side_of_run(found)
    run = session.client.runs.of([detail["id"]]).get(detail["id"])
    spec = detail.get("spec") or {}
    given = {name: str(value) for name, value in (spec.get("params") or {}).items()}
    if run is not None:
        given |= {name: told["value"] for name, told in run.params.items()}
    gang = {"members": str(detail.get("members", "")), "gpus": str(detail.get("gpus", ""))}
    return Side(
        detail["id"], detail["name"], given, run.metrics if run else {},
        (spec.get("metrics") or {}).get("goal"),
        {"state": detail["state"], "command": detail.get("command", ""), **gang},
    )  # fmt: skip


def side_of_run(run: Run) -> Side:
    given = {name: told["value"] for name, told in run.params.items()}
    return Side(run.id, run.name, given, run.metrics, None, {"state": run.status.lower()})


def show(session: Session, sides: Sequence[Side], rows: Sequence[Row]) -> None:
    head, lines = comparison.grid(sides, rows)
    if session.form == "json":
        output.print_json({"jobs": [_plain(side) for side in sides]})
    elif session.form == "csv":
        values = [[side.id, side.name, *(row.cells[at].exact for row in rows)]
                  for at, side in enumerate(sides)]  # fmt: skip
        output.print_csv(["id", "name", *(row.name for row in rows)], values)
    elif session.form in ("md", "latex"):
        write = comparison.markdown if session.form == "md" else comparison.latex
        for line in write(head, lines):
            click.echo(line)
    elif sides and len(sides) <= 6:
        draw(sides, rows)
    elif sides:
        output.print_table([name.upper() for name in head], lines, colour="STATE")


def draw(sides: Sequence[Side], rows: Sequence[Row]) -> None:
    """For a terminal: names on the left, a column for each job, what is best marked."""
    cells = [[output.tame(_said(cell)) for cell in row.cells] for row in rows]
    names = [output.tame(row.name) for row in rows]
    left = max(map(columns.width, ["", *names]))
    heads = [side.name for side in sides]
    widths = [
        min(48, max([columns.width(head), *(columns.width(line[at]) for line in cells)]))
        for at, head in enumerate(heads)
    ]
    title = [output.pad(head, widths[at]) for at, head in enumerate(heads)]
    click.echo((" " * left + "  " + "  ".join(title)).rstrip())
    kind = ""
    for row, name, line in zip(rows, names, cells, strict=True):
        if kind and row.kind != kind:
            click.echo()
        kind = row.kind
        texts = []
        for at, text in enumerate(line):
            short = text if columns.width(text) <= widths[at] else text[: widths[at] - 1] + "…"
            texts.append(_coloured(output.pad(short, widths[at]), row.cells[at], row.name))
        click.echo((output.pad(name, left) + "  " + "  ".join(texts)).rstrip())


def _said(cell: Cell) -> str:
    mark = "*" if cell.best else ""
    return cell.text + mark + (f"  {cell.change}" if cell.change else "")


def _coloured(text: str, cell: Cell, name: str) -> str:
    if name == "state":
        return text.replace(cell.text, output.state(cell.text), 1)
    if not output.colour_wanted() or (cell.better is None and not cell.best):
        return text
    colour = None if cell.better is None else "green" if cell.better else "red"
    return click.style(text, fg=colour, bold=cell.best)


def _plain(side: Side) -> dict[str, Any]:
    return {
        "id": side.id, "name": side.name, "goal": side.goal, **side.facts,
        "params": dict(side.params), "metrics": dict(side.metrics),
    }  # fmt: skip
