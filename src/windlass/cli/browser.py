"""`windlass browser`: where one is logged in with a browser (`windlass ui` logs one in)."""

from __future__ import annotations

import click

from windlass.cli import moments
from windlass.cli.session import LISTS, WORDS, Session, verb
from windlass.core.errors import InvalidInput

HEAD = ["ID", "HOW", "FROM", "SEEN", "AGE", "BROWSER"]


@click.group("browser")
def command() -> None:
    """Browsers you are logged in with."""


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """Your sessions, the one used last first.

    \b
    Examples:
      windlass browser ls
    """
    found = session.client.sessions.list()
    rows = [
        [
            each["id"], each["how"], each["address"], moments.age(each["seen"]),
            moments.age(each["created"]), each["browser"][:40],
        ]
        for each in found
    ]  # fmt: skip
    session.items(found, HEAD, rows)


@verb("end", outputs=WORDS, group=command)
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.argument("id", nargs=-1)
def end(session: Session, id: tuple[str, ...], every: bool) -> None:
    """End sessions: dead at once, on every server.

    \b
    Examples:
      windlass browser end 5f0c9d31f0f24b63a3e1a1a64f5cbb6d
      windlass browser end --all
    """
    if bool(id) == every:
        raise InvalidInput("which sessions?", hint="an id of `windlass browser ls`, or --all")
    if every:
        session.client.sessions.end_all()
        session.say("all sessions are over")
    for each in id:
        session.client.sessions.end(each)
        session.say(f"ended {each}")
