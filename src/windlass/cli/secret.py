"""`windlass secret`: values that jobs find in their environment, and nobody reads again."""

from __future__ import annotations

import sys

import click

from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.core.errors import InvalidInput

HEAD = ["NAME", "OF", "VERSION", "CHANGED", "BY"]
SHORTEST_MASKED = 4
"""A value with fewer characters would turn half of the output into stars: it is not masked."""


@click.group("secret")
def command() -> None:
    """Secrets that jobs find in their environment.

    A job names them: `environment: {secrets: [HF_TOKEN]}`, or `windlass run --secret HF_TOKEN`.
    """


@verb("set", outputs=OBJECTS, group=command)
@click.argument("name", metavar="NAME")
@click.option("--own", is_flag=True, help="Yours alone, for your jobs in this project.")
def set_(session: Session, name: str, own: bool) -> None:
    """Keep a secret, or give it another value; asks for it, or reads it from stdin.

    One line break at the end of stdin is taken off. The next attempt of a job gets the new value.

    \b
    Examples:
      windlass secret set HF_TOKEN
      windlass secret set DEPLOY_KEY < key.pem
    """
    value = _value(name)
    found = session.client.secrets.set(name, value, own=own)
    if len(value) < SHORTEST_MASKED:
        session.say(f"{name} is too short to be masked in the output of jobs")
    if not session.one(found):
        click.echo(f"{found['name']}  version {found['version']}")


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """Names, versions, who set them and when. Values are shown to nobody."""
    found = session.client.secrets.list()
    rows = [
        [each["name"], "you" if each["own"] else "project", each["version"], each["changed"],
         each["changed_by"]]
        for each in found
    ]  # fmt: skip
    session.items(found, HEAD, rows)
    if session.plain and not found:
        session.say("no secrets; `windlass secret set HF_TOKEN` keeps one")


@verb("rm", outputs=WORDS, group=command)
@click.argument("name", metavar="NAME", nargs=-1, required=True)
@click.option("--own", is_flag=True, help="Yours alone, not the project's.")
def rm(session: Session, name: tuple[str, ...], own: bool) -> None:
    """Remove secrets. Jobs that run keep what they have; attempts to come fail without it."""
    for each in name:
        session.client.secrets.delete(each, own=own)
        session.say(f"removed {each}")


def _value(name: str) -> str:
    """Never from the command line: that is in the history, and in everybody's `ps`."""
    if sys.stdin.isatty():
        value: str = click.prompt(f"value of {name}", hide_input=True, err=True)
        return value
    value = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    if not value:
        raise InvalidInput(f"no value for {name}", hint=f"windlass secret set {name} < file")
    return value
