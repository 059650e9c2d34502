"""TensorBoard as a job of the platform: find the one that shows these jobs, or start it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.client import Client
from windlass.client.http import path_of
from windlass.client.jobs import Job
from windlass.core.engines import LOCAL
from windlass.core.errors import Unavailable, Unreachable

LONGEST = "24h"
"""A board that somebody always looks at ends all the same."""

_PROGRAM = {"board_program.py": "board.py", "eventfile.py": "eventfile.py"}
"""Files of this folder that are sent with the job, and their names there."""


def running(client: Client, jobs: Sequence[Mapping[str, Any]], user: str) -> Job | None:
    """The user's own board over just these jobs, if there is one that is not over."""
    for job in client.jobs.list(name=name_of(jobs), user=user, limit=5):
        if not job.done:
            return job
    return None


def start(
    client: Client,
    jobs: Sequence[Mapping[str, Any]],
    *,
    python: str | None,
    idle_seconds: float,
) -> Job:
    """Submit a board over these jobs. `python` has TensorBoard; None: the node's own."""
    named = [f"{job['id']}={_plain(job['name'])}" for job in jobs]
    spec = {
        "name": name_of(jobs),
        "run": ["python", "board.py", f"{idle_seconds:g}", *named],
        "framework": "python",
        "engine": LOCAL,  # the server comes to it by a socket in its folder
        "work": "notebook",
        "environment": {"python": python} if python else {},
        "metrics": {"pickup": False},  # else it would take what it shows for its own
        "limits": {"time": LONGEST, "idle": None},
        "retry": {"times": 0},
    }
    with tempfile.TemporaryDirectory(prefix="windlass-board-") as folder:
        for source, name in _PROGRAM.items():
            shutil.copyfile(Path(__file__).with_name(source), Path(folder, name))
        return client.jobs.submit(spec, code=folder)


def wait(client: Client, job: Job, seconds: float = 300.0) -> dict[str, Any]:
    """The board's address, once it answers. Raises Unavailable with what it said when it ended
    before, or did not start in time."""
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        if left <= 0:
            now = client.jobs.get(job.id)
            raise Unavailable(
                f"the board {now.name} is {now.state} after {seconds:g} s",
                hint=f"windlass why {now.name}",
            )
        try:
            # It says a line once it listens: the stream of the job wakes us.
            path = path_of("jobs", job.id, "stream")
            with client.http.stream(path, limit_seconds=left) as told:
                for message in told:
                    about: dict[str, Any] = client.http.get(path_of("jobs", job.id, "board"))
                    if about["ready"]:
                        return about
                    if message.event == "end":
                        raise _did_not_start(client, job)
        except Unreachable:
            continue  # it broke, or the time is over


def _did_not_start(client: Client, job: Job) -> Unavailable:
    now = client.jobs.get(job.id)
    said = [line["text"] for line in client.jobs.logs(job.id, tail=5)]
    return Unavailable(
        f"the board {now.name} did not start: " + (" / ".join(said) or now.reason),
        hint=f"windlass logs {now.name}",
    )


def name_of(jobs: Sequence[Mapping[str, Any]]) -> str:
    """The same for the same jobs, in whatever order."""
    ids = sorted({str(job["id"]) for job in jobs})
    return "tb-" + hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:12]


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).lstrip(".") or "job"
