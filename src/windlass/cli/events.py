"""`windlass events`: what happened to a job, in order."""

from __future__ import annotations

from typing import Any

from windlass.cli import moments
from windlass.cli.session import LISTS, Session, job_argument, verb


@verb("events", outputs=LISTS)
@job_argument()
def command(session: Session, job: str) -> None:
    """What happened to a job, in order."""
    events = session.client.jobs.events(session.ref(job))
    session.items(events, ["AT", "TRY", "KIND", "STATE", "REASON"], [row(e) for e in events])


def row(event: dict[str, Any]) -> list[Any]:
    reason = event.get("reason") or ""
    if event.get("kind") == "moved":
        data = event.get("data") or {}
        move = f"{data.get('from') or ''} → {data.get('to') or ''}".strip(" →")
        reason = f"{move}: {reason}" if reason else move
    return [
        moments.clock(event.get("at")), event.get("attempt") or "", event.get("kind"),
        event.get("state") or "", reason,
    ]  # fmt: skip
