"""`windlass down`: stop the server of this machine."""

from __future__ import annotations

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
        ended = [jobs.wait(job.id, timeout_seconds=60).id for job in live]
    running = 0 if kill else len(session.client.jobs.list(state="running", limit=100))
    local.stop(server)
    if not session.one({"stopped": True, "pid": server.pid, "ended": ended, "running": running}):
        goes_on = f"; {running} running job(s) go on" if running else ""
        session.say(f"stopped the server (pid {server.pid}){goes_on}")
