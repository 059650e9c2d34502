"""`windlass context`: the servers that are kept, and which one is meant."""

from __future__ import annotations

import click

from windlass.cli.session import LISTS, WORDS, Session, verb
from windlass.client.config import choose_context

LOCAL = "local"


@click.group("context")
def command() -> None:
    """The servers you have logged in to, and which one is meant."""


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """The servers kept by `windlass login`; * is the one in use.

    \b
    Examples:
      windlass context ls
      windlass context ls -o json
    """
    chosen = session.config.get("context").value
    rows = [{"name": LOCAL, "url": "", "project": "", "credential": "", "used": not chosen}]
    for name, values in sorted(session.config.contexts.items()):
        credential = values.get("access_key") or ("a token" if values.get("token") else "")
        rows.append(
            {
                "name": name, "url": values.get("url", ""), "project": values.get("project", ""),
                "credential": credential, "used": name == chosen,
            }
        )  # fmt: skip
    head = ["", "NAME", "URL", "PROJECT", "CREDENTIAL"]
    session.items(
        rows,
        head,
        [
            ["*" if row["used"] else "", row["name"], row["url"] or "this machine's own",
             row["project"], row["credential"]]
            for row in rows
        ],
    )  # fmt: skip


@verb("use", outputs=WORDS, group=command)
@click.argument("name")
def use(session: Session, name: str) -> None:
    """Speak to that server from now on; `local` is this machine's own.

    \b
    Examples:
      windlass context use lab
      windlass context use local
    """
    path = choose_context("" if name == LOCAL else name)
    if not session.one({"name": name, "file": str(path)}):
        session.say(f"speaking to {name}")
