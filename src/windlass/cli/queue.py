"""`windlass queue`: where jobs wait, how they wait for each other, and the line as it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from windlass.cli.completion import complete_job, complete_queue
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, job_argument, verb
from windlass.client.jobs import Job
from windlass.client.queues import Queue
from windlass.core.errors import InvalidInput

POLICIES = ("strict", "backfill", "best-effort")
HEAD = ["NAME", "POLICY", "STATE", "WAITING", "RUNNING", "DESCRIPTION"]
DEFAULT = "default"


@click.group("queue")
def command() -> None:
    """Where jobs wait: the line, its order, pause and resume."""


def name_argument(**settings: Any) -> Callable[..., Any]:
    return click.argument("name", metavar="NAME", shell_complete=complete_queue, **settings)


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """The queues: who waits and runs in each."""
    queues = session.client.queues.list()
    session.items([queue.data for queue in queues], HEAD, [row(queue) for queue in queues])


@verb("show", outputs=WORDS, group=command, quiet=False)
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=50, help="At most so many.")
@name_argument(required=False, default=DEFAULT)
def show(session: Session, name: str, limit: int) -> None:
    """The line of a queue: who is next, why each waits, when it should start.

    \b
    Examples:
      windlass queue show
      windlass queue show research -o json
    """
    line = session.client.queues.line(name, limit=limit)
    if session.one(line):
        return
    from windlass.cli import queueline

    queueline.draw(line)


@verb("set", outputs=OBJECTS, group=command)
@click.option("--policy", type=click.Choice(POLICIES), help="How jobs wait for each other.")
@click.option("--description", help="For people.")
@click.option("--pause/--resume", "paused", default=None, help="Whether anything of it starts.")
@name_argument()
def set_(
    session: Session,
    name: str,
    policy: str | None,
    description: str | None,
    paused: bool | None,
) -> None:
    """Make a queue, or change one; what is not named stays.

    strict: nobody passes the first. backfill: others may start if they do not delay it.
    best-effort: whoever fits starts.

    \b
    Examples:
      windlass queue set nightly --policy strict --description "long runs"
      windlass queue set nightly --pause
    """
    queue = session.client.queues.set(name, policy=policy, description=description, paused=paused)
    _told(session, queue)


@verb("rm", outputs=WORDS, group=command)
@name_argument(nargs=-1, required=True)
def rm(session: Session, name: tuple[str, ...]) -> None:
    """Remove queues that have no unfinished job."""
    for each in name:
        session.client.queues.delete(each)
        session.say(f"removed {each}")


@verb("pause", outputs=OBJECTS, group=command)
@name_argument(required=False, default=DEFAULT)
def pause(session: Session, name: str) -> None:
    """Let nothing more of a queue start; what runs goes on."""
    _told(session, session.client.queues.pause(name))


@verb("resume", outputs=OBJECTS, group=command)
@name_argument(required=False, default=DEFAULT)
def resume(session: Session, name: str) -> None:
    """Let a paused queue go on."""
    _told(session, session.client.queues.resume(name))


@verb("move", outputs=OBJECTS, group=command)
@click.option("--before", metavar="JOB", shell_complete=complete_job, help="Before this one.")
@click.option("--first", is_flag=True, help="To the front of its queue.")
@click.option("--last", is_flag=True, help="To the end of its queue.")
@job_argument()
def move(session: Session, job: str, before: str | None, first: bool, last: bool) -> None:
    """Put a waiting job elsewhere in its queue.

    It takes the priority of its new neighbour.

    \b
    Examples:
      windlass queue move brisk-otter --first
      windlass queue move brisk-otter --before calm-heron
    """
    if (before is not None) + first + last != 1:
        raise InvalidInput("move it where?", hint="one of --first, --last, --before JOB")
    moved = session.client.jobs.move(
        session.ref(job), before=session.ref(before) if before else None, first=first, last=last
    )
    _job(session, moved)


@verb(
    "priority", outputs=OBJECTS, group=command, context_settings={"ignore_unknown_options": True}
)
@job_argument()
@click.argument("priority", type=int, metavar="PRIORITY")
def priority(session: Session, job: str, priority: int) -> None:
    """Give an unfinished job another priority; higher goes first.

    \b
    Examples:
      windlass queue priority brisk-otter 80
    """
    _job(session, session.client.jobs.priority(session.ref(job), priority))


def row(queue: Queue) -> list[Any]:
    return [
        queue.name, queue.policy, "paused" if queue.paused else "open", queue.waiting or "",
        queue.running or "", queue.description,
    ]  # fmt: skip


def _told(session: Session, queue: Queue) -> None:
    if session.one(queue.data):
        return
    state = "paused" if queue.paused else "open"
    click.echo(f"{queue.name}: {queue.policy}, {state} · {queue.waiting} waiting")


def _job(session: Session, job: Job) -> None:
    if session.one(job.data):
        return
    click.echo(f"{job.name}: priority {job.priority} in queue {job.queue} · {job.state}")
    session.say(f"see it: windlass queue show {job.queue}")
