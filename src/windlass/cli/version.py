"""`windlass version`."""

from __future__ import annotations

import platform

import click

import windlass
from windlass.cli.session import WORDS, Session, verb


@verb("version", outputs=WORDS)
def command(session: Session) -> None:
    """The version."""
    python = platform.python_version()
    data = {"version": windlass.__version__, "python": python, "platform": platform.platform()}
    if session.quiet:
        click.echo(windlass.__version__)
    elif not session.one(data):
        click.echo(f"windlass {windlass.__version__}")
