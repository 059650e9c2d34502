"""`windlass show`: one job with its reason, attempts, checkpoints and curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import columns, moments, output
from windlass.cli.follow import waits
from windlass.cli.metrics import placed
from windlass.cli.session import OBJECTS, Session, job_argument, verb
from windlass.client.jobs import Job
from windlass.core import plot
from windlass.core.errors import WindlassError

ISOLATION_PARTS = ("uid", "namespaces", "seccomp", "cgroup", "memory", "pids", "remains")


@verb("show", outputs=OBJECTS)
@click.option("--key", default="loss", help="The metric to draw.")
@job_argument(default="-")
def command(session: Session, job: str, key: str) -> None:
    """One job: reason, attempts, curve."""
    detail = session.client.jobs.detail(session.ref(job))
    if session.one(detail):
        return
    for line in facts(Job.read(detail), cost(session, detail["id"])):
        click.echo(line)
    attempts = detail.get("attempts") or ()
    for line in lineage_lines(detail.get("lineage") or ()):
        click.echo(line)
    for line in loss_lines(session, detail):
        click.echo(line)
    for line in isolation_lines(attempts[-1].get("isolation") or {}) if attempts else ():
        click.echo(line)
    if attempts:
        click.echo()
        head = ["TRY", "STATE", "OUTCOME", "EXIT", "NODES", "TOOK", "REASON"]
        output.print_table(
            head, [attempt_row(attempt) for attempt in attempts], colour=None,
            spare=("STATE", "TOOK"),
        )  # fmt: skip
    try:
        series = session.client.jobs.metrics(detail["id"], points=240)
    except WindlassError:
        series = ()
    for line in metric_lines(series, key):
        click.echo(line)


def cost(session: Session, job_id: str) -> str:
    """What it was charged so far; nothing where nothing has a price, or it may not be seen."""
    try:
        found = session.client.usage.report("job", since="1970-01-01T00:00:00Z", job=job_id)
    except WindlassError:
        return ""
    return f"{found.total.cost} {found.currency}" if found.total.cost_micro else ""


def facts(job: Job, cost: str = "") -> list[str]:
    took = moments.between(job.started, job.ended)
    size = f"{job.members} member{'s' if job.members != 1 else ''}"
    if job.gpus:
        size += f" · {job.gpus} GPU{'s' if job.gpus != 1 else ''}"
    spec = job.data.get("spec") or {}
    reason = waits(job.data) if job.waits else job.reason
    rows = [
        ("state", job.state + (f" · {output.tame(reason)}" if reason else "")),
        ("unreadable", output.tame(str(job.data.get("unreadable") or ""))),
        ("command", output.tame(job.command)),
        ("params", output.tame(params_words(spec.get("params") or {}))),
        ("python", output.tame(interpreter(spec.get("environment") or {}))),
        ("gang", f"{size} · {job.framework}"),
        ("code", output.tame(code_words(spec.get("code") or {}))),
        (
            "submitted",
            f"{moments.age(job.submitted)} ago by {output.tame(f'{job.user} in {job.project}')}",
        ),
        ("took", took),
        ("cost", cost),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("wish", job.wish or ""),
        ("rerun of", job.rerun_of or ""),
    ]
    lines = [output.tame(f"{job.name}  {job.id}")]
    room = columns.there()
    for name, text in rows:
        if text:
            first, *more = columns.wrapped(f"  {name:<10} ", text, room)
            coloured = name == "state"
            word = output.state(job.state) if coloured else ""
            lines += [first.replace(job.state, word, 1) if coloured else first, *more]
    return lines


def params_words(params: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items())


def interpreter(environment: Mapping[str, Any]) -> str:
    """What the command is run with: an interpreter, an image, or both."""
    found = [environment.get("python"), environment.get("image")]
    return " in ".join(str(each) for each in found if each)


def code_words(code: Mapping[str, Any]) -> str:
    """Of code in a repository: which, and the commit, once an attempt has fetched it."""
    if not code.get("git"):
        return ""
    words = f"{code['git']} {code.get('ref') or ''}".rstrip()
    return f"{words} · commit {code['commit']}" if code.get("commit") else words


def lineage_lines(lineage: Sequence[Mapping[str, Any]]) -> list[str]:
    """What it started from, what that started from, and so on, one line each."""
    lines = []
    for depth, origin in enumerate(lineage):
        if origin["kind"] == "model":
            words = f"model {origin['name']}@{origin['version']}"
            words += f" (of job {origin['id'][:12]})" if origin.get("id") else ""
        else:
            words = f"step {origin['step']} of job {origin['name']} {(origin['id'] or '')[:12]}"
            words += ", resumed" if origin.get("resume") else ""
        name = "from" if not depth else ""
        lines.append(f"  {name:<10} {'  ' * depth}{output.tame(words)}")
    return lines


def loss_lines(session: Session, detail: Mapping[str, Any]) -> list[str]:
    """Of a gang that goes on without those it loses: who was lost in the last attempt, and who
    came back."""
    if (detail.get("spec") or {}).get("on_member_loss") != "continue":
        return []
    found = [
        output.tame(str(event["reason"]))
        for event in session.client.jobs.events(detail["id"])
        if event["kind"] in ("rank-lost", "rank-back") and event["attempt"] == detail["attempt"]
    ]
    return [f"  {'losses' if not at else '':<10} {words}" for at, words in enumerate(found[-10:])]


def isolation_lines(by_node: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How far the last attempt is kept apart; nodes where it is the same share a line."""
    nodes: dict[str, list[str]] = {}
    for node, found in sorted(by_node.items()):
        if "level" in found:
            parts = [f"level {found['level']}", f"network {found.get('network', 'host')}"]
            parts += [f"{name} {found[name]}" for name in ISOLATION_PARTS if name in found]
            nodes.setdefault(output.tame(" · ".join(parts)), []).append(node)
    return [
        f"  {'isolation':<10} {words}" + (f" ({', '.join(on)})" if len(nodes) > 1 else "")
        for words, on in nodes.items()
    ]


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
        points = placed(item["points"], "step")
        if not points:
            continue
        if name == key and len(points) > 1:
            lines += ["", *plot.curve(points, title=name, unicode=unicode)]
        else:
            values = [value for _, value in points]
            spark = plot.sparkline(values, unicode=unicode)
            lines += [f"  {output.tame(name):<14} {spark} {values[-1]:.5g}"]
    return lines
