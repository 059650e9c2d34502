"""`windlass ps`: jobs, newest first."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli import moments
from windlass.cli.follow import waits
from windlass.cli.session import LISTS, Session, verb
from windlass.client.jobs import STATES, Job

HEAD = ["ID", "NAME", "STATE", "MEMBERS", "GPUS", "TRY", "STEP", "AGE", "TOOK", "REASON"]


SPARE = ("TOOK", "TRY", "MEMBERS", "GPUS", "STEP", "AGE")
"""What is left out first where the terminal is narrow."""


def reason(job: Job) -> str:
    """Why it is as it is; of a job that waits, why it waits."""
    return waits(job.data).removeprefix("waits: ") if job.waits else job.reason


def row(job: Job) -> list[Any]:
    step = job.step if job.step is not None else ""
    if job.progress is not None:
        step = f"{step} {job.progress:.0%}".strip()
    return [
        job.id[:12], job.name, job.state, job.members, job.gpus or "", job.attempt or "", step,
        moments.age(job.submitted), moments.between(job.started, job.ended), reason(job),
    ]  # fmt: skip


def cell(job: Job, column: str) -> Any:
    """`params.lr`, `metrics.loss` (the last value), `min.loss`, `max.acc`."""
    kind, _, key = column.partition(".")
    key = key.strip('"`')
    if kind == "params":
        return job.data.get("params", {}).get(key, {}).get("value", "")
    told = job.data.get("metrics", {}).get(key, {})
    value = told.get(kind if kind in ("min", "max") else "last", "")
    return f"{value:.6g}" if isinstance(value, float) else value


@verb("ps", outputs=LISTS)
@click.option("-a", "--all", "everyone", is_flag=True, help="Finished ones too.")
@click.option("--state", type=click.Choice(STATES), help="Only this state.")
@click.option("--user", help="Only of this user.")
@click.option("--name", help="Only with this name.")
@click.option(
    "--filter", "chosen", metavar="TEXT", help="Such as 'metrics.loss < 0.3 and gpus > 1'."
)
@click.option("--sort", metavar="KEY", help="Such as -metrics.loss, params.lr, -duration.")
@click.option("--columns", metavar="KEY,…", help="Such as params.lr,metrics.loss,max.acc.")
@click.option("-n", "--limit", type=click.IntRange(1, 10000), default=50, help="At most.")
def command(
    session: Session,
    everyone: bool,
    state: str | None,
    user: str | None,
    name: str | None,
    chosen: str | None,
    sort: str | None,
    columns: str | None,
    limit: int,
) -> None:
    """Jobs, newest first.

    \b
    Examples:
      windlass ps
      windlass ps --state failed -o json
      windlass ps --filter 'metrics.loss < 0.3' --sort metrics.loss --columns params.lr
      windlass stop $(windlass ps -q --state queued)
    """
    shown = [word.strip() for word in (columns or "").split(",") if word.strip()]
    jobs = session.client.jobs.list(
        state=state, user=user, name=name, filter=chosen, sort=sort, columns=shown, limit=limit
    )
    if not (everyone or state or chosen or sort):
        live = [job for job in jobs if not job.done]
        recent_done = [job for job in jobs if job.done][: max(0, 10 - len(live))]
        kept = {job.id for job in live + recent_done}
        hidden = len(jobs) - len(kept)
        jobs = [job for job in jobs if job.id in kept]
        if hidden and session.plain:
            session.say(f"{hidden} finished jobs are not shown: -a shows them")
    if not jobs and session.plain:
        found = state or user or name or chosen
        session.say("no job is like that" if found else "no jobs yet: windlass run train.py")
        return
    head = [*HEAD[:-1], *shown, HEAD[-1]]

    def wide(job: Job) -> list[Any]:
        *facts, reason = row(job)
        return [*facts, *(cell(job, column) for column in shown), reason]

    session.jobs(jobs, head, wide, spare=SPARE)
