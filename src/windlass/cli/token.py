"""`windlass token`: bearer tokens for tools that cannot sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from windlass.cli import moments
from windlass.cli.key import user_option
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb

HEAD = ["ID", "NAME", "PROJECT", "SCOPES", "LAST USED", "EXPIRES"]


@click.group("token")
def command() -> None:
    """API tokens: for tools that cannot sign, narrow and for a time.

    Each is of one project. `curl -H "Authorization: Bearer wl_…"` needs no more.
    """


@verb("ls", outputs=LISTS, group=command)
@user_option()
def ls(session: Session, user: str | None) -> None:
    """Your tokens, with when each was last used.

    \b
    Examples:
      windlass token ls
    """
    found = session.client.tokens.list(user)
    session.items(found, HEAD, [_row(token) for token in found])


@verb("create", outputs=OBJECTS, group=command)
@user_option()
@click.option("--scope", multiple=True, metavar="WORD", help="read, write, or a single right.")
@click.option("--expires", metavar="TIME", default="30d", show_default=True,
              help="How long it lives; a year at most.")  # fmt: skip
@click.argument("name")
def create(
    session: Session, name: str, user: str | None, scope: tuple[str, ...], expires: str
) -> None:
    """A token of the project; it is printed now and never again.

    \b
    Examples:
      windlass token create grafana --scope read
      windlass token create ci --scope write --expires 90d
    """
    made = session.client.tokens.create(
        name, scopes=scope or ("write",), expires=expires, user=user
    )
    if session.one(made):
        return
    click.echo(made["token"])
    session.say(
        f"{', '.join(made['scopes'])} in {made['project']} until {made['expires']}; "
        "it is not shown again"
    )


@verb("revoke", outputs=WORDS, group=command)
@user_option()
@click.argument("token", nargs=-1, required=True)
def revoke(session: Session, token: tuple[str, ...], user: str | None) -> None:
    """End tokens, by id or name, at once.

    \b
    Examples:
      windlass token revoke grafana
    """
    for each in token:
        session.client.tokens.revoke(each, user=user)
        session.say(f"{each} is dead")


def _row(token: Mapping[str, Any]) -> list[Any]:
    used = f"{moments.age(token['last_used'])} ago" if token["last_used"] else "never"
    expires = token["expires"] + (" (over)" if token["expired"] else "")
    return [
        token["id"][:12], token["name"], token["project"], " ".join(token["scopes"]), used,
        expires,
    ]  # fmt: skip
