"""`windlass up`: the server of this machine, started apart from the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import click

import windlass
from windlass.cli import local, unit
from windlass.cli import told as told_
from windlass.cli.node import summary
from windlass.cli.session import WORDS, Session, verb
from windlass.client.places import config_dir
from windlass.core.errors import Conflict, InvalidInput, WindlassError


@verb("up", outputs=WORDS)
@click.option("--host", help=f"Listen here; {local.DEFAULT_HOST}.")
@click.option("--port", type=click.IntRange(0, 65535),
              help=f"{local.DEFAULT_PORT}, or a free one if taken; 0: any free.")  # fmt: skip
@click.option("--foreground", is_flag=True, help="Stay in this terminal; Ctrl-C ends it.")
@click.option(
    "--fake-nodes", type=click.IntRange(1), help="Split this machine into so many nodes."
)
@click.option(
    "--fake-gpus", type=click.IntRange(0), help="So many GPUs per node that are not there."
)
@click.option("--database", metavar="URL", help="PostgreSQL instead of SQLite.")
@click.option("--storage", metavar="URL",
              help="Keep code, outputs, checkpoints, logs there: s3://bucket/x.")  # fmt: skip
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, resolve_path=True),
              help="Certificate (PEM): speak TLS; needed beyond this machine.")  # fmt: skip
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, resolve_path=True),
              help="Its private key (PEM).")  # fmt: skip
@click.option("--public-url", metavar="URL", help="The address that people use.")
@click.option("--base-path", metavar="PATH", help="What all its paths begin with: /windlass.")
@click.option("--isolation", type=click.Choice(["auto", "0", "1"]),
              help="Keep jobs apart at least so far.")  # fmt: skip
@click.option("--reset", is_flag=True, help="Forget what was given to `up` before.")
@click.option("--install", is_flag=False, flag_value="", metavar="[FILE]",
              help="Start nothing: write a systemd unit that does.")  # fmt: skip
def command(
    session: Session, foreground: bool, reset: bool, install: str | None, **flags: Any
) -> None:
    """Start the server; harmless when it is up.

    What is given here is kept for the next `up`; --reset forgets it. A running server keeps what
    it was started with: to change that, `windlass down` first (jobs go on).

    \b
    Examples:
      windlass up
      windlass up --fake-nodes 3 --fake-gpus 8     (to try gangs without a cluster)
      windlass up --install                        (a systemd unit, to start with the machine)
    """
    given = {name: value for name, value in flags.items() if value is not None}
    told = {**({} if reset else told_.kept()), **given}
    if install is not None:
        return _install(session, install, told)
    server = local.demand_answers()
    started = server is None
    if server is not None:
        _refuse_others(server, given)
    else:
        told = local.with_port(told, session.say)
        if foreground:
            told_.keep(told)
            _in_place(local.command(told))
        server = local.begin(told)
        session.reload()
    credentials = config_dir() / "credentials.json"
    about = {
        "pid": server.pid,
        "url": server.url,
        "version": server.version,
        "home": str(server.home),
        "credentials": str(credentials),
        "started": started,
    }
    if session.quiet:
        return
    if session.one(about):
        return
    word = "" if started else " (was up already)"
    click.echo(f"windlass {server.version or windlass.__version__} · {server.url}{word}")
    try:
        click.echo(f"this machine: {summary(session.client.nodes.list())}")
    except WindlassError as err:
        session.say(f"nodes: {err.message}")
    click.echo(f"key: {credentials} · data: {server.home}")
    session.say("next: windlass ui opens the page; windlass run train.py, or windlass demo")


def _refuse_others(server: local.Server, given: Mapping[str, Any]) -> None:
    """Raises Conflict for settings that the running server has not."""
    others = {
        name: value
        for name, value in given.items()
        if name in server.settings
        and str(server.settings[name] or "") != str(value or "")
        and not (name == "port" and value == 0)
    }
    if not others:
        return
    has = ", ".join(_shown(name, server.settings[name]) for name in sorted(others))
    asked = " ".join(told_.flags(others))
    raise Conflict(
        f"the server is up with {has}; nothing was changed",
        hint=f"windlass down && windlass up {asked}     (jobs go on meanwhile)",
    )


def _shown(name: str, value: Any) -> str:
    flag = "--" + name.replace("_", "-")
    return f"{flag} {value}" if value not in (None, "") else f"no {flag}"


def _install(session: Session, file: str, told: Mapping[str, Any]) -> None:
    if not sys.platform.startswith("linux"):
        raise InvalidInput(f"--install: systemd is Linux's, this is {sys.platform}")
    path, text = unit.path(file), unit.text(told)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise Conflict(
            f"{path} is there already, and is another",
            hint="remove it, or write elsewhere: windlass up --install FILE",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    enable = unit.enable(path)
    if not session.one({"unit": str(path), "enable": enable}):
        click.echo(path)
        session.say(f"next: {enable}")


def _in_place(words: list[str]) -> None:
    """Become the server. Does not come back, but on Windows, which cannot do that."""
    sys.stdout.flush()
    if os.name == "nt":
        sys.exit(subprocess.call(words))
    os.execv(words[0], words)
