"""How long a job will run, from how long its like ran: for those that state no limit.

The guess is the longest of the last five runs like it, plus a half: the same user's jobs of the
same likeness, or any of this user's where there was none. An estimate that is too short breaks a
promise made to another job, one that is too long only wastes a gap: so it aims high. Replayed in
order of submission, with only what had ended by then, without limits:

    log                                  guessed   too short   guess / run, median
    HPC2N, user and size                 99.0 %     13.6 %       2.5
    HPC2N, user alone                    99.0 %     16.4 %       3.2
    Philly, tenant and size (no users)   99.8 %     12.2 %       2.3
    ... longest of five, nothing added              21.9 %       1.6
    ... longest of ten, plus a half                  8.6 %       3.1
    ... the last run as it was                      46.0 %       1.0

(The limits that the users of HPC2N gave: 2.2 at the median. The guess cut at these limits: 1.6,
and 13.5 % too short.) Past five runs the guess grows faster than the errors fall. It is coarse at
the far end all the same: one guess in ten is over by a hundred times or more, as is one limit in
ten, mostly for jobs that fail at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

KEPT = 5
"""Runs remembered of each kind."""

_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")


def likeness(name: str, command: Sequence[str] = ()) -> str:
    """What jobs of one sort have in common: the name, or program and script, less its numbers:
    `sweep-017` and `sweep-018` are alike."""
    return _NUMBERS.sub("#", (name or " ".join(command[:2]))[:120])


class Histories:
    """The last runs of each user, as many users and likenesses as there is room for; whoever
    was not heard of for the longest is forgotten first."""

    def __init__(self, room: int = 50_000) -> None:
        self._room = room
        self._runs: dict[tuple[str, str, str], tuple[int, ...]] = {}

    def ended(self, tenant: str, user: str, like: str, ran_ms: int) -> None:
        """A job ended by itself after so long. One that was cancelled, preempted or lost says
        nothing of how long it would have run: do not tell."""
        for key in dict.fromkeys(((tenant, user, like), (tenant, user, ""))):
            runs = (*self._runs.pop(key, ()), max(0, ran_ms))
            self._runs[key] = runs[-KEPT:]  # at the end: heard of last
        while len(self._runs) > self._room:
            del self._runs[next(iter(self._runs))]

    def alike(self, tenant: str, user: str, like: str) -> int | None:
        """The same, by runs of this likeness alone: what a person is told of must not rest on
        jobs that have nothing in common but their user."""
        runs = self._runs.get((tenant, user, like))
        return max(1, max(runs) * 3 // 2) if runs else None

    def expect(self, tenant: str, user: str, like: str, limit_ms: int | None = None) -> int | None:
        """How long it should run at most: never over its limit; None where nothing is known."""
        runs = self._runs.get((tenant, user, like)) or self._runs.get((tenant, user, ""))
        if not runs:
            return limit_ms
        guess = max(1, max(runs) * 3 // 2)
        return guess if limit_ms is None else min(guess, limit_ms)
