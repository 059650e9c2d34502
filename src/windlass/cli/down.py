"""`windlass down`: stop the server of this machine."""

from __future__ import annotations

import time

import click

from windlass.cli import local
from windlass.cli.session import WORDS, Session, verb
from windlass.client.jobs import STATES
from windlass.core.errors import Internal, InvalidInput


@verb("down", outputs=WORDS)
@click.option("--kill", is_flag=True, help="Stop all jobs first.")
@click.option("--force", is_flag=True, help="End a server that does not answer, by its pid.")
def command(session: Session, kill: bool, force: bool) -> None:
    """Stop the server; jobs go on, or end with --kill.

    Running jobs are found again by the next `windlass up`.
    """
    server = local.look()
    if server is None:
        if not session.one({"stopped": False}):
            session.say("nothing to stop: no server runs here")
        return
    if not server.answers:
        _end_silent(session, server, kill, force)
        return
    ended = []
    if kill:
        jobs = session.client.jobs
        live = [job for state in STATES[:5] for job in jobs.list(state=state, limit=10_000)]
        for job in live:
            jobs.stop(job.id, reason="windlass down --kill", now=True)
        ended = _wait_for_all(session, [job.id for job in live])
    running = 0 if kill else len(session.client.jobs.list(state="running", limit=100))
    try:
        local.stop(server)
    except Internal:
        if not force:
            raise
        local.end_by_force(server)
    if not session.one({"stopped": True, "pid": server.pid, "ended": ended, "running": running}):
        goes_on = f"; {running} running job(s) go on" if running else ""
        session.say(f"stopped the server (pid {server.pid}){goes_on}")


def _end_silent(session: Session, server: local.Server, kill: bool, force: bool) -> None:
    if not force:
        raise local.silent(server)
    if kill:
        raise InvalidInput(
            "--kill with --force: a server that does not answer stops no jobs",
            hint="windlass down --force, then windlass up, then windlass down --kill",
        )
    local.end_by_force(server)
    if not session.one({"stopped": True, "pid": server.pid, "forced": True}):
        session.say(
            f"ended the server (pid {server.pid}), which did not answer; its jobs go on, and "
            "the next `windlass up` finds them"
        )


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
