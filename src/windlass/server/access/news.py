"""That users, projects, secrets or limits changed, told in the feed, so that a page which shows
them asks anew. Only of which they are: what changed is for who may read it."""

from __future__ import annotations

from sqlalchemy import Connection

from windlass.server import feed

NOUNS = frozenset({"users", "projects", "secrets", "credentials", "limits"})


def tell(conn: Connection, action: str, project_id: str, now_ms: int) -> None:
    """An event of what the audit log calls `action`, where it is about one of these. `project_id`
    is that which the database holds the call to; "": it goes to all who follow."""
    noun = action.partition(".")[0]
    if noun in NOUNS:
        feed.append(
            conn, job_id=None, project_id=project_id, seq=0, attempt=None, kind="people",
            at_ms=now_ms, state=None, reason="", data={"of": noun},
        )  # fmt: skip
