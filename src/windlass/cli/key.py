"""`windlass key`: access keys, made, replaced and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from windlass.cli import moments
from windlass.cli.session import LISTS, OBJECTS, WORDS, Session, verb

HEAD = ["ACCESS KEY", "NAME", "PROJECT", "STATE", "LAST USED", "DIES", "AGE"]


@click.group("key")
def command() -> None:
    """Access keys: what the command line and scripts sign with."""


def user_option() -> Callable[..., Any]:
    return click.option(
        "--user",
        metavar="NAME",
        help="Another's: a service account, or for administrators anyone.",
    )


@verb("ls", outputs=LISTS, group=command)
@user_option()
@click.option("-a", "--all", "every", is_flag=True, help="Dead ones too.")
def ls(session: Session, user: str | None, every: bool) -> None:
    """Your keys, with when each was last used.

    \b
    Examples:
      windlass key ls
      windlass key ls --user nightly
    """
    found = [key for key in session.client.keys.list(user) if every or key["state"] != "dead"]
    data = [{**key, "id": key["access_key"]} for key in found]
    session.items(data, HEAD, [_row(key) for key in found])


@verb("create", outputs=OBJECTS, group=command)
@user_option()
@click.argument("name", required=False)
def create(session: Session, name: str | None, user: str | None) -> None:
    """One more key; its secret is printed now and never again.

    \b
    Examples:
      windlass key create laptop
      windlass key create --user nightly --project vision
    """
    shown(session, session.client.keys.create(name, user=user))


@verb("revoke", outputs=WORDS, group=command)
@click.argument("access_key", nargs=-1, required=True)
def revoke(session: Session, access_key: tuple[str, ...]) -> None:
    """End keys, at once.

    \b
    Examples:
      windlass key revoke WLABCDEFGHIJKLMNOPQR
    """
    for each in access_key:
        session.client.keys.revoke(each)
        session.say(f"{each} is dead")


@verb("rotate", outputs=OBJECTS, group=command)
@click.option("--overlap", metavar="TIME", default="1d", show_default=True,
              help="So long the old key goes on.")  # fmt: skip
@click.argument("access_key")
def rotate(session: Session, access_key: str, overlap: str) -> None:
    """A new key in place of one, which goes on for a while and then dies.

    \b
    Examples:
      windlass key rotate WLABCDEFGHIJKLMNOPQR
      windlass key rotate WLABCDEFGHIJKLMNOPQR --overlap 0s
    """
    made = session.client.keys.rotate(access_key, overlap=overlap)
    shown(session, made)
    session.say(f"{access_key} dies in {overlap}")


@verb("rekey", outputs=OBJECTS, group=command)
@click.option("--drop-old", is_flag=True, help="Take the old keys out of the server's file.")
def rekey(session: Session, drop_old: bool) -> None:
    """Replace the key that the server seals every secret with. For administrators.

    All secrets are sealed anew; the old key still opens. Some minutes later, when every server
    has seen the new one, --drop-old makes it useless.

    \b
    Examples:
      windlass key rekey
      windlass key rekey --drop-old
    """
    done = session.client.keys.rekey(drop_old=drop_old)
    if not session.one({"id": done["kek"], **done}):
        click.echo(f"sealing with {done['kek']}; {done['rewrapped']} secrets sealed anew")
        if done["kept"]:
            session.say(f"still in the file: {', '.join(done['kept'])} (--drop-old, later)")


def shown(session: Session, key: Mapping[str, Any]) -> None:
    """A new key, the one time that it is told."""
    if session.one({**key, "id": key["access_key"]}):
        return
    click.echo(f"access key  {key['access_key']}")
    click.echo(f"secret key  {key['secret_key']}")
    session.say(
        f"of {key['user']}, at home in {key['project']}. The secret is not shown again; use it "
        f"with: windlass login {session.client.url} --access-key {key['access_key']}"
    )


def _row(key: Mapping[str, Any]) -> list[Any]:
    used = f"{moments.age(key['last_used'])} ago" if key["last_used"] else "never"
    return [
        key["access_key"], key["name"], key["project"], key["state"], used,
        key["expires"] or "", moments.age(key["created"]),
    ]  # fmt: skip
