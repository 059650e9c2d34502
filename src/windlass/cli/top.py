"""`windlass top`: nodes and jobs, redrawn when something happens.

It follows the feed; nothing polls. Without a terminal it prints one frame.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from windlass.cli import columns, moments, output
from windlass.cli.node import HEAD as NODE_HEAD
from windlass.cli.node import SPARE as NODE_SPARE
from windlass.cli.node import row as node_row
from windlass.cli.ps import HEAD as JOB_HEAD
from windlass.cli.ps import SPARE as JOB_SPARE
from windlass.cli.ps import row as job_row
from windlass.cli.session import WORDS, Session, verb
from windlass.cli.terminal import bare
from windlass.client import Client
from windlass.client.jobs import Job
from windlass.client.nodes import Node
from windlass.core.errors import Unavailable, Unreachable

QUIET_SECONDS = 0.25
"""Events come in bursts: at most four frames a second."""


@verb("top", outputs=WORDS, quiet=False)
def command(session: Session) -> None:
    """Nodes and jobs, live."""
    nodes, jobs = look(session.client)
    if session.form != "table":
        session.one({"nodes": [n.data for n in nodes], "jobs": [j.data for j in jobs]})
    elif sys.stdout.isatty():
        try:
            live(session.client, nodes, jobs)
        except KeyboardInterrupt:
            pass
    else:
        output.print_table(NODE_HEAD, [node_row(node) for node in nodes], spare=NODE_SPARE)
        print()
        output.print_table(JOB_HEAD, [job_row(job) for job in jobs], spare=JOB_SPARE)


def look(client: Client) -> tuple[list[Node], list[Job]]:
    jobs = client.jobs.list(limit=200)
    live = [job for job in jobs if not job.done]
    return client.nodes.list(), (live + [job for job in jobs if job.done][:10])[:40]


def live(client: Client, nodes: list[Node], jobs: list[Job]) -> None:
    """Draw until Ctrl-C. A thread of its own reads the feed and only sets a flag."""
    from rich.console import Console
    from rich.live import Live

    changed = threading.Event()
    feeding = threading.Thread(
        target=_feed, args=(Client(config=client.config), changed), daemon=True
    )
    feeding.start()
    console = Console(file=bare(sys.stdout))
    first = frame(client.url, nodes, jobs)
    with Live(first, console=console, screen=True, auto_refresh=False) as screen:
        while True:
            moved = changed.wait(timeout=1.0)  # a second: ages on the screen move too
            if moved:
                changed.clear()
                try:
                    nodes, jobs = look(client)
                except (Unreachable, Unavailable):
                    pass  # the frame says how old it is by standing still; the feed comes back
            screen.update(frame(client.url, nodes, jobs), refresh=True)
            if moved:
                time.sleep(QUIET_SECONDS)


def frame(url: str, nodes: list[Node], jobs: list[Job]) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def table(title: str, names: Sequence[str], found: list[list[Any]], spare: Any) -> Table:
        head, rows = columns.fitted(
            names, [["" if cell is None else str(cell) for cell in row] for row in found],
            columns.there(), spare,
        )  # fmt: skip
        drawn = Table(title=title, title_justify="left", expand=True, box=None, pad_edge=False)
        for at, name in enumerate(head):
            widest = max(len(name), *(len(str(row[at] or "")) for row in rows), 1)
            last = at == len(head) - 1  # the only one to be cut when there is no room
            least = None if last else widest
            drawn.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least)
        for row in rows:
            cells = [output.tame(cell) for cell in row]
            # As text, never as Rich's markup: a name may hold [red].
            styles = [_style(name, cell) for name, cell in zip(head, cells, strict=True)]
            drawn.add_row(*map(Text, cells, styles))
        return drawn

    now = moments.clock(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    return Group(
        Text.assemble(("windlass", "bold"), output.tame(f" {url}  {now}  (Ctrl-C ends)")),
        table("\nNodes", NODE_HEAD, [node_row(node) for node in nodes], NODE_SPARE),
        table("\nJobs", JOB_HEAD, [job_row(job) for job in jobs], JOB_SPARE),
    )


def _style(column: str, cell: str) -> str:
    found = output.STATE_COLOURS.get(cell, "") if column == "STATE" else ""
    return found.replace("bright_black", "dim")


def _feed(client: Client, changed: threading.Event) -> None:
    while True:
        try:
            for message in client.http.stream("/feed"):
                if message.event == "event":  # what runs log in between is not shown here
                    changed.set()
        except (Unreachable, Unavailable):
            time.sleep(1.0)
        changed.set()
