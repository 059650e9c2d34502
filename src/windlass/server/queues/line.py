"""What the scheduler's owner tells of its waiting jobs: the seam between the routes and `admit`.

admit (leads) ──► line, why, promise      from the core, as it would decide now
admit (does not lead) ──► None            another server does: the rows must do
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windlass.scheduler.events import Promise, Reason


class Line(Protocol):
    def line(self, queue: str) -> Sequence[str] | None:
        """The ids of the jobs that wait in a queue, in the order in which they are looked at.
        None: this server does not know."""

    def why(self, job_id: str) -> Reason | None:
        """Why a job waits; None for one that does not, or that nothing is known of."""

    def promise(self, job_id: str) -> Promise | None:
        """The reservation of a waiting job, if it has one."""
