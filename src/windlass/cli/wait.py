"""`windlass wait`: block until jobs are done."""

from __future__ import annotations

import sys

import click

from windlass.cli import exits, moments
from windlass.cli.session import LISTS, Session, job_argument, verb
from windlass.client.jobs import Job


@verb("wait", outputs=LISTS)
@click.option("--timeout", metavar="DURATION", help="Give up after this long (exit code 101).")
@job_argument(nargs=-1)
def command(session: Session, job: tuple[str, ...], timeout: str | None) -> None:
    """Block until a job is done; exits with its code.

    With several jobs, the code is that of the first that did not succeed.
    """
    seconds = moments.duration("--timeout", timeout) if timeout else None
    refs = [session.ref(word) for word in job or ("-",)]
    found: list[Job] = []
    code = exits.OK
    for ref in refs:
        try:
            found.append(session.client.jobs.wait(ref, timeout_seconds=seconds))
        except TimeoutError as err:
            session.say(f"windlass: {err}")
            found.append(session.client.jobs.get(ref))
        code = code or exits.of_job(found[-1])
    session.jobs(
        found,
        ["ID", "NAME", "STATE", "REASON"],
        lambda item: [item.id[:12], item.name, item.state, item.reason],
    )
    sys.exit(code)
