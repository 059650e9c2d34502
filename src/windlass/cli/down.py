"""`windlass down`: stop the server of this machine."""

from __future__ import annotations

import time

import click

from windlass.cli import local
from windlass.cli.session import WORDS, Session, verb
from windlass.client.jobs import STATES


@verb("down", outputs=WORDS)
@click.option("--kill", is_flag=True, help="Stop all jobs first.")
def command(session: Session, kill: bool) -> None:
    """Stop the server; jobs go on, or end with --kill.

    Running jobs are found again by the next `windlass up`.
    """
    server = local.find()
    if server is None:
        if not session.one({"stopped": False}):
            session.say("nothing to stop: no server runs here")
        return
    ended = []
    if kill:
        jobs = session.client.jobs
        live = [job for state in STATES[:5] for job in jobs.list(state=state, limit=10_000)]
        for job in live:
            jobs.stop(job.id, reason="windlass down --kill", now=True)
        ended = _wait_for_all(session, [job.id for job in live])
    running = 0 if kill else len(session.client.jobs.list(state="running", limit=100))
    local.stop(server)
    if not session.one({"stopped": True, "pid": server.pid, "ended": ended, "running": running}):
        goes_on = f"; {running} running job(s) go on" if running else ""
        session.say(f"stopped the server (pid {server.pid}){goes_on}")


def _wait_for_all(session: Session, ids: list[str], seconds: float = 45.0) -> list[str]:
    """Those that ended in time. What does not end is said, and does not keep the server up."""
    deadline = time.monotonic() + seconds
    ended = []
    for job_id in ids:
        try:
            left = max(0.1, deadline - time.monotonic())
            ended.append(session.client.jobs.wait(job_id, timeout_seconds=left).id)
        except TimeoutError as err:
            session.say(f"still there: {err}; the next `windlass up` goes on with it")
    return ended
