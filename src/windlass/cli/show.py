"""`windlass show`: one job with its reason, attempts, checkpoints and curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import moments, output, plot
from windlass.cli.session import OBJECTS, Session, job_argument, verb
from windlass.client.jobs import Job
from windlass.core.errors import WindlassError


@verb("show", outputs=OBJECTS)
@click.option("--key", default="loss", help="The metric to draw.")
@job_argument()
def command(session: Session, job: str, key: str) -> None:
    """One job: reason, attempts, curve."""
    detail = session.client.jobs.detail(session.ref(job))
    if session.one(detail):
        return
    for line in facts(Job.read(detail)):
        click.echo(line)
    attempts = detail.get("attempts") or ()
    if attempts:
        click.echo()
        head = ["TRY", "STATE", "OUTCOME", "EXIT", "NODES", "TOOK", "REASON"]
        output.print_table(head, [attempt_row(attempt) for attempt in attempts], colour=None)
    try:
        series = session.client.jobs.metrics(detail["id"])
    except WindlassError:
        series = ()
    for line in metric_lines(series, key):
        click.echo(line)


def facts(job: Job) -> list[str]:
    took = moments.between(job.started, job.ended)
    size = f"{job.members} member{'s' if job.members != 1 else ''}"
    if job.gpus:
        size += f" · {job.gpus} GPU{'s' if job.gpus != 1 else ''}"
    rows = [
        ("state", output.state(job.state) + (f" · {job.reason}" if job.reason else "")),
        ("command", job.command),
        ("gang", f"{size} · {job.framework}"),
        ("submitted", f"{moments.age(job.submitted)} ago by {job.user} in {job.project}"),
        ("took", took),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("wish", job.wish or ""),
        ("rerun of", job.rerun_of or ""),
    ]
    lines = [f"{job.name}  {job.id}"]
    return lines + [f"  {name:<10} {text}" for name, text in rows if text]


def attempt_row(attempt: Mapping[str, Any]) -> list[Any]:
    return [
        attempt["number"], attempt["state"], attempt.get("outcome") or "",
        "" if attempt.get("exit_code") is None else attempt["exit_code"],
        ",".join(attempt.get("nodes") or ()),
        moments.between(attempt.get("started"), attempt.get("ended")), attempt.get("reason") or "",
    ]  # fmt: skip


def metric_lines(series: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """The metric asked for as a plot, the others as a sparkline each; of one rank (the lowest)."""
    first: dict[str, Mapping[str, Any]] = {}
    for item in sorted(series, key=lambda item: (str(item["key"]), str(item.get("rank", "")))):
        first.setdefault(str(item["key"]), item)
    unicode = plot.unicode_wanted()
    lines: list[str] = []
    for name, item in first.items():
        points = [(float(p[0]), float(p[2])) for p in item["points"] if p[2] is not None]
        if not points:
            continue
        if name == key and len(points) > 1:
            lines += ["", *plot.curve(points, title=name, unicode=unicode)]
        else:
            values = [value for _, value in points]
            spark = plot.sparkline(values, unicode=unicode)
            lines += [f"  {name:<14} {spark} {values[-1]:.5g}"]
    return lines
