"""Which blobs are needed: the one place that names everything that refers to one.

Whoever keeps digests of blobs in a table of its own adds it here, or the sweep takes its bytes.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from windlass.server.artifacts.tables import artifacts
from windlass.server.bundles.tables import bundles
from windlass.server.checkpoints import starting
from windlass.server.models.tables import model_versions

_LISTS = (bundles, model_versions)
"""Tables with a list of files in each row."""


def wanted(conn: Connection) -> dict[str, set[str]]:
    """By project, every digest that something refers to. Old blobs outside it may go."""
    found: dict[str, set[str]] = {}
    for table in _LISTS:
        for project_id, files in conn.execute(select(table.c.project_id, table.c.files)):
            found.setdefault(project_id, set()).update(file["digest"] for file in files)
    single = select(artifacts.c.project_id, artifacts.c.digest).distinct()
    for project_id, digest in conn.execute(single):
        found.setdefault(project_id, set()).add(digest)
    for project_id, digest in starting.wanted(conn):
        found.setdefault(project_id, set()).add(digest)
    return found
