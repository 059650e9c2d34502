"""Which workers are done with their training and which are gone, as a server knows it."""

from __future__ import annotations

import time

from windlass.train.failures import lost
from windlass.train.seat import Seat


class Attendance:
    """`gone`: lost, or left; one that is done leaves soon."""

    def __init__(self, seat: Seat) -> None:
        self.done: set[int] = set()
        self.gone: set[int] = set()
        self._seat = seat
        self._few_since: float | None = None

    def is_over(self) -> bool:
        """Whether nobody has anything more to ask. Raises MemberLost when for as long as the
        deadline too few have been here, and none came back."""
        workers = set(range(self._seat.workers))
        missing = workers & self.gone - self.done
        if self.done and workers <= self.done | self.gone:
            return True
        if len(workers - missing) >= self._seat.least:
            self._few_since = None
            return False
        now = time.monotonic()
        self._few_since = self._few_since or now
        if now - self._few_since > self._seat.deadline_seconds:
            here = len(workers - missing)
            why = (
                f"{here} are left of at least {self._seat.least}" if here else "no worker is left"
            )
            names = [f"worker {n}" for n in sorted(missing)]
            raise lost(names, "serving", None, why=f"{why}, and none came back")
        return False
