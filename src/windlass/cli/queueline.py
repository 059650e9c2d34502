"""A queue, drawn: what is in use as bars, reservations, then the line itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import moments, output
from windlass.core import plot

Job = Mapping[str, Any]
BAR = 24
WAITING = [
    "#", "JOB", "USER", "PROJECT", "PRIO", "WANTS", "WAITS", "STARTS", "WHY",
]  # fmt: skip
SPARE = ("PROJECT", "PRIO", "USER", "WANTS", "HOLDS")
"""What is left out first where the terminal is narrow."""
RUNNING = ["JOB", "USER", "PROJECT", "PRIO", "HOLDS", "STATE", "SINCE"]


def draw(line: Mapping[str, Any]) -> None:
    """To stdout, as wide as the terminal allows."""
    queue = line["queue"]
    state = "paused" if queue["paused"] else "open"
    if queue["paused"] and output.colour_wanted():
        state = click.style(state, fg="yellow")
    words = f" · {queue['description']}" if queue["description"] else ""
    click.echo(f"{bold(queue['name'])}  {queue['policy']}, {state}{words}")
    click.echo()
    for supply in line["supply"]:
        if supply["total"]:
            click.echo("  " + bar(supply))
    reserved = [job for job in line["waiting"] if job["nodes"]]
    if reserved:
        click.echo()
        click.echo(bold("Reserved"))
        for job in reserved:
            click.echo("  " + reservation(job))
    for title, head, jobs, total in (
        ("Running", RUNNING, line["running"], queue["running"]),
        ("Waiting", WAITING, line["waiting"], queue["waiting"]),
    ):
        click.echo()
        click.echo(bold(f"{title} ({total})"))
        if jobs:
            make = running_row if head is RUNNING else waiting_row
            table(head, [make(job) for job in jobs])
        else:
            click.echo("  none")
        if total > len(jobs):
            click.echo(f"  … and {total - len(jobs)} more: -n {min(total, 1000)}")
    if line["order"] == "rows" and len(line["waiting"]) > 1:
        click.echo("shown by priority and time: the scheduler itself runs elsewhere", err=True)


def bar(supply: Mapping[str, Any], width: int = BAR) -> str:
    """`gpus    ██████░░░░  6 of 8 used, 2 free`."""
    total, free = supply["total"], supply["free"]
    name = f"{supply['resource']:<7}"
    show = _size if supply["resource"] == "memory" else _number
    if free is None:
        return f"{name} {show(total)}"
    used = min(total, max(0.0, total - free))
    filled = min(width, max(round(width * used / total), 1 if used else 0))
    full, empty = ("█", "░") if plot.unicode_wanted() else ("#", ".")
    text = full * filled + empty * (width - filled)
    if output.colour_wanted():
        colour = "red" if used >= total else "yellow" if used > 0.8 * total else "green"
        text = click.style(text, fg=colour)
    return f"{name} {text}  {show(used)} of {show(total)} used, {show(free)} free"


def reservation(job: Job) -> str:
    nodes = list(job["nodes"])
    where = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
    return f"{_name(job)} {_when(job['expected_start'])} on {where}"


def waiting_row(job: Job) -> list[str]:
    why = job["sentence"] or job["reason"]
    return [
        str(job["position"]), _name(job), job["user"] or "", job["project"] or "",
        str(job["priority"]), wants(job["wants"]), moments.age(job["since"]),
        _when(job["expected_start"]), why,
    ]  # fmt: skip


def running_row(job: Job) -> list[str]:
    return [
        _name(job), job["user"] or "", job["project"] or "", str(job["priority"]),
        wants(job["wants"]), job["state"], moments.age(job["since"]),
    ]  # fmt: skip


def wants(asked: Mapping[str, Any]) -> str:
    """`2 × · 16 GPU H200 · 8 CPU · 64G`: the gang, then all it asks for together."""
    words = [f"{asked['members']}×"]
    if asked["gpus"]:
        models = "/".join(asked["gpu_model"])
        words.append(f"{_number(asked['gpus'])} GPU{' ' + models if models else ''}")
    if asked["cpus"]:
        words.append(f"{_number(asked['cpus'])} CPU")
    if asked["memory"]:
        words.append(_size(asked["memory"]))
    return " ".join(words)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns that are empty throughout are left out."""
    keep = [at for at in range(len(head)) if any(row[at] for row in rows)]
    output.print_table(
        [head[at] for at in keep], [[row[at] for at in keep] for row in rows],
        spare=SPARE, indent=2,
    )  # fmt: skip


def bold(text: str) -> str:
    return click.style(text, bold=True) if output.colour_wanted() else text


def _name(job: Job) -> str:
    return job["name"] or "(of another project)"


def _when(iso: str | None) -> str:
    at = moments.seconds_of(iso)
    if at is None:
        return ""
    left = at - time.time()
    if left <= 0:
        return "now"
    return f"in {moments.span(left)}" if left >= 10 else "in seconds"


def _number(value: float) -> str:
    return f"{value:g}" if value < 100_000 else f"{value:.0f}"


def _size(value: float) -> str:
    size = float(value)
    for unit in ("B", "K", "M", "G", "T"):
        if size < 1024 or unit == "T":
            return f"{size:.4g}{unit}"
        size /= 1024
    return f"{size:.4g}P"
