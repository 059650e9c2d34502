"""`windlass run`: submit a command as a job and follow it to its end."""

from __future__ import annotations

import sys
from typing import Any

import click

from windlass.cli import exits, follow, jobflags
from windlass.cli.session import WORDS, Session, verb
from windlass.core.errors import InvalidInput


@verb("run", outputs=WORDS, context_settings=jobflags.SETTINGS)
@jobflags.job_flags
@click.option("-d", "--detach", is_flag=True, help="Do not follow: the same as submit.")
@click.option("--offline", is_flag=True, help="Run it here, without a server; sync brings it in.")
def command(session: Session, dry_run: bool, detach: bool, offline: bool, **given: Any) -> None:
    """Run a command as a job and follow it.

    Flags first, then your own command, untouched. The exit code is the job's. Ctrl-C detaches,
    twice stops the job.

    \b
    Examples:
      windlass run train.py --lr 0.1
      windlass run --workers 4 --gpus 1 train.py --lr 0.1
      windlass run --memory 8GiB -- torchrun train.py
    """
    if offline:
        sys.exit(run_offline(session, given))
    plan, code = jobflags.plan_of(session, given)
    if dry_run:
        jobflags.dry_run(session, plan, code)
        return
    job = jobflags.send(session, plan, code)
    if detach:
        from windlass.cli.submit import announce

        announce(session, job, plan)
        return
    # With -o json stdout is the JSON's alone: what the job writes goes where our words go.
    screen = follow.Screen(plan.ranks, out=None if session.form == "table" else sys.stderr)
    if plan.why_framework and job.framework != "python":
        session.say(f"framework {job.framework}: {plan.why_framework}")
    if not session.quiet:
        screen.note(f"{job.name} {job.state} · {session.client.url}/jobs/{job.name}")
    if job.state == "held":
        session.say(f"held: `windlass release {job.name}` lets it start")
    code_of_job = follow.follow(session.client, job, screen, words=not session.quiet)
    if session.form != "table":
        session.quiet = False
        session.one(session.client.jobs.detail(job.id))
    sys.exit(code_of_job or exits.OK)


def run_offline(session: Session, given: dict[str, Any]) -> int:
    """Only the command, its name and its variables count: there is nobody to place a gang."""
    from windlass.cli import offline

    kept = {"command", "name", "env"}
    asked = [name for name, value in given.items() if value and name not in kept]
    if asked or not given["command"]:
        words = ", ".join("--" + name.replace("_", "-") for name in asked) or "no command"
        raise InvalidInput(
            f"--offline: {words}",
            hint="windlass run --offline -- python train.py --lr 0.1; it takes --name and --env",
        )
    variables = dict(pair.partition("=")[::2] for pair in given["env"] if "=" in pair)
    code, folder = offline.run(given["command"], given["name"], variables)
    session.say(f"kept in {folder}: `windlass sync {folder}` brings it to a server")
    return code
