"""`windlass apply`: create what a YAML file describes, after showing a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windlass.cli import jobfile, jobflags
from windlass.cli import study as study_command
from windlass.cli.asking import sure
from windlass.cli.session import LISTS, Session, verb
from windlass.cli.specs import Flags, Plan, build
from windlass.client.bundle import Bundle
from windlass.client.config import loopback
from windlass.core.errors import NeverFits, Unauthenticated, Unreachable
from windlass.core.jobs import JobSpec


@verb("apply", outputs=LISTS)
@click.option("-f", "--file", required=True, metavar="FILE", help="YAML; - is stdin.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan, make nothing.")
def command(session: Session, file: str, yes: bool, dry_run: bool) -> None:
    """Create what a YAML file describes; shows a plan first.

    One file may hold several jobs and studies, with --- between them. `windlass init` writes an
    example.

    \b
    Examples:
      windlass apply -f job.yaml
      windlass apply -f job.yaml --dry-run
    """
    every = jobfile.read(file, kinds=("job", "study"))
    documents = [each for each in every if each.get("kind", "job") == "job"]
    local = loopback(session.config.get("url").value)
    folder = Path.cwd() if file == "-" else Path(file).absolute().parent
    for document in documents:
        jobfile.check(document, file)  # all, before the first is made
    studies = [_study(session, each, local, folder) for each in every if each not in documents]
    plans = [build(Flags(), local=local, base=base, folder=folder) for base in documents]
    bundles = [jobflags.pack(session, plan) for plan in plans]
    for plan in plans:
        jobflags.speak_for(session, plan)
        name = plan.spec.get("name") or "(a name will be made up)"
        starts = _starts(session, plan, dry_run)
        session.say(f"+ job {name}: {_command(plan)} · {len(plan.ranks)} rank(s) · {starts}")
    if dry_run:
        session.say("nothing was made (--dry-run)")
        return
    what = " and ".join(
        f"{len(found)} {noun}"
        for found, noun in ((plans, "job(s)"), (studies, "studies"))
        if found
    )
    sure(f"Create {what}?", "apply asks before it creates", yes=yes, deaf=file == "-")
    for spec, plan, bundle in studies:
        study = study_command.send(session, spec, plan, bundle)
        session.say(f"study {study.name} {study.state} · windlass study show {study.name}")
    if not plans:
        return
    jobs = [
        jobflags.send(session, plan, bundle) for plan, bundle in zip(plans, bundles, strict=True)
    ]
    session.jobs(jobs, ["ID", "NAME", "STATE"], lambda job: [job.id[:12], job.name, job.state])


def _starts(session: Session, plan: Plan, dry_run: bool) -> str:
    """Whether it would start now. A dry run is a look at the file, which may be meant for another
    place: that it can never start here, or that there is no server here, is told and no error."""
    try:
        return str(session.client.jobs.check(plan.spec)["starts"])
    except NeverFits as err:
        if not dry_run:
            raise
        return f"never, on this server: {err.message}"
    except (Unreachable, Unauthenticated) as err:
        if not dry_run or not session.config.local:
            raise
        return f"the file is well formed; nothing more is known: {err.message}"


def _command(plan: Plan) -> str:
    spec = JobSpec.model_validate(plan.spec)
    words = spec.run or next(role.run for role in spec.roles.values() if role.run)
    return " ".join(words)


def _study(
    session: Session, document: dict[str, Any], local: bool, folder: Path
) -> tuple[dict[str, Any], Plan, Bundle | None]:
    """Checked by the server, and told of."""
    document = study_command.filled(document, folder)
    spec, plan = study_command.planned(document, Flags(), local, folder)
    bundle = jobflags.pack(session, plan)
    answer = session.client.studies.check(spec)["spec"]
    name = answer["name"] or "(a name will be made up)"
    space = ", ".join(answer["space"])
    session.say(f"+ study {name}: {answer['trials']} trials over {space}")
    return spec, plan, bundle
