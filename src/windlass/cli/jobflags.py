"""The flags that describe a job, shared by `run` and `submit`, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from windlass.cli import specs
from windlass.cli.completion import complete_job, complete_queue
from windlass.cli.session import Session
from windlass.cli.specs import Flags, Plan, build
from windlass.client import recent
from windlass.client.bundle import Bundle, scan
from windlass.client.config import loopback
from windlass.client.http import new_key
from windlass.client.jobs import Job
from windlass.core.errors import InvalidInput, Unauthenticated, Unreachable

SETTINGS = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
"""Flags first; from the first word on, all is the user's own command, untouched."""

WORKS = ("train", "notebook", "serve")
LEVELS = ("host", "rack", "block", "host!", "rack!", "block!")


def job_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS: list[Callable[..., Any]] = [
    click.option("-w", "--workers", type=click.IntRange(1), help="Members of the role `worker`."),
    click.option("--nproc", type=click.IntRange(1), help="Ranks of each member."),
    click.option("-g", "--gpus", type=click.IntRange(0), help="GPUs of each member."),
    click.option(
        "--gpu-share", type=float, metavar="PART", help="A part of one GPU, such as 0.25."
    ),
    click.option(
        "--gpu-model", multiple=True, metavar="NAME", help="A GPU model it may run on; repeat."
    ),
    click.option("--cpus", type=click.FloatRange(0), help="CPUs of each member."),
    click.option("--memory", metavar="SIZE", help="Memory of each member, such as 8GiB."),
    click.option(
        "--role", multiple=True, metavar="NAME=N,…", help="A role: chief=1, ps=2,memory=4GiB."
    ),
    click.option("-n", "--name", help="The job's name; made up when absent."),
    click.option("--engine", metavar="NAME", help="Where it runs; else wherever it fits."),
    click.option("--framework", metavar="NAME", help="How ranks start; guessed when absent."),
    click.option("-e", "--env", multiple=True, metavar="K[=V]", help="A variable of the ranks."),
    click.option("--secret", multiple=True, metavar="NAME", help="A secret the ranks find."),
    click.option("-p", "--param", multiple=True, metavar="K=V", help="A parameter; ${K} uses it."),
    click.option("--time", metavar="DURATION", help="Stop after this long, such as 6h."),
    click.option("--retries", type=click.IntRange(0), help="How often a failure is tried again."),
    click.option(
        "--retry-on",
        multiple=True,
        metavar="RULE",
        help="lost, oom, hung, signal, failed, exit:N, log:RE.",
    ),
    click.option("--idle", metavar="DURATION", help="Silent this long is reported as hung."),
    click.option("--grace", metavar="DURATION", help="From the stop signal to the kill."),
    click.option("--hold", is_flag=True, help="Do not start before `windlass release`."),
    click.option("--priority", type=int, help="Higher goes first."),
    click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="The queue."),
    click.option("--not-preemptible", is_flag=True, help="Not to be ended to make room."),
    click.option("--work", type=click.Choice(WORKS), help="The kind of work, for caps."),
    click.option(
        "--after", multiple=True, metavar="JOB", shell_complete=complete_job,
        help="Start once this job has succeeded.",
    ),
    click.option(
        "--from-job", metavar="JOB[:STEP]", shell_complete=complete_job,
        help="Start from a checkpoint of this job, at $WINDLASS_START_FROM.",
    ),
    click.option(
        "--from-model", metavar="NAME@ALIAS",
        help="Start from a registered model, at $WINDLASS_START_FROM.",
    ),
    click.option("--begin", metavar="TIME", help="Not before: ISO-8601, or from now, such as 2h."),
    click.option(
        "--placement", metavar="LEVEL", type=click.Choice(LEVELS),
        help="Members near each other: host, rack or block; with ! rather wait than spread.",
    ),
    click.option("--code", metavar="DIR", help="The directory to send; else the current one."),
    click.option("--no-code", is_flag=True, help="Send none."),
    click.option(
        "--workdir", metavar="DIR",
        help="Where in the code it runs; else where you stand, or its top.",
    ),
    click.option(
        "--include", multiple=True, metavar="PATTERN",
        help="Send it though it is large or ignored; repeat.",
    ),
    click.option("--here", is_flag=True, help="Run in this very folder: nothing is sent."),
    click.option(
        "--git", metavar="URL[#REF]",
        help="The code is in this repository: the nodes fetch the branch, tag or commit.",
    ),
    click.option("--package-path", metavar="DIR", help="A Python package to send and run."),
    click.option("--module-name", metavar="PKG.MOD", help="Its module to run."),
    click.option("--job-dir", metavar="DIR", help="Given to it as its last argument, --job-dir."),
    click.option("-f", "--file", metavar="FILE", help="A job file as the base; flags win."),
    click.option("--dry-run", is_flag=True, help="Check it, make nothing."),
    click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND …"),
]  # fmt: skip


def plan_of(session: Session, given: dict[str, Any]) -> tuple[Plan, Bundle | None]:
    """The job that the flags describe, and its code, read and hashed."""
    file = given.pop("file", None)
    given["after"] = tuple(session.ref(word) for word in given.get("after", ()))
    if given.get("from_job"):
        job, colon, step = given["from_job"].partition(":")
        given["from_job"] = session.ref(job) + colon + step
    base, folder = None, None
    if file:
        from windlass.cli import jobfile

        documents = jobfile.read(file)
        if len(documents) > 1:
            raise InvalidInput(
                f"-f: {file} has {len(documents)} jobs; `windlass apply -f` takes several"
            )
        base = documents[0]
        jobfile.check(
            base if not given["command"] else {**base, "run": list(given["command"])}, file
        )
        folder = None if file == "-" else Path(file).absolute().parent
    plan = build(
        Flags(**given), local=loopback(session.config.get("url").value), base=base, folder=folder
    )
    for notice in plan.notices:
        session.say(notice)
    return plan, pack(session, plan)


def pack(session: Session, plan: Plan) -> Bundle | None:
    if plan.code is None:
        return None
    about = plan.spec.get("code") or {}
    bundle = scan(
        plan.code, ignore=about.get("ignore", ()), include=about.get("include", ()), made=plan.made
    )
    for note in bundle.notes[:5]:
        session.say(note)
    if len(bundle.notes) > 5:
        session.say(f"… and {len(bundle.notes) - 5} more left out")
    return bundle


def send(session: Session, plan: Plan, code: Bundle | None) -> Job:
    """Submit; a server of this machine that is not up is started first."""
    key = new_key()
    speak_for(session, plan)
    if session.config.local:
        session.client.http.patience_seconds = 0.2  # why wait for what we can start ourselves
    try:
        job = session.client.jobs.submit(plan.spec, code=code, idempotency_key=key)
    except (Unreachable, Unauthenticated) as err:
        if not session.config.local:
            raise
        from windlass.cli import local, told

        if isinstance(err, Unauthenticated) and local.find():
            raise  # it is up: what is missing is not a server
        session.say("starting the server …")
        local.begin(local.with_port(told.kept(), session.say))
        session.reload()
        speak_for(session, plan)
        job = session.client.jobs.submit(plan.spec, code=code, idempotency_key=key)
    recent.remember(session.client.url, [job], submitted=True)
    return job


def speak_for(session: Session, plan: Plan) -> None:
    """A job file may name its project: the flag and the environment win, else it is the one that
    this call is about to its end."""
    named, given = plan.spec.get("project"), session.config.get("project")
    if named and given.origin in ("flag", "env"):
        plan.spec["project"] = given.value
    elif named:
        session.client.http.project = named


def dry_run(session: Session, plan: Plan, code: Bundle | None) -> None:
    speak_for(session, plan)
    answer = session.client.jobs.check(plan.spec)
    if session.one(answer):
        return
    count = f"{len(code.files)} files, {code.size:,} bytes" if code else "no code"
    click.echo(f"would submit ({count}); starts {answer.get('starts', 'now')}")
    if answer.get("sentence"):
        session.say(f"it would wait: {answer['sentence']}")
    for less in answer.get("smaller", ()):
        session.say(f"would start now: {less['count']} × {less['gpus']} GPUs")
    session.say(specs.threads_of(answer.get("spec") or plan.spec))
    from windlass.cli import output

    output.print_yaml(answer.get("spec") or plan.spec)
