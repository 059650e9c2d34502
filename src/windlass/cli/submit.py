"""`windlass submit`: run, detached."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli import jobflags
from windlass.cli.session import OBJECTS, Session, verb
from windlass.cli.specs import Plan
from windlass.client.jobs import Job


@verb("submit", outputs=OBJECTS, context_settings=jobflags.SETTINGS)
@jobflags.job_flags
def command(session: Session, dry_run: bool, **given: Any) -> None:
    """The same as run, detached: prints the id.

    \b
    Examples:
      windlass submit train.py --lr 0.1
      id=$(windlass submit -q --gpus 1 train.py) && windlass wait $id
    """
    plan, code = jobflags.plan_of(session, given)
    if dry_run:
        jobflags.dry_run(session, plan, code)
        return
    announce(session, jobflags.send(session, plan, code), plan)


def announce(session: Session, job: Job, plan: Plan) -> None:
    if session.one(job.data):
        return
    click.echo(job.id)
    why = f" · {job.framework} ({plan.why_framework})" if plan.why_framework else ""
    session.say(f"{job.name} {job.state}{why} · follow: windlass logs -f {job.name}")
