"""`windlass login`: keep a server and a credential for it, checked, under a name."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from windlass.cli.session import OBJECTS, Session, verb
from windlass.client.config import save_context
from windlass.core.errors import InvalidInput

if TYPE_CHECKING:
    from windlass.client import Client


@verb("login", outputs=OBJECTS)
@click.option("--access-key", metavar="KEY", help="The access key; its secret is asked for.")
@click.option("--user", metavar="NAME", help="A user with a password: makes a key of its own.")
@click.option("--token", is_flag=True, help="An API token, asked for, instead of a key.")
@click.option("--name", metavar="NAME", help="What to call the server; its host by default.")
@click.argument("address", metavar="URL", required=False)
def command(
    session: Session,
    address: str | None,
    access_key: str | None,
    user: str | None,
    token: bool,
    name: str | None,
) -> None:
    """Keep a server and a key for it, and speak to it from now on.

    The secret is asked for, or read from standard input; it never stands on the command line. It
    is tried before it is kept, in config.toml, which only you can read.

    \b
    Examples:
      windlass login https://lab.example:7400 --access-key WLABCDEFGHIJKLMNOPQR
      windlass login https://lab.example:7400 --user ann
      windlass login https://lab.example:7400 --token < token.txt
    """
    url = address or session.config.get("url").value
    project = session.config.get("project")
    said = project.value if project.origin in ("flag", "env") else None
    if sum((access_key is not None, user is not None, token)) > 1:
        raise InvalidInput("one of --access-key, --user and --token")
    values = {"url": url.rstrip("/")}
    if token:
        values["token"] = _asked("Token")
    elif user is not None:
        values |= _new_key(url, user, said)
    else:
        values["access_key"] = access_key or _asked("Access key", hide=False)
        values["secret_key"] = _asked("Secret key")
    with _client(values, said) as client:
        who = client.whoami()
    values["project"] = said or who.get("project") or ""
    context = name or _name_of(url)
    path = save_context(context, values)
    if not session.one({"name": context, "file": str(path), **who}):
        where = f" in project {values['project']}" if values["project"] else ""
        session.say(f"{who['user']}{where} at {values['url']}, kept as {context}")


def _client(values: dict[str, str], project: str | None) -> Client:
    """With this credential and no other, whatever the configuration holds."""
    from windlass.client import Client
    from windlass.client.config import Config, Layer

    layer = {**values, **({"project": project} if project else {})}
    return Client(config=Config((Layer("flag", layer),)))


def _new_key(url: str, user: str, project: str | None) -> dict[str, str]:
    import platform

    from windlass.cli.password import refuse_in_clear

    refuse_in_clear(url)
    machine = re.sub(r"[^a-z0-9]+", "-", platform.node().lower()).strip("-")[:30] or "machine"
    body: dict[str, Any] = {"user": user, "password": _asked("Password"), "name": machine}
    if project:
        body["project"] = project
    with _client({"url": url}, None) as client:
        made = client.http.call("POST", "/login/key", body=body, signed=False)
    return {"access_key": made["access_key"], "secret_key": made["secret_key"]}


def _asked(what: str, *, hide: bool = True) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=hide, err=True)).strip()
    given = sys.stdin.readline().strip()
    if not given:
        raise InvalidInput(f"{what.lower()}: nothing on standard input, and nobody to ask")
    return given


def _name_of(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return re.sub(r"[^a-z0-9]+", "-", host.lower()).strip("-")[:40] or "server"
