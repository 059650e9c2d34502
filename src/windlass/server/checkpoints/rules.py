"""Which checkpoints of a job may go. Pure: rows in, rows out.

What stays, whatever else is said: the `keep` newest (by attempt, then step), the newest good one,
the one that the running attempt resumed from, those that an unfinished job starts from, the best
`n` by their metric, and a script's own files, which are the script's to remove.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from windlass.core.jobs import KeepBest

PATIENCE_MS = 60_000
"""A metric that has not come by so long after its checkpoint is not waited for: the lines of a
spool are some seconds behind."""


@dataclass(frozen=True, slots=True)
class Saved:
    path: str
    attempt: int
    step: int
    registered_ms: int
    bad: bool = False
    own_files: bool = False
    """The script wrote them itself, in its own way."""

    @property
    def age(self) -> tuple[int, int]:
        return self.attempt, self.step


@dataclass(frozen=True, slots=True)
class Scores:
    """The metric that is kept by: its value at each checkpoint that has one, and the place (as
    attempt and step) up to which it is known."""

    values: dict[str, float]
    known_to: tuple[int, int] = (-1, -1)


def superfluous(
    saved: Sequence[Saved],
    *,
    keep: int,
    best: KeepBest | None,
    scores: Scores,
    fence: int,
    unfinished: bool,
    held: Collection[str],
    now_ms: int,
) -> list[Saved]:
    """Those that may go, oldest first."""
    newest_first = sorted(saved, key=lambda each: each.age, reverse=True)
    good = [each for each in newest_first if not each.bad]
    stay = {each.path for each in good[: max(1, keep)]}
    if unfinished:
        stay |= resumed_from(good, fence)
    if best is not None:
        stay |= {each.path for each in best_of(good, best, scores)[: best.n]}
        stay |= {each.path for each in good if _unjudged(each, scores, now_ms)}
    last = good[min(max(1, keep), len(good)) - 1].age if good else None
    return [
        each
        for each in reversed(newest_first)
        if each.path not in stay
        and each.path not in held
        and not each.own_files
        and last is not None
        and each.age < last
    ]


def best_of(good: Sequence[Saved], best: KeepBest, scores: Scores) -> list[Saved]:
    """Those that have a score, the best first; of equal ones the newest."""
    sign = -1 if best.goal == "max" else 1
    scored = [each for each in good if not math.isnan(scores.values.get(each.path, math.nan))]
    newest = sorted(scored, key=lambda each: each.age, reverse=True)
    return sorted(newest, key=lambda each: sign * scores.values[each.path])


def resumed_from(good: Sequence[Saved], fence: int) -> set[str]:
    """What the newest attempt was told to go on from, and may still read: the newest of those
    before it."""
    earlier = [each for each in good if each.attempt < fence]
    return {max(earlier, key=lambda each: each.age).path} if earlier else set()


def _unjudged(each: Saved, scores: Scores, now_ms: int) -> bool:
    """Its metric may be on its way still."""
    return scores.known_to < each.age and now_ms - each.registered_ms < PATIENCE_MS
