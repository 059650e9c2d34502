"""`windlass engine`: where gangs run beside this machine."""

from __future__ import annotations

import click

from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb
from windlass.core.errors import InvalidInput

HEAD = ["NAME", "KIND", "STATE", "NODES", "OPTIONS", "REASON"]
FAILED = 1


@click.group("engine")
def command() -> None:
    """Where gangs run: this machine, and clusters added by name."""


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """The engines, whether they answer, and how many nodes each offers."""
    engines = session.client.engines.list()
    session.items(
        engines,
        HEAD,
        [
            [
                each["name"], each["kind"], each["state"], str(each["nodes"]),
                " ".join(f"{key}={value}" for key, value in each["options"].items()),
                each["reason"],
            ]
            for each in engines
        ],
    )  # fmt: skip


@verb("add", outputs=OBJECTS, group=command)
@click.argument("name", metavar="NAME")
@click.option("--kind", help="kubernetes, ray, slurm, or a plug-in's; without it the name.")
@click.option("-s", "--set", "options", multiple=True, metavar="KEY=VALUE", help="An option.")
def add(session: Session, name: str, kind: str | None, options: tuple[str, ...]) -> None:
    """Add a cluster; jobs may name it with --engine, or are sent where they fit.

    \b
    Examples:
      windlass engine add slurm
      windlass engine add big --kind slurm -s partition=gpu -s account=vision
    """
    given = {}
    for each in options:
        key, mark, value = each.partition("=")
        if not mark or not key:
            raise InvalidInput(f"--set: KEY=VALUE (found {each!r})")
        given[key] = value
    found = session.client.engines.add(name, kind or name, given)
    if not session.one(found):
        session.say(f"added engine {name}")
        session.say(f"next: windlass engine check {name}")


@verb("check", outputs=OBJECTS, group=command)
@click.argument("name", metavar="NAME")
def check(session: Session, name: str) -> None:
    """Try an engine on the real thing: rights, a process on a node, the way back, the files.

    Exits with 1 when something is wrong.
    """
    found = session.client.engines.check(name)
    if not session.one(found):
        for each in found["findings"]:
            click.echo(f"{'ok   ' if each['ok'] else 'WRONG'}  {each['what']}: {each['said']}")
    if not found["ok"]:
        raise SystemExit(FAILED)


@verb("rm", outputs=WORDS, group=command)
@click.argument("name", metavar="NAME", nargs=-1, required=True)
def rm(session: Session, name: tuple[str, ...]) -> None:
    """Take engines away on which no job is at work."""
    for each in name:
        session.client.engines.delete(each)
        session.say(f"removed engine {each}")
