"""`windlass password`: set or change one's own, for the browser and `windlass login --user`."""

from __future__ import annotations

import sys

import click

from windlass.cli.session import WORDS, Session, verb
from windlass.core.errors import InvalidInput


@verb("password", outputs=WORDS)
def command(session: Session) -> None:
    """Set or change your password.

    It is asked for, or read from standard input: the old one, if there is one, then the new one.
    All your sessions and tokens end; access keys stay.

    \b
    Examples:
      windlass password
      printf '%s\\n' "$OLD" "$NEW" | windlass password
    """
    refuse_in_clear(session.client.url)
    old = None
    if session.client.sessions.who()["has_password"]:
        old = _asked("Old password")
    new = _asked("New password", again=True)
    session.client.sessions.set_password(new, old)
    if not session.one({"changed": True}):
        session.say("the password is set; sessions and tokens of before are over")


def refuse_in_clear(url: str) -> None:
    """Raises InvalidInput for a server to which a password would travel unencrypted."""
    from windlass.client.config import loopback

    if url.startswith("http://") and not loopback(url):
        raise InvalidInput(
            f"a password would travel to {url} for all to read",
            hint="use https, or an access key: its secret never travels",
        )


def _asked(what: str, *, again: bool = False) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=True, confirmation_prompt=again, err=True))
    given = sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise InvalidInput(f"{what.lower()}: nothing on standard input, and nobody to ask")
    return given
