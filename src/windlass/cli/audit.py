"""`windlass audit`: who did what, and the proof that nobody changed it since."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from windlass.cli import output
from windlass.cli.session import LISTS, OBJECTS, Session, verb
from windlass.core.audit import Verdict
from windlass.core.errors import Conflict, InvalidInput

HEAD = ["NUMBER", "AT", "USER", "ACTION", "OBJECT", "OUTCOME", "TIMES", "FROM", "CREDENTIAL"]


@click.group("audit")
def command() -> None:
    """Who did what, and proof that nobody changed it.

    Each project has a chain of its own; --server is that of what concerns all of them.
    """


def server_option() -> Callable[..., Any]:
    return click.option("--server", is_flag=True, help="The server's own chain.")


@verb("ls", outputs=LISTS, group=command)
@click.option("--user", metavar="NAME", help="Only what this user did.")
@click.option("--action", metavar="WORD", help="jobs.submit, or `jobs.` for all about jobs.")
@click.option("--object", "about", metavar="ID", help="Only what was done to this.")
@click.option("--outcome", metavar="WORD", help="ok, forbidden …; refused: all that were.")
@click.option("--since", metavar="TIME", help="ISO-8601.")
@click.option("--until", metavar="TIME", help="ISO-8601.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, help="How many; 50.")
@server_option()
def ls(
    session: Session,
    user: str | None,
    action: str | None,
    about: str | None,
    outcome: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    server: bool,
) -> None:
    """The newest rows.

    \b
    Examples:
      windlass audit ls --outcome refused
      windlass audit ls --action jobs. --user ann
    """
    rows = session.client.audit.list(
        limit=limit, chain=_chain(server), user=user, action=action, object=about,
        outcome=outcome, since=since, until=until,
    )  # fmt: skip
    session.items(rows, HEAD, [_row(row) for row in rows])


@verb("show", outputs=OBJECTS, group=command)
@click.argument("number", type=click.IntRange(1))
@server_option()
def show(session: Session, number: int, server: bool) -> None:
    """One row with all it says."""
    found = session.client.audit.get(number, chain=_chain(server))
    if session.one(found):
        return
    for name, value in found.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        click.echo(f"{name:11} {output.tame(text)}")


@verb("head", outputs=OBJECTS, group=command)
@server_option()
def head(session: Session, server: bool) -> None:
    """The end of the chain, as NUMBER:HASH.

    Keep it elsewhere (in a mail, a ticket, on paper): `windlass audit verify --head` then notices
    a chain that was cut short or written anew, whoever did it.
    """
    found = session.client.audit.head(chain=_chain(server))
    if not session.one(found):
        click.echo(f"{found['number']}:{found['hash']}")


@verb("verify", outputs=OBJECTS, group=command)
@click.option("--head", "heads", multiple=True, metavar="NUMBER:HASH", help="As it was kept.")
@click.option("--file", "path", metavar="FILE", help="An export instead of the server's; - stdin.")
@server_option()
def verify(session: Session, heads: tuple[str, ...], path: str | None, server: bool) -> None:
    """Walk the chain, hash by hash, on this side; names the first row that does not fit.

    \b
    Examples:
      windlass audit verify
      windlass audit verify --head 81:9f2c…
      windlass audit verify --file audit.jsonl
    """
    kept = dict(_kept(text) for text in heads)
    if path is None:
        verdict = session.client.audit.verify(chain=_chain(server), heads=kept)
    else:
        from windlass.core.audit import verify as walk

        verdict = walk(_lines(path), kept)
    if not session.one(_told(verdict)) and verdict.sound:
        trust = "" if verdict.first in (0, 1) else f"; row {verdict.first} was taken on trust"
        click.echo(f"sound: {verdict.rows} rows up to {verdict.last}:{verdict.hash}{trust}")
    if not verdict.sound:
        raise Conflict(f"the audit log is broken at row {verdict.broken}: {verdict.why}")


@verb("export", outputs=("jsonl", "csv"), group=command, quiet=False)
@click.option("--since", metavar="TIME", help="ISO-8601.")
@click.option("--until", metavar="TIME", help="ISO-8601.")
@server_option()
def export(session: Session, since: str | None, until: str | None, server: bool) -> None:
    """Every row with its hash, oldest first, as JSON lines (or -o csv).

    \b
    Examples:
      windlass audit export > audit.jsonl
      windlass audit export -o csv --since 2026-11-01 > november.csv
    """
    lines = session.client.audit.export(
        chain=_chain(server), format=session.form, since=since, until=until
    )
    for line in lines:
        sys.stdout.write(line)


def _row(row: Mapping[str, Any]) -> list[Any]:
    return [
        row["number"], row["at"], row["user"], row["action"], row["object"], row["outcome"],
        row["times"], row["source"], row["credential"],
    ]  # fmt: skip


def _chain(server: bool) -> str:
    return "server" if server else "project"


def _kept(text: str) -> tuple[int, str]:
    number, colon, digest = text.partition(":")
    if not colon or not number.isdigit() or len(digest) != 64:
        raise InvalidInput(f"--head: NUMBER:HASH as `windlass audit head` prints it ({text!r})")
    return int(number), digest


def _lines(path: str) -> Iterator[dict[str, Any]]:
    with click.open_file(path, encoding="utf-8") as file:
        for at, line in enumerate(file, start=1):
            try:
                yield json.loads(line)
            except ValueError as err:
                raise InvalidInput(f"{path}: line {at} is not JSON: {err}") from err


def _told(verdict: Verdict) -> dict[str, Any]:
    return {
        "sound": verdict.sound, "rows": verdict.rows, "first": verdict.first,
        "last": verdict.last, "hash": verdict.hash, "broken": verdict.broken, "why": verdict.why,
    }  # fmt: skip
