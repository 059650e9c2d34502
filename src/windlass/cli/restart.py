"""`windlass restart`."""

from __future__ import annotations

from windlass.cli.session import LISTS, Session, job_argument, verb


@verb("restart", outputs=LISTS)
@job_argument(nargs=-1, required=True)
def command(session: Session, job: tuple[str, ...]) -> None:
    """End the attempt and go on from the checkpoint."""
    found = [session.client.jobs.restart(session.ref(word)) for word in job]
    session.jobs(
        found, ["ID", "NAME", "STATE"], lambda item: [item.id[:12], item.name, item.state]
    )
