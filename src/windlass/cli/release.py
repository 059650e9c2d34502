"""`windlass release`."""

from __future__ import annotations

from windlass.cli.session import LISTS, Session, job_argument, verb


@verb("release", outputs=LISTS)
@job_argument(nargs=-1, required=True)
def command(session: Session, job: tuple[str, ...]) -> None:
    """Let a held job start."""
    found = [session.client.jobs.release(session.ref(word)) for word in job]
    session.jobs(
        found, ["ID", "NAME", "STATE"], lambda item: [item.id[:12], item.name, item.state]
    )
