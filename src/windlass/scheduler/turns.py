"""Whose turn it is: forms, strict queues and groups of waiting jobs in the order of the first job
of each, with how many of them may fit."""

from __future__ import annotations

import heapq
from collections.abc import Container

from windlass.scheduler.entries import Entry
from windlass.scheduler.nodes import Form
from windlass.scheduler.pending import Group, Key

Source = Group | Form
Turn = tuple[Key, int, Source, Entry | None]
"""The key, a number, where it comes from, and who it is once that is known."""

FITS, FRESH = 1, 2
"""In a turn's number: it may fit; somebody came to it, so that it is looked at anyway."""

_LEAST: Key = (-1, 0, 0, 0, 0)
"""Before all others: who it is is not known yet."""


class Turns:
    def __init__(self, touched: Container[Form | str]) -> None:
        """`touched`: forms and strict queues to which somebody came."""
        self._heap: list[Turn] = []
        self._touched = touched
        self._number = 0
        self._fresh = 0
        self.fitting = 0
        """How many of those that wait for their turn may fit."""

    def worth_going_on(self) -> bool:
        """Those that do not fit matter as long as somebody that ranks behind them may start."""
        return bool(self._heap and (self.fitting or self._fresh))

    def add(self, source: Source, *, fits: bool = True, key: Key = _LEAST) -> None:
        fresh = (source.name if isinstance(source, Group) else source) in self._touched
        self._number += 4
        self._push((key, self._number + FRESH * fresh + fits, source, None))

    def first(self) -> Turn:
        return self._heap[0]

    def drop(self) -> None:
        """The first is through."""
        number = heapq.heappop(self._heap)[1]
        self.fitting -= number & FITS
        self._fresh -= number & FRESH

    def set_first(self, key: Key, entry: Entry) -> None:
        """The first is this one, if nobody else is before it with this key."""
        _, number, source, _ = self._heap[0]
        heapq.heapreplace(self._heap, (key, number, source, entry))

    def forget(self) -> None:
        """Who the first of each is may have changed."""
        self._heap = [(_LEAST, number, source, None) for _, number, source, _ in self._heap]
        heapq.heapify(self._heap)

    def put_back(self, turn: Turn, key: Key, entry: Entry, *, fits: bool) -> None:
        """There is another where that came from."""
        _, number, source, _ = turn
        self._push((key, (number | FITS) - FITS + fits, source, entry))

    def _push(self, turn: Turn) -> None:
        self.fitting += turn[1] & FITS
        self._fresh += turn[1] & FRESH
        heapq.heappush(self._heap, turn)
