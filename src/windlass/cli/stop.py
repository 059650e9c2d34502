"""`windlass stop`: ask jobs to stop."""

from __future__ import annotations

import click

from windlass.cli.session import LISTS, Session, job_argument, verb
from windlass.client.jobs import STATES
from windlass.core.errors import InvalidInput


@verb("stop", outputs=LISTS)
@click.option("--now", is_flag=True, help="Kill it, without time for a checkpoint.")
@click.option("--reason", default="", help="For the record.")
@click.option("--state", type=click.Choice(STATES[:5]), help="All jobs in this state.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask (with --state).")
@click.option("--dry-run", is_flag=True, help="Say which, stop none.")
@job_argument(nargs=-1)
def command(
    session: Session,
    job: tuple[str, ...],
    now: bool,
    reason: str,
    state: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Ask jobs to stop; they may save a checkpoint first.

    \b
    Examples:
      windlass stop -
      windlass stop brisk-otter --now
    """
    jobs = session.client.jobs
    if not job and not state:
        raise InvalidInput("stop which job?", hint="windlass stop -  stops the last one")
    refs = [session.ref(word) for word in job]
    if state:
        refs += [found.id for found in jobs.list(state=state, limit=10_000)]
        session.say(f"{len(refs)} job(s): {', '.join(ref[:12] for ref in refs[:20])}")
        if not yes and not dry_run:
            click.confirm("Stop them?", abort=True, err=True)
    if dry_run:
        found = [jobs.get(ref) for ref in refs]
    else:
        found = [jobs.stop(ref, reason=reason, now=now) for ref in refs]
    session.jobs(found, ["ID", "NAME", "STATE", "WISH"],
                 lambda item: [item.id[:12], item.name, item.state, item.wish or ""])  # fmt: skip
