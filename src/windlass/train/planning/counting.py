"""How many: what is predicted for each number of workers and of parameter servers, and where more
stops paying.

More pays while each further worker adds at least `WORTH` of what the first one alone gives; and a
further server, likewise, `WORTH` of that. A worker that adds less is mostly waiting.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from windlass.core.errors import InvalidInput, NeverFits
from windlass.train.planning.choosing import answer
from windlass.train.planning.question import Question
from windlass.train.planning.served import served_bytes, served_rate

WORTH = 0.25
RULE = (
    f"more pays while each further worker or server adds at least {WORTH:.0%} of what one worker "
    "alone gives"
)
MOST_POINTS = 40


@dataclass(frozen=True)
class Point:
    """`servers` 0: the best strategy without any."""

    workers: int
    servers: int
    strategy: str
    replicas: tuple[int, ...]
    samples_per_s: float


@dataclass(frozen=True)
class HowMany:
    points: tuple[Point, ...]
    alone: float
    """Samples a second of one worker."""
    enough: Point
    """More than these stops paying."""
    without: Point | None = None
    """Where servers were asked for: what is enough without any."""


def how_many(question: Question, workers: Sequence[int], servers: Sequence[int]) -> HowMany:
    """The best strategy without servers for each number of workers; with `servers`, also
    `ps:async` with each number of those, and what is enough of both. What does not fit is left
    out; raises NeverFits when nothing does."""
    alone = answer(replace(question, workers=1, per_node=1, node_link=None, memory_bytes=None))
    points: list[Point] = []
    why: NeverFits | None = None
    for count in workers:
        if count > question.per_node and count % question.per_node:
            continue  # no whole nodes
        asked = replace(question, workers=count)
        try:
            chosen = answer(asked).chosen
        except NeverFits as err:
            why = err
        else:
            points.append(Point(count, 0, chosen.strategy, chosen.replicas, chosen.samples_per_s))
        if question.memory_bytes is None or served_bytes(asked) <= question.memory_bytes:
            points += [
                Point(count, each, "ps:async", (count,), served_rate(asked, each))
                for each in servers
            ]
    asked_for = [point for point in points if bool(point.servers) == bool(servers)]
    if not asked_for:
        raise why or InvalidInput("workers: none of these make whole nodes")
    rate = alone.chosen.samples_per_s
    plain = [point for point in points if servers and not point.servers]
    without = _enough(plain, rate) if plain else None
    return HowMany(tuple(points), rate, _enough(asked_for, rate), without)


def _enough(points: Sequence[Point], alone: float) -> Point:
    """From the smallest on: whatever pays for itself, counted from the last that did."""
    kept = points[0]
    for each in sorted(points, key=lambda point: (point.workers + point.servers, point.servers)):
        more = (each.workers + each.servers) - (kept.workers + kept.servers)
        if more > 0 and each.samples_per_s >= kept.samples_per_s + WORTH * alone * more * 0.999999:
            kept = each
    return kept


def parse_counts(text: str, field: str, most: int) -> list[int]:
    """`8`, or `1..16`: all of them, or about forty of them when there are more."""
    found = re.fullmatch(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?", text.strip())
    first = int(found[1]) if found else 0
    last = int(found[2] or found[1]) if found else 0
    if not 1 <= first <= last <= most:
        raise InvalidInput(
            f"{field}: a number from 1 to {most:,}, or two such as 1..16 (found {text!r})"
        )
    if last - first < MOST_POINTS:
        return list(range(first, last + 1))
    ratio = last / first
    steps = (round(first * ratio ** (at / (MOST_POINTS - 1))) for at in range(MOST_POINTS))
    return sorted({first, last, *steps})
