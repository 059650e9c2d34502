"""`windlass why`: one sentence, the evidence, the next step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from windlass.cli.output import safe
from windlass.cli.session import WORDS, Session, job_argument, verb


@verb("why", outputs=WORDS)
@job_argument(default="-")
def command(session: Session, job: str) -> None:
    """Why it waits, failed, is slow or was stopped."""
    why = session.client.jobs.why(session.ref(job))
    if session.form != "table":
        session.one(why)
        return
    for line in lines(why, brief=session.quiet):
        click.echo(line)


def lines(why: Mapping[str, Any], *, brief: bool = False) -> list[str]:
    found = str(why.get("sentence") or why.get("state")).split("\n")
    if brief:
        return [safe(line) for line in found]
    for item in why.get("evidence") or ():
        first, *rest = str(item).splitlines() or [""]
        found += [f"  - {first}", *(f"    {line}" for line in rest)]
    if why.get("next"):
        found.append(f"  next: {why['next']}")
    return [safe(line) for line in found]
