"""`windlass metrics`: what a job told, as a table, a curve, or every point for a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import output
from windlass.cli.session import Session, job_argument, verb
from windlass.client.runs import Run
from windlass.core import plot
from windlass.core.goals import direction_of

HEAD = ["KEY", "LAST", "STEP", "MIN", "AT", "MAX", "AT", "POINTS", "CURVE", "PICKED UP FROM"]
EXAMPLES = """\b
Examples:
  windlass metrics -                             (- is the last job)
  windlass metrics JOB --key loss --plot
  windlass metrics JOB --key loss -o csv > loss.csv
"""


@verb("metrics", outputs=("table", "csv", "json", "jsonl", "yaml"), quiet=False, epilog=EXAMPLES)
@click.option("--key", "keys", multiple=True, help="Only this metric; may be given again.")
@click.option("--last", is_flag=True, help="Only the last value of each.")
@click.option("--best", is_flag=True, help="Only the best value of each.")
@click.option("--plot", "draw", is_flag=True, help="Draw each as a curve.")
@click.option("--rank", type=click.IntRange(0), help="Only this rank.")
@click.option("--by", type=click.Choice(["step", "time"]), default="step", show_default=True,
              help="The axis of --from, --to and of curves.")  # fmt: skip
@click.option("--from", "low", metavar="STEP|TIME", help="From here on.")
@click.option("--to", "high", metavar="STEP|TIME", help="Up to here.")
@click.option("--points", type=click.IntRange(4, 100_000), default=1000, show_default=True,
              help="Thin a series to so many; csv and jsonl have all.")  # fmt: skip
@click.option("--system", is_flag=True, help="What the job used: CPU, memory, GPU …")
@job_argument()
def command(
    session: Session,
    job: str,
    keys: Sequence[str],
    last: bool,
    best: bool,
    draw: bool,
    rank: int | None,
    by: str,
    low: str | None,
    high: str | None,
    points: int,
    system: bool,
) -> None:
    """What a job told: values, curves, every point.

    Last, smallest and largest value of each metric, its curve, and where it was picked up."""
    if last and best:
        raise click.UsageError("--last or --best, not both")
    detail = session.client.jobs.detail(session.ref(job))
    asked: dict[str, Any] = {
        "rank": rank,
        "by": by,
        "low": low,
        "high": high,
        "key": ",".join(keys) or None,
    }
    if system:
        show_system(session, detail["id"], keys, rank, draw)
        return
    if (last or best) and not draw:
        show_values(session, detail, keys, "best" if best else "last")
    elif session.form in ("csv", "jsonl") and low is None and high is None:
        every_point(session, detail["id"], asked)
    else:
        found = session.client.jobs.metrics(detail["id"], points=points, **asked)
        if session.form == "table" and not draw:
            run = session.client.runs.of([detail["id"]]).get(detail["id"])
            show_table(session, run, found, detail["name"])
        else:
            show_series(session, found, draw, by)


def every_point(session: Session, job_id: str, asked: Mapping[str, Any]) -> None:
    """As it comes, so that a million points need no memory here."""
    found = session.client.jobs.points(job_id, key=asked["key"], rank=asked["rank"])
    if session.form == "jsonl":
        for point in found:
            output.print_jsonl([point])
        return
    head = ("key", "rank", "attempt", "step", "at_ms", "value")
    output.print_csv(head, ([point[name] for name in head] for point in found))


def show_table(
    session: Session, run: Run | None, found: Sequence[Mapping[str, Any]], name: str
) -> None:
    if not found:
        session.say(f"{name} has told no metrics yet")
        return
    known = run.metrics if run else {}
    rows = []
    for item in lowest_rank(found):
        told = known.get(item["key"]) or {}
        rows.append(
            [
                item["key"], number(told.get("last")), told.get("step"),
                number(told.get("min")), told.get("min_step"),
                number(told.get("max")), told.get("max_step"), told.get("count"),
                spark(item["points"]), item.get("source") or "",
            ]
        )  # fmt: skip
    output.print_table(HEAD, rows, colour=None)


def show_values(
    session: Session, detail: Mapping[str, Any], keys: Sequence[str], which: str
) -> None:
    """One value of each metric. Which is the best says the job's goal, or the metric's name."""
    run = session.client.runs.of([detail["id"]]).get(detail["id"])
    goal = ((detail.get("spec") or {}).get("metrics") or {}).get("goal")
    items: list[dict[str, Any]] = []
    for key, told in sorted(run.metrics.items() if run else ()):
        if keys and key not in keys:
            continue
        direction = direction_of(key, goal) if which == "best" else None
        value, step = told["last"], told["step"]
        if direction is not None:
            value, step = told[direction], told[f"{direction}_step"]
        elif which == "best":
            session.say(f"{key}: nobody says which way is better; this is the last value")
        items.append({"key": key, "value": value, "step": step, "source": told["source"]})
    if session.form == "json":
        output.print_json({"job": detail["id"], "metrics": items})
        return
    rows = [[i["key"], number(i["value"]), i["step"], i["source"]] for i in items]
    if session.form == "csv":
        rows = [[i["key"], i["value"], i["step"], i["source"]] for i in items]
    session.items(items, ["KEY", which.upper(), "STEP", "PICKED UP FROM"], rows)


def show_series(session: Session, found: Sequence[Mapping[str, Any]], draw: bool, by: str) -> None:
    if draw:
        for line in curves(found, by):
            click.echo(line)
    elif session.form == "json":  # on one line: a point of three numbers would take five
        output.print_jsonl([output.with_api({"series": list(found)})])
    elif session.form == "yaml":
        output.print_yaml({"series": list(found)})
    else:
        rows = [[item["key"], item["rank"], *point] for item in found for point in item["points"]]
        if session.form == "csv":
            output.print_csv(("key", "rank", "step", "at_ms", "value"), rows)
        else:
            names = ("key", "rank", "step", "at_ms", "value")
            output.print_jsonl([dict(zip(names, row, strict=True)) for row in rows])


def show_system(
    session: Session, job_id: str, keys: Sequence[str], rank: int | None, draw: bool
) -> None:
    """CPU, memory, GPU, disk and network of the job, second by second, from outside."""
    from windlass.client.http import path_of

    answer = session.client.http.get(path_of("jobs", job_id, "system"), {"rank": rank})
    found = [item for item in answer["series"] if not keys or item["key"] in keys]
    if session.form in ("json", "yaml") and session.one({"series": found}):
        return
    if draw:
        for line in curves([_with_steps(item) for item in found], "time"):
            click.echo(line)
        return
    if session.form in ("csv", "jsonl"):
        rows = [[i["key"], i["rank"], at_ms, v] for i in found for at_ms, v in i["points"]]
        names = ("key", "rank", "at_ms", "value")
        if session.form == "csv":
            output.print_csv(names, rows)
        else:
            output.print_jsonl([dict(zip(names, row, strict=True)) for row in rows])
        return
    rows = []
    for item in found:
        values = [float(value) for _, value in item["points"] if value is not None]
        if values:
            mean = sum(values) / len(values)
            rows.append(
                [item["key"], item["rank"], number(values[-1]), number(mean), number(max(values)),
                 spark([(None, at_ms, value) for at_ms, value in item["points"]])]
            )  # fmt: skip
    if not rows:
        session.say("no samples of this job yet")
        return
    output.print_table(["WHAT", "RANK", "LAST", "MEAN", "MAX", "CURVE"], rows, colour=None)


def curves(found: Sequence[Mapping[str, Any]], by: str) -> list[str]:
    """A plot of each series, its NaNs counted: they have no place in it."""
    lines: list[str] = []
    for item in found:
        drawn = placed(item["points"], by)
        title = output.tame(str(item["key"]))
        if item["rank"]:
            title += f" · rank {item['rank']}"
        absent = sum(1 for _, value in drawn if value != value)
        if absent:
            title += f" · NaN at {absent} point{'s' if absent > 1 else ''} of {len(drawn)}"
        lines += ["", *plot.curve(drawn, title=title, unicode=plot.unicode_wanted())]
    return lines


def placed(points: Sequence[Sequence[Any]], by: str) -> list[tuple[float, float]]:
    """(x, y): steps, or seconds since the first point; what has no step is placed by time."""
    times = by == "time" or any(step is None for step, _, _ in points)
    start = min((at_ms for _, at_ms, _ in points), default=0)
    return [
        ((at_ms - start) / 1000 if times else float(step), float(value))
        for step, at_ms, value in points
        if value is not None
    ]


def lowest_rank(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each key the series of its lowest rank."""
    first: dict[str, Mapping[str, Any]] = {}
    for item in sorted(found, key=lambda item: (item["key"], item["rank"])):
        first.setdefault(item["key"], item)
    return list(first.values())


def spark(points: Sequence[Sequence[Any]], width: int = 16) -> str:
    values = [float(value) for _, _, value in points if value is not None]
    return plot.sparkline(values, width, unicode=plot.unicode_wanted())


def number(value: Any) -> str:
    """As short as it is true to five digits; NaN as such."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.5g}"


def _with_steps(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, "points": [(None, at_ms, value) for at_ms, value in item["points"]]}
