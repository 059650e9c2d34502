"""`windlass checkpoint`: what a job has saved, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from windlass.cli import moments, output
from windlass.cli.asking import sure
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, job_argument, verb

HEAD = ["STEP", "TRY", "SAVED", "SIZE", "STATE", "HELD BY", "METRICS"]
SHOWN_METRICS = 4


@click.group("checkpoint")
def command() -> None:
    """What jobs have saved: list, show, download, remove."""


def step_argument(**settings: Any) -> Callable[..., Any]:
    return click.argument("step", metavar="STEP", **settings)


@verb("ls", outputs=LISTS, group=command)
@job_argument()
def ls(session: Session, job: str) -> None:
    """A job's checkpoints, newest first, with the metrics at each."""
    found = session.client.checkpoints.list(session.ref(job))
    data = [{"name": str(each["step"]), **each} for each in found]
    session.items(data, HEAD, [row(each) for each in found])


@verb("show", outputs=OBJECTS, group=command)
@job_argument()
@step_argument(required=False, default="latest")
def show(session: Session, job: str, step: str) -> None:
    """One checkpoint: files, digests, metrics.

    \b
    Examples:
      windlass checkpoint show -
      windlass checkpoint show brisk-otter 4000
      windlass checkpoint show brisk-otter best
    """
    found = session.client.checkpoints.get(session.ref(job), step)
    if session.one({"name": str(found["step"]), **found}):
        return
    for line in facts(found):
        click.echo(line)
    click.echo()
    files = [
        [file["path"], output.megabytes(file["bytes"]), file["digest"]] for file in found["files"]
    ]
    output.print_table(["FILE", "SIZE", "SHA-256"], files, colour=None)


@verb("get", outputs=WORDS, group=command)
@click.option("-d", "--dir", "folder", metavar="DIR", help="Into this folder.")
@job_argument()
@step_argument(required=False, default="latest")
def get(session: Session, job: str, step: str, folder: str | None) -> None:
    """Download a checkpoint; each file's digest is checked.

    Again after a broken connection, it goes on where it stood.

    \b
    Examples:
      windlass checkpoint get brisk-otter
      windlass checkpoint get brisk-otter best --dir best-model
    """
    ref = session.ref(job)
    if folder is None:
        found = session.client.checkpoints.get(ref, step)
        folder, step = f"{job if job != '-' else ref[:12]}-step-{found['step']}", step
    told = (lambda file: session.say(f"  {file['path']}")) if session.plain else None
    found = session.client.checkpoints.download(ref, step, folder, told)
    if session.one({"name": folder, **found}):
        return
    click.echo(str(Path(folder)))
    session.say(f"step {found['step']}, {output.megabytes(found['bytes'])}, digests hold")


@verb("rm", outputs=WORDS, group=command)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@job_argument()
@step_argument(nargs=-1, required=True)
def rm(session: Session, job: str, step: tuple[str, ...], yes: bool) -> None:
    """Remove checkpoints that nobody needs.

    Not the one that an unfinished job goes on from, nor one that another job starts from.

    \b
    Examples:
      windlass checkpoint rm brisk-otter 1000 2000
    """
    ref = session.ref(job)
    which = ", ".join(step)
    sure(f"Remove checkpoint {which} of {job} for good?", "rm asks before it removes", yes=yes)
    for each in step:
        session.client.checkpoints.delete(ref, each)
        session.say(f"removed {each}")


def row(found: Mapping[str, Any]) -> list[Any]:
    return [
        found["step"], found["attempt"], f"{moments.age(found['registered'])} ago",
        output.megabytes(found["bytes"]), state_of(found), ",".join(found["held_by"]),
        metrics_of(found, SHOWN_METRICS),
    ]  # fmt: skip


def state_of(found: Mapping[str, Any]) -> str:
    return "bad" if found["bad"] else "good"


def metrics_of(found: Mapping[str, Any], most: int) -> str:
    values = found.get("metrics") or {}
    words = [
        f"{output.tame(key)}={'NaN' if value is None else format(value, '.5g')}"
        for key, value in list(values.items())[:most]
    ]
    return " ".join(words) + (" …" if len(values) > most else "")


def facts(found: Mapping[str, Any]) -> list[str]:
    by = "windlass.checkpoint" if found["source"] == "windlass" else "the script's own files"
    parts = f" · parts of {found['ranks']} ranks" if found["ranks"] else ""
    verified = f"{moments.age(found['verified'])} ago" if found["verified"] else ""
    rows = [
        (
            "saved",
            f"{moments.age(found['registered'])} ago by try {found['attempt']}, {by}{parts}",
        ),
        ("size", output.megabytes(found["bytes"])),
        ("digest", found["digest"]),
        ("verified", verified),
        ("bad", found["bad"] or ""),
        ("held by", ", ".join(found["held_by"])),
        ("metrics", metrics_of(found, 64)),
        ("path", output.tame(found["path"])),
    ]
    return [f"step {found['step']}", *(f"  {name:<9} {text}" for name, text in rows if text)]
