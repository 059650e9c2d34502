"""`windlass backup`: the server of this machine as one file, and back. It works on the files of
the home itself, so it speaks to no server: only who owns them may do it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli import local, told
from windlass.cli.output import megabytes
from windlass.cli.session import WORDS, Session, verb
from windlass.client.places import config_dir, data_dir
from windlass.core.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from windlass.server.backups.archive import Manifest


@click.group("backup")
def command() -> None:
    """All that this machine's server keeps, in one file, and back.

    The database, code, models, logs, checkpoints and what jobs wrote. Keys only --with-secrets.
    """


def _database(words: str) -> Callable[..., Any]:
    return click.option("--database", metavar="URL", envvar="WINDLASS_DATABASE", help=words)


@verb("create", outputs=WORDS, group=command)
@click.option("--with-secrets", is_flag=True,
              help="Keys too: who has the file can then read all secrets.")  # fmt: skip
@click.option("--without", multiple=True, type=click.Choice(["outputs"]),
              help="Leave out what jobs wrote beside logs and checkpoints.")  # fmt: skip
@_database("Of a server on PostgreSQL, where `up` was not told it.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def create(
    session: Session,
    file: Path,
    with_secrets: bool,
    without: tuple[str, ...],
    database: str | None,
) -> None:
    """Write FILE, while the server goes on. Compressed when it ends in .gz.

    \b
    Examples:
      windlass backup create /backups/windlass-2026-11-19.tar
      windlass backup create --with-secrets --without outputs windlass.tar.gz
    """
    from windlass.server.backups.create import create

    file = Path(os.path.abspath(file))
    if not file.parent.is_dir():
        raise InvalidInput(f"FILE: there is no folder {file.parent}")
    found = create(
        data_dir(), file, secrets=with_secrets,
        database=database or _of_server(),
        credentials=config_dir() / "credentials.json", outputs="outputs" not in without,
    )  # fmt: skip
    if session.one(_told(file, found)):
        return
    size = megabytes(file.stat().st_size)
    click.echo(f"{file}  {len(found.files)} files · {size} · of {found.made}")
    for each in found.left_out:
        session.say(f"left out: {each}")
    if found.stored:
        session.say(
            f"{found.stored} files lie in the server's storage and not in here: copy it too, "
            "after this"
        )
    if with_secrets:
        session.say("it holds the keys of this server: keep it as you keep a password")
    else:
        session.say(
            f"it holds no keys: keep {data_dir() / 'kek'} somewhere else, or add --with-secrets"
        )


@verb("restore", outputs=WORDS, group=command)
@_database("An empty database, for a backup of PostgreSQL.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def restore(session: Session, file: Path, database: str | None) -> None:
    """Make an empty home of FILE; start its server afterwards.

    Everything is checked before anything is written. Jobs that ran when the backup was made are
    told lost, and go on from their checkpoints as their retry rules say.

    \b
    Example:
      WINDLASS_HOME=/srv/windlass windlass backup restore windlass-2026-11-19.tar
    """
    from windlass.server.backups.restore import restore

    home = data_dir()
    if local.find() is not None:
        raise Conflict(f"the server of {home} runs", hint="restore to an empty home")
    credentials = config_dir() / "credentials.json"
    had_credentials = credentials.exists()
    found, lost = restore(home, file.absolute(), database=database or "", credentials=credentials)
    about = {**_told(file.absolute(), found), "home": str(home), "lost": lost}
    if session.one(about):
        return
    click.echo(f"{home}  {len(found.files)} files · of {found.made}")
    if lost:
        ran = "1 attempt" if lost == 1 else f"{lost} attempts"
        session.say(
            f"{ran} ran then: told lost, and tried again as the retry rules of the jobs say"
        )
    for each in found.left_out:
        session.say(f"was left out: {each}")
    if found.stored:
        session.say(f"{found.stored} files lie in the storage: start with the same --storage")
    for line in _without_keys(found, home) if not found.secrets else ():
        session.say(line)
    if found.secrets and had_credentials:
        session.say(f"{credentials} was there already, and was left as it is")
    session.say(f"next: WINDLASS_HOME={home} windlass up" if _named() else "next: windlass up")


def _of_server() -> str:
    """Which database the server of this home uses, or used when it was last told."""
    server = local.find()
    found = told.kept() if server is None else server.settings
    return str(found.get("database") or "")


def _named() -> bool:
    return bool(os.environ.get("WINDLASS_HOME"))


def _without_keys(found: Manifest, home: Path) -> list[str]:
    return [
        "this backup holds no keys. Until those of the old home are here:",
        "  access keys are refused: `windlass up` makes a new one for the owner, others need one "
        "of theirs (`windlass key create`)",
        "  jobs that name secrets fail at their start",
        "passwords and API tokens work as before",
        f"to bring the keys: put the lines of the old home's `kek` into {home / 'kek'}, after its "
        "own if it has any",
    ]


def _told(file: Path, found: Manifest) -> dict[str, Any]:
    return {
        "file": str(file), "files": len(found.files), "database": found.database,
        "revision": found.revision, "version": found.windlass, "made": found.made,
        "secrets": found.secrets, "outputs": found.outputs, "stored": found.stored,
        "left_out": found.left_out,
    }  # fmt: skip
