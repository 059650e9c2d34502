"""`windlass rerun`: the same job again, with changes."""

from __future__ import annotations

import sys
from typing import Any

import click

from windlass.cli import follow
from windlass.cli.folders import repository
from windlass.cli.session import OBJECTS, Session, job_argument, verb
from windlass.cli.specs import pair, ranks_of, step_of, value_of
from windlass.client import recent


@verb("rerun", outputs=OBJECTS)
@click.option("-f", "--follow", "following", is_flag=True, help="Follow the new job.")
@click.option("-w", "--workers", type=click.IntRange(1), help="With so many workers.")
@click.option("-g", "--gpus", type=click.IntRange(0), help="With so many GPUs each.")
@click.option("--memory", metavar="SIZE", help="With so much memory each.")
@click.option("-n", "--name", help="Under this name.")
@click.option("--priority", type=int, help="With this priority.")
@click.option(
    "--from",
    "beginning",
    metavar="step=N|latest|best",
    help="Go on from a checkpoint of the job, not from the beginning.",
)
@click.option("--git", metavar="URL[#REF]", help="With the code of this repository.")
@job_argument(default="-")
@click.argument("param", nargs=-1, metavar="[K=V] …")
def command(
    session: Session,
    job: str,
    param: tuple[str, ...],
    following: bool,
    workers: int | None,
    gpus: int | None,
    memory: str | None,
    name: str | None,
    priority: int | None,
    beginning: str | None,
    git: str | None,
) -> None:
    """Again, with changes: rerun JOB lr=0.01.

    A parameter is one that the job declared, or one in its command (--lr 0.1, lr=0.1). The code
    is that of the first run, not that of today; of a repository, the same commit.

    \b
    Examples:
      windlass rerun
      windlass rerun lr=0.01
      windlass rerun brisk-otter --memory 48GiB
      windlass rerun brisk-otter --from step=4000
      windlass rerun brisk-otter --from best --workers 8 lr=0.001
    """
    if "=" in job:  # no job is called so: it is the first change, of the newest job
        job, param = "-", (job, *param)
    jobs = session.client.jobs
    ref = session.ref(job)
    changes: dict[str, Any] = {}
    if name:
        changes["name"] = name
    if git:
        changes["code"] = {"ref": None, **repository(git)}
    if beginning:
        word = beginning.removeprefix("step=")
        step = step_of("--from", word)
        changes["start_from"] = {
            "job": jobs.get(ref).id, "step": step, "model": None, "resume": True,
        }  # fmt: skip
        note_parts(session, ref, word)
    given = {"count": workers, "gpus": gpus, "memory": memory}
    given = {key: value for key, value in given.items() if value is not None}
    if given or priority is not None:
        spec = jobs.detail(ref)["spec"]
        if given:
            roles = dict(spec.get("roles") or {})
            roles["worker"] = {**(roles.get("worker") or {}), **given}
            changes |= {"roles": roles, "workers": None}
        if priority is not None:
            changes["queue"] = {**(spec.get("queue") or {}), "priority": priority}
    params = {key: value_of(value) for key, value in (pair("parameter", text) for text in param)}
    new = jobs.rerun(ref, params=params, changes=changes)
    recent.remember(session.client.url, [new], submitted=True)
    if following:
        ranks = ranks_of(jobs.detail(new.id)["spec"])
        sys.exit(follow.follow(session.client, new, follow.Screen(ranks)))
    if not session.one(new.data):
        click.echo(new.id)
        session.say(f"{new.name} {new.state} · follow: windlass logs -f {new.name}")


def note_parts(session: Session, ref: str, step: str) -> None:
    """Parts that ranks saved each for itself fit as many ranks again, and no other number."""
    found = session.client.checkpoints.get(ref, step)
    if found["ranks"]:
        session.say(
            f"this checkpoint has the parts of {found['ranks']} ranks: with another number the "
            "script must deal them anew itself (windlass.train loads its own at any size)"
        )
