"""`windlass debug`: look into a running job without changing its code."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.session import WORDS, Session, job_argument, verb


@click.group("debug")
def command() -> None:
    """Look into a running job: stack, profile, attach."""


def _rank(function: Any) -> Any:
    return click.option("--rank", type=click.IntRange(0), help="Only this rank.")(function)


@verb("stack", outputs=WORDS, group=command)
@_rank
@job_argument()
def stack(session: Session, job: str, rank: int | None) -> None:
    """Where every rank is now: its Python stack."""
    answer = session.client.jobs.debug(session.ref(job), "stack", rank=rank)
    if session.form != "table":
        session.one(answer)
        return
    for item in answer.get("ranks") or ():
        click.echo(f"rank {item['rank']}")
        click.echo("\n".join("  " + line for line in str(item.get("text", "")).splitlines()))


@verb("profile", outputs=WORDS, group=command)
@_rank
@click.option("--seconds", type=click.IntRange(1, 600), default=10, help="Sample for so long.")
@click.option("--out", metavar="PREFIX", default="profile", help="Files: PREFIX-RANK.svg.")
@job_argument()
def profile(session: Session, job: str, rank: int | None, seconds: int, out: str) -> None:
    """A flame graph of each rank, as SVG files."""
    session.say(f"sampling for {seconds} s …")
    ref = session.ref(job)
    answer = session.client.jobs.debug(ref, "profile", rank=rank, seconds=seconds)
    files = []
    for item in answer.get("ranks") or ():
        path = f"{out}-{item['rank']}.svg"
        if item.get("svg"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(item["svg"])
            files.append({"rank": item["rank"], "file": path})
        else:
            session.say(f"rank {item['rank']}: {item.get('text') or 'no samples'}")
    if session.form != "table":
        session.one({"ranks": files})
        return
    for entry in files:
        click.echo(entry["file"])


@verb("attach", outputs=WORDS, group=command)
@_rank
@job_argument()
def attach(session: Session, job: str, rank: int | None) -> None:
    """Open a debugger port in a rank, for an IDE."""
    answer = session.client.jobs.debug(session.ref(job), "attach", rank=rank)
    if session.form != "table":
        session.one(answer)
        return
    for item in answer.get("ranks") or ():
        if item.get("port"):
            click.echo(f"rank {item['rank']}  {item.get('host')}:{item.get('port')}")
        else:
            session.say(f"rank {item['rank']}: {item.get('text') or 'could not be attached to'}")
    session.say('in VS Code: {"type": "debugpy", "request": "attach", "connect": {host, port}}')
