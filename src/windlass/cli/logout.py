"""`windlass logout`: forget a server and the credential for it."""

from __future__ import annotations

import click

from windlass.cli.session import WORDS, Session, verb
from windlass.client.config import forget_context
from windlass.core.errors import InvalidInput


@verb("logout", outputs=WORDS)
@click.option("--revoke", is_flag=True, help="End the key on the server too.")
@click.argument("name", required=False)
def command(session: Session, name: str | None, revoke: bool) -> None:
    """Forget a server and the key for it.

    The one in use, when none is named.

    \b
    Examples:
      windlass logout
      windlass logout lab --revoke
    """
    context = name or session.config.get("context").value
    if not context:
        raise InvalidInput(
            "not logged in anywhere", hint="`windlass context ls` lists the servers kept"
        )
    if revoke:
        from windlass.client import Client

        with Client(context=context) as client:
            key = client.config.credential[0].value
            if key:
                client.keys.revoke(key)
            else:
                client.tokens.revoke(client.whoami()["credential"])
    path = forget_context(context)
    if not session.one({"name": context, "file": str(path)}):
        session.say(f"forgot {context}" + (", its key is dead" if revoke else ""))
