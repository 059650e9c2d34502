"""`windlass rm`: remove finished jobs with their files."""

from __future__ import annotations

import click

from windlass.cli.asking import sure
from windlass.cli.session import LISTS, Session, job_argument, verb
from windlass.core.errors import Conflict


@verb("rm", outputs=LISTS)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say which, remove none.")
@job_argument(nargs=-1, required=True)
def command(session: Session, job: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Remove finished jobs with their files."""
    found = [session.client.jobs.get(session.ref(word)) for word in job]
    for item in found:
        if not item.done:
            raise Conflict(
                f"{item.name} is {item.state}", hint=f"windlass stop {item.name}, first"
            )
        session.say(f"- {item.name} {item.id[:12]} ({item.state}): logs, metrics, checkpoints")
    if not dry_run:
        sure("Remove for good?", "rm asks before it removes", yes=yes)
        for item in found:
            session.client.jobs.delete(item.id)
    if not session.plain:
        data = [item.data for item in found]
        session.items(data, ["ID", "NAME"], [[item.id, item.name] for item in found])
