"""`windlass limit`: how many live jobs projects and users may have."""

from __future__ import annotations

from collections.abc import Sequence

import click

from windlass.cli import output
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.client.limits import ProjectLimits

HEAD = ["PROJECT", "LIMIT ON", "JOBS", "LIVE"]
WORKS = ("train", "notebook", "serve")


@click.group("limit")
def command() -> None:
    """How many live jobs projects and users may have.

    A limit refuses at submit; a quota (`windlass quota`) makes jobs wait. A job is live from its
    submit to its end.
    """


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """The limits, with how many jobs count against each now.

    \b
    Examples:
      windlass limit ls
      windlass limit ls -o json
    """
    found = session.client.limits.list()
    named = [{"name": each.project, **each.data} for each in found]
    session.items(named, HEAD, _rows(found, session.form != "csv"))
    if session.plain and not found:
        session.say("no limits. `windlass limit set PROJECT --jobs 100`")


@verb("set", outputs=OBJECTS, group=command)
@click.option("--jobs", type=click.IntRange(min=0), required=True, help="So many live jobs.")
@click.option("--user", metavar="NAME", help="Of this user; *: of each user, by itself.")
@click.option("--kind", type=click.Choice(WORKS), help="Of this kind of work.")
@click.argument("name", metavar="PROJECT")
def set_(session: Session, name: str, jobs: int, user: str | None, kind: str | None) -> None:
    """Set one limit of a project; effective at once. Nothing that runs is ended.

    PROJECT '*' holds for each project that has no such limit of its own.

    \b
    Examples:
      windlass limit set vision --jobs 100
      windlass limit set vision --user '*' --jobs 10
      windlass limit set '*' --kind notebook --user '*' --jobs 1
    """
    found = session.client.limits.set(name, jobs, user=user, kind=kind)
    if not session.one(found.data):
        output.print_table(HEAD, _rows([found], True), colour=None)


@verb("rm", outputs=WORDS, group=command)
@click.option("--user", metavar="NAME", help="Only the limit of this user; *: of each user.")
@click.option("--kind", type=click.Choice(WORKS), help="Only the limit of this kind of work.")
@click.argument("name", metavar="PROJECT")
def rm(session: Session, name: str, user: str | None, kind: str | None) -> None:
    """Remove the limits of a project, or one of them.

    \b
    Examples:
      windlass limit rm vision
      windlass limit rm vision --user ann
    """
    if user is None and kind is None:
        session.client.limits.delete(name)
    else:
        session.client.limits.set(name, None, user=user, kind=kind)
    session.say(f"removed from {name}")


def _rows(found: Sequence[ProjectLimits], below_each_other: bool) -> list[list[object]]:
    from windlass.core.limits import whom

    return [
        [
            "" if at and below_each_other else each.project,
            whom(limit.get("user"), limit.get("kind")),
            limit["jobs"],
            "" if limit.get("live") is None else limit["live"],
        ]
        for each in found
        for at, limit in enumerate(each.limits)
    ]
