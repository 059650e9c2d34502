"""`windlass ps`: jobs, newest first."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli import moments
from windlass.cli.session import LISTS, Session, verb
from windlass.client.jobs import STATES, Job

HEAD = ["ID", "NAME", "STATE", "MEMBERS", "GPUS", "TRY", "STEP", "AGE", "TOOK", "REASON"]


def row(job: Job) -> list[Any]:
    step = job.step if job.step is not None else ""
    if job.progress is not None:
        step = f"{step} {job.progress:.0%}".strip()
    return [
        job.id[:12], job.name, job.state, job.members, job.gpus or "", job.attempt or "", step,
        moments.age(job.submitted), moments.between(job.started, job.ended), job.reason,
    ]  # fmt: skip


@verb("ps", outputs=LISTS)
@click.option("-a", "--all", "everyone", is_flag=True, help="Finished ones too.")
@click.option("--state", type=click.Choice(STATES), help="Only this state.")
@click.option("--user", help="Only of this user.")
@click.option("--name", help="Only with this name.")
@click.option("-n", "--limit", type=click.IntRange(1, 10000), default=50, help="At most.")
def command(
    session: Session,
    everyone: bool,
    state: str | None,
    user: str | None,
    name: str | None,
    limit: int,
) -> None:
    """Jobs, newest first.

    \b
    Examples:
      windlass ps
      windlass ps --state failed -o json
      windlass stop $(windlass ps -q --state queued)
    """
    given = session.config.get("project")
    jobs = session.client.jobs.list(
        state=state,
        user=user,
        name=name,
        project=given.value if given.origin == "flag" else None,
        limit=limit,
    )
    if not everyone and not state:
        live = [job for job in jobs if not job.done]
        recent_done = [job for job in jobs if job.done][: max(0, 10 - len(live))]
        shown = {job.id for job in live + recent_done}
        hidden = len(jobs) - len(shown)
        jobs = [job for job in jobs if job.id in shown]
        if hidden and session.plain:
            session.say(f"{hidden} finished jobs are not shown: -a shows them")
    if not jobs and session.plain:
        session.say("no jobs yet: windlass run train.py")
        return
    session.jobs(jobs, HEAD, row)
