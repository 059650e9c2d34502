"""`windlass config`: settings, and where each came from."""

from __future__ import annotations

import click

from windlass.cli.session import LISTS, WORDS, Session, verb
from windlass.client.config import save
from windlass.client.places import config_dir, data_dir


@click.group("config")
def command() -> None:
    """Settings, and where each came from.

    Order: flag, environment (WINDLASS_URL …), windlass.toml or [tool.windlass] in pyproject.toml,
    config.toml of the user, default.
    """


@verb("get", outputs=LISTS, group=command)
@click.option("--origin", is_flag=True, help="Say which place won.")
@click.argument("name", required=False)
def get(session: Session, name: str | None, origin: bool) -> None:
    """One setting, or all."""
    settings = [session.config.get(name)] if name else list(session.config)
    if name and session.form == "table":
        click.echo(settings[0].value + (f"  ({settings[0].origin})" if origin else ""))
        return
    data = [{"name": s.name, "value": s.shown, "origin": s.origin} for s in settings]
    head = ["NAME", "VALUE", "ORIGIN"] if origin else ["NAME", "VALUE"]
    rows = [[s.name, s.shown, s.origin][: len(head)] for s in settings]
    session.items(data, head, rows)


@verb("set", outputs=WORDS, group=command)
@click.argument("name")
@click.argument("value")
def set_(session: Session, name: str, value: str) -> None:
    """Set one in the user's file: url, project, contexts.lab.url …"""
    path = save(name, value)
    if not session.one({"name": name, "file": str(path)}):
        session.say(f"{name} is set in {path}")


@verb("path", outputs=WORDS, group=command)
def path(session: Session) -> None:
    """Where files lie."""
    data = {
        "config": str(config_dir() / "config.toml"),
        "credentials": str(config_dir() / "credentials.json"),
        "home": str(data_dir()),
    }
    if session.form == "table":
        for name, where in data.items():
            click.echo(f"{name:<12} {where}")
    else:
        session.one(data)
