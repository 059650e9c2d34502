"""How many requests there were, by route, method and kind of answer, and how long they took until
the answer began: a stream of an hour is no slow request. Some hundred nanoseconds a request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds; the last span has no end."""
UNMATCHED = "unmatched"
"""Refused before a route was found, or none was."""


class Tally:
    """For one thread: that of the server's loop."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[tuple[str, str], list[float]] = {}

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        """`route` is a template (`/api/v1/jobs/{ref}`), never what a caller sent."""
        answer = (route, method, status // 100)
        self._answers[answer] = self._answers.get(answer, 0) + 1
        spans = self._seconds.get((route, method))
        if spans is None:
            spans = self._seconds[route, method] = [0] * (len(BOUNDS) + 1) + [0.0]
        spans[bisect_left(BOUNDS, seconds)] += 1
        spans[-1] += seconds

    def answers(self) -> Iterator[tuple[str, str, str, int]]:
        """(route, method, "2xx" …, how many)."""
        for (route, method, kind), count in sorted(self._answers.items()):
            yield route, method, f"{kind}xx", count

    def spans(self) -> Iterator[tuple[str, str, list[int], float]]:
        """(route, method, how many took at most as long as each bound and in all, the sum)."""
        for (route, method), found in sorted(self._seconds.items()):
            total, counts = 0, []
            for count in found[:-1]:
                total += int(count)
                counts.append(total)
            yield route, method, counts, found[-1]
