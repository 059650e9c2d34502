"""`windlass sync`: runs that were made without a server, brought to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windlass.cli.session import LISTS, Session, verb


@verb("sync", outputs=LISTS)
@click.argument("folder", default="windlass-runs", type=click.Path(path_type=Path))
def command(session: Session, folder: Path) -> None:
    """Bring runs that were made offline.

    FOLDER is a run's own, or one with several in it (windlass-runs). What is there already is not
    sent again, so it may be repeated, also while a run goes on.

    \b
    Examples:
      windlass sync
      windlass sync windlass-runs/20260101-120000-train-4711
    """
    from windlass.cli.offline import params
    from windlass.client import offline

    rows: list[dict[str, Any]] = []
    for each in offline.folders(folder):
        done = offline.bring(session.client.http, each, params(each.path))
        rows.append(
            {"id": each.id, "name": each.name, "lines": done.lines, "folder": str(each.path)}
        )
    head = ["RUN", "NAME", "NEW LINES", "FOLDER"]
    cells = [[row["id"][:12], row["name"], row["lines"], row["folder"]] for row in rows]
    session.items(rows, head, cells)
