"""`windlass up`: the server of this machine, started apart from the terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import click

import windlass
from windlass.cli import local
from windlass.cli.node import summary
from windlass.cli.session import WORDS, Session, verb
from windlass.client.places import config_dir
from windlass.core.errors import WindlassError


@verb("up", outputs=WORDS)
@click.option("--host", default=local.DEFAULT_HOST, show_default=True, help="Listen here.")
@click.option("--port", type=click.IntRange(0, 65535), default=local.DEFAULT_PORT,
              show_default=True, help="0: any free one.")  # fmt: skip
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
def command(
    session: Session,
    host: str,
    port: int,
    foreground: bool,
    fake_nodes: int | None,
    fake_gpus: int | None,
    database: str | None,
    storage: str | None,
    isolation: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    public_url: str | None,
    base_path: str | None,
) -> None:
    """Start the server; harmless when it is up.

    \b
    Examples:
      windlass up
      windlass up --fake-nodes 3 --fake-gpus 8     (to try gangs without a cluster)
    """
    words = local.command(
        host=host,
        port=port,
        fake_nodes=fake_nodes,
        fake_gpus=fake_gpus,
        database=database,
        storage=storage,
        isolation=isolation,
        tls_cert=tls_cert,
        tls_key=tls_key,
        public_url=public_url,
        base_path=base_path,
    )
    server = local.demand_answers()
    started = server is None
    if server is None:
        if foreground:
            _in_place(words)
        server = local.start(words)
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


def _in_place(words: list[str]) -> None:
    """Become the server. Does not come back, but on Windows, which cannot do that."""
    sys.stdout.flush()
    if os.name == "nt":
        sys.exit(subprocess.call(words))
    os.execv(words[0], words)
