"""`windlass ui`: the dashboard in a browser, logged in as the key of the command line is."""

from __future__ import annotations

import os
import sys
from urllib.parse import quote, urlsplit

import click

from windlass.cli.completion import complete_job
from windlass.cli.session import OBJECTS, Session, verb


@verb("ui", outputs=OBJECTS)
@click.argument("job", required=False, shell_complete=complete_job)
def command(session: Session, job: str | None) -> None:
    """Open the dashboard, logged in.

    Where there is no browser its address is printed.

    The address is good once, for a minute: whoever opens it first is you.

    \b
    Examples:
      windlass ui
      windlass ui -              (the page of the last job)
    """
    page = "" if job is None else f"/jobs/{session.client.jobs.get(session.ref(job)).id}"
    made = session.client.sessions.link()
    made["url"] = _leading_to(made["url"], page)
    if session.one(made):
        return
    click.echo(made["url"])
    if _has_browser():
        import webbrowser

        if webbrowser.open(made["url"]):
            session.say("opened in your browser; the address is good once, for a minute")
            return
    session.say("open it in your browser; it is good once, for a minute")


def _leading_to(link: str, page: str) -> str:
    """The link, with where to go once it was used. `page` begins at the server's own path."""
    if not page:
        return link
    address, _, token = link.partition("#")
    below = urlsplit(address).path.removesuffix("/login")
    return f"{address}?next={quote(below + page, safe='')}#{token}"


def _has_browser() -> bool:
    """Not over SSH, nor where no window can open: a browser in the terminal is not what is
    wanted."""
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True
