"""`windlass import`: a job file of another system as one of ours, and a report of the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.session import WORDS, Session, verb
from windlass.core.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from windlass.client.importers.base import Imported


@verb("import", outputs=WORDS)
@click.option("-O", "--out", metavar="FILE", help="Write the job file here, not to stdout.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.argument("file")
def command(session: Session, file: str, out: str | None, force: bool) -> None:
    """Convert a job file of Kubeflow, Slurm or Determined.

    The job file goes to stdout; what was mapped, what was left out and what to do by hand goes to
    stderr. Nothing is submitted. FILE may be - for stdin.

    \b
    Examples:
      windlass import tfjob.yaml
      windlass import train.sbatch -O job.yaml
    """
    from windlass.client.importers.jobtext import render
    from windlass.client.importers.registry import convert

    if out is not None and Path(out).exists() and not force:
        raise Conflict(f"{out} is there already", hint="--force writes over it")
    jobs = convert(_read(file), file)
    source = "stdin" if file == "-" else Path(file).name
    text = render(jobs, source)
    if out is not None:
        Path(out).write_text(text, encoding="utf-8")
    data = [
        {"kind": job.kind, "spec": job.spec, "notes": [asdict(n) for n in job.notes]}
        for job in jobs
    ]
    if session.form != "table":
        session.one({"file": out, "jobs": data})
        return
    if out is None:
        click.echo(text, nl=False)
    _report(session, jobs, out)


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as err:
        why = getattr(err, "strerror", None) or str(err)
        raise InvalidInput(f"FILE: {file} cannot be read: {why}") from err


def _report(session: Session, jobs: Sequence[Imported], out: str | None) -> None:
    from windlass.client.importers.base import Fate

    heads = {
        Fate.MAPPED: ("mapped", "→"),
        Fate.DROPPED: ("left out", "·"),
        Fate.BY_HAND: ("to do by hand", "·"),
    }
    for job in jobs:
        session.say(f"{job.kind} {job.spec.get('name') or '(no name)'}")
        for fate, (head, mark) in heads.items():
            notes = job.having(fate)
            if notes:
                session.say(f"  {head}")
            for note in notes:
                session.say(f"    {note.field}: {note.value} {mark} {note.what}")
    if out is not None:
        session.say(f"wrote {out} · next: windlass apply -f {out} --dry-run")
