"""What a real engine does not take at once: so many members, so many gangs, so many API calls.

    Start ─► [line: no room inside] ─► [calls: one for each member] ─► runs

The core knows nothing of it: a gang holds its seats while it stands in the engine's line, so that
an engine which is too small or too slow shows as time in which what is allocated does nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.scheduler.simulate.live import Live


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the engine takes. 0: as much as comes."""

    members: int = 0
    """Members of all gangs at a time."""
    gangs: int = 0
    calls_per_s: float = 0.0
    """Starting a member, and telling one to stop, is a call; the rest wait in line for theirs."""
    burst: int = 100
    """So many calls may come at once after a pause."""

    def __bool__(self) -> bool:
        return bool(self.members or self.gangs or self.calls_per_s)


KNOWN = {
    "kubernetes": Limits(members=150_000),
    "ray": Limits(members=40_000, gangs=1_000),
}
"""What the makers of an engine say it was tested with: 150,000 pods; 40,000 actors and 1,000
placement groups."""


class Bucket:
    """Tokens that come at an even rate, up to a burst of them: when do so many calls pass?"""

    def __init__(self, per_s: float, burst: int) -> None:
        self._each_us = round(1_000_000 / per_s)
        self._burst_us = burst * self._each_us
        self._full_us = 0
        """When the bucket is full again if nobody calls."""

    def passed_ms(self, now_ms: int, calls: int) -> int:
        """Make these calls after all that were made before; the time when the last has passed."""
        now = now_ms * 1000
        self._full_us = max(self._full_us, now) + calls * self._each_us
        return max(now_ms, -((self._burst_us - self._full_us) // 1000))


class Gate:
    """Who is inside the engine, and the line of those that find no room. First come, first
    served: a gang goes in whole, and so do the members that an elastic one gets later."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.line: deque[tuple[Live, int]] = deque()
        """(job, which attempt of it)"""
        self._bucket = Bucket(limits.calls_per_s, limits.burst) if limits.calls_per_s else None
        self.members = self.gangs = 0
        self._most_members = self._most_gangs = self._longest_line = 0
        self._entered = self._waited_ms = self._most_ms = 0

    def queue(self, live: Live) -> None:
        self.line.append((live, live.restarts))
        self._longest_line = max(self._longest_line, len(self.line))

    def wanted(self, live: Live) -> int:
        """How many of its members are to go in. More than the engine takes at all never do."""
        most = self.limits.members or len(live.seats)
        return min(len(live.seats), most) - live.inside

    def enter(self, live: Live, now: int) -> int | None:
        """Let in what it wants; when its calls have passed. None: there is no room."""
        wanted, limits = self.wanted(live), self.limits
        first = live.inside == 0
        if limits.members and self.members + wanted > limits.members:
            return None
        if limits.gangs and first and self.gangs >= limits.gangs:
            return None
        self.members += wanted
        self.gangs += first
        live.inside += wanted
        self._most_members = max(self._most_members, self.members)
        self._most_gangs = max(self._most_gangs, self.gangs)
        passed = self.calls(now, wanted)
        if first:
            waited = passed - live.started_ms
            self._entered += 1
            self._waited_ms += waited
            self._most_ms = max(self._most_ms, waited)
        return passed

    def leave(self, live: Live, members: int) -> None:
        """So many of its members are gone; with the last of them, the gang."""
        if members:
            live.inside -= members
            self.members -= members
            self.gangs -= live.inside == 0

    def calls(self, now: int, calls: int) -> int:
        """When so many calls have passed."""
        return self._bucket.passed_ms(now, calls) if self._bucket and calls else now

    def told(self) -> dict[str, Any]:
        """What the result says of it."""
        mean = self._waited_ms / self._entered if self._entered else 0.0
        return {
            "members_max": self._most_members,
            "gangs_max": self._most_gangs,
            "line_max": self._longest_line,
            "wait_s": {"mean": round(mean / 1000, 6), "max": self._most_ms / 1000},
        }
