"""A job that the fake engine knows: what it waits for, holds, and has done."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.scheduler.events import Seat, Submit
from windlass.scheduler.simulate.metrics import DONE, Account
from windlass.scheduler.simulate.workload import Job

PENDING, HOLDING, LEAVING, OVER = range(4)
SPEED = 1000
"""Work is counted in worker-milliseconds times this, so that speeds can be per mille."""


class Live:
    """A job from its submit to its end."""

    __slots__ = (
        "job", "number", "state", "work_left", "seats", "held", "rate", "since_ms", "started_ms",
        "used_ms", "waited_ms", "first_ms", "ran_ms", "preemptions", "token", "ending",
        "beneficiary", "promised_ms", "cancelled", "submit", "restarts", "done", "account",
        "began_ms", "inside", "working",
    )  # fmt: skip
    account: Account
    """Its tenant's, from its first wait on."""

    def __init__(self, job: Job, number: int, now: int) -> None:
        self.job = job
        self.number = number
        self.state = PENDING
        self.work_left = job.duration_ms * job.workers * SPEED
        self.seats: Sequence[Seat] = ()
        self.held = 0
        """Members whose seats it holds, those it is about to give up included."""
        self.rate = 0
        self.since_ms = now
        """When it began to wait, or when its work was last counted."""
        self.started_ms = 0
        self.began_ms = -1
        """When this attempt began to run: its time limit counts from there. -1: not yet."""
        self.inside = 0
        """Members that the engine has taken, where it has limits."""
        self.working = 0
        """Those of them that run."""
        self.used_ms = 0
        """Of its time limit, in earlier attempts."""
        self.waited_ms = 0
        self.first_ms = -1
        self.ran_ms = 0
        self.preemptions = 0
        self.restarts = 0
        self.token = 0
        self.ending = DONE
        self.beneficiary = ""
        self.promised_ms = -1
        self.cancelled = False
        self.submit: Submit | None = None
        self.done = 0
        """Work of this attempt."""
