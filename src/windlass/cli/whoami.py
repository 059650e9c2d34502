"""`windlass whoami`: who the server takes you for."""

from __future__ import annotations

import click

from windlass.cli.session import OBJECTS, Session, verb


@verb("whoami", outputs=OBJECTS)
@click.option("--rights", is_flag=True, help="List every right.")
def command(session: Session, rights: bool) -> None:
    """Who the server takes you for, and what you may do.

    \b
    Examples:
      windlass whoami
      windlass whoami --project vision --rights
    """
    who = session.client.whoami()
    if session.one({"name": who["user"], **who}):
        return
    rows = [
        ("user", who["user"] + (" (service)" if who["kind"] == "service" else "")),
        ("project", who["project"] or "none: name one with --project"),
        ("role there", who["role"] or "-"),
        ("in the organisation", who["org_role"] or "-"),
        ("credential", who["credential"]),
        ("server", session.client.url),
    ]
    for label, value in rows:
        click.echo(f"{label:<20} {value}")
    if rights:
        click.echo(f"{'rights':<20} {' '.join(who['rights'])}")
