"""`windlass apply`: create what a YAML file describes, after showing a plan."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from windlass.cli import jobfile, jobflags
from windlass.cli.session import LISTS, Session, verb
from windlass.cli.specs import Flags, build
from windlass.client.config import loopback
from windlass.core.errors import InvalidInput


@verb("apply", outputs=LISTS)
@click.option("-f", "--file", required=True, metavar="FILE", help="YAML; - is stdin.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan, make nothing.")
def command(session: Session, file: str, yes: bool, dry_run: bool) -> None:
    """Create what a YAML file describes; shows a plan first.

    One file may hold several jobs, with --- between them. `windlass init` writes an example.

    \b
    Examples:
      windlass apply -f job.yaml
      windlass apply -f job.yaml --dry-run
    """
    documents = jobfile.read(file)
    local = loopback(session.config.get("url").value)
    folder = Path.cwd() if file == "-" else Path(file).absolute().parent
    for document in documents:
        jobfile.check(document, file)  # all, before the first is made
    plans = [build(Flags(), local=local, base=base, folder=folder) for base in documents]
    bundles = [jobflags.pack(session, plan) for plan in plans]
    for plan in plans:
        answer = session.client.jobs.check(plan.spec)
        name = plan.spec.get("name") or "(a name will be made up)"
        words = answer["spec"].get("run") or next(
            role["run"] for role in answer["spec"]["roles"].values() if role.get("run")
        )
        session.say(
            f"+ job {name}: {' '.join(words)} · {len(plan.ranks)} rank(s) · {answer['starts']}"
        )
    if dry_run:
        session.say("nothing was made (--dry-run)")
        return
    if not yes:
        if not sys.stdin.isatty() or file == "-":
            raise InvalidInput(
                "apply asks before it creates, and there is no one to ask", hint="-y"
            )
        click.confirm(f"Create {len(plans)} job(s)?", abort=True, err=True)
    jobs = [
        jobflags.send(session, plan, bundle) for plan, bundle in zip(plans, bundles, strict=True)
    ]
    session.jobs(jobs, ["ID", "NAME", "STATE"], lambda job: [job.id[:12], job.name, job.state])
