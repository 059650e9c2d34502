"""Which samples have been used, whoever came and went: each of an epoch once.

A training is a sequence of *rows*, its global batches; a row is cut into as many *shares* as there
are workers. Where each worker goes at its own pace it follows a line of its own:

    row        0    1    2    3    4    5          worker 1 is lost when two of its shares are in
    worker 0   x    x    x    x    .    .          the state that stays: its line lies open from
    worker 1   x    x    ?    ?    ?    ?          row 2 on. Who is done with an epoch takes what
    worker 2   x    x    x    .    .    .          lies open in it.

A share is used when its update is in the state that stays. What somebody took and had not
delivered when it was lost lies open again. Each change of who is here is a new *generation*.

Pure: it changes by its methods and by nothing else, so that a second copy that hears the same is
the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Share(NamedTuple):
    """The `place`-th of the `of` shares of a row."""

    row: int
    place: int
    of: int


class Span(NamedTuple):
    """The same share of the rows from `first` up to `last`, without it."""

    place: int
    of: int
    first: int
    last: int

    def shares(self) -> Iterable[Share]:
        return (Share(row, self.place, self.of) for row in range(self.first, self.last))


@dataclass(frozen=True)
class Position:
    """Where a training stands, for any number of workers and any strategy: all rows before `row`
    are used but for what `left` names; none from `row` on. `steps` counts those made."""

    steps: int = 0
    row: int = 0
    left: tuple[Span, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"steps": self.steps, "row": self.row, "left": [list(each) for each in self.left]}

    def words(self) -> dict[str, Any]:
        """What a checkpoint says of it, in plain values."""
        return {"position": json.dumps(self.to_json())}

    @classmethod
    def of(cls, stood: Mapping[str, Any]) -> Position:
        """The same back; of a checkpoint that says nothing more, its steps."""
        if "position" in stood:
            return cls.from_json(json.loads(stood["position"]))
        steps = int(stood.get("steps", 0))
        return cls(steps, steps)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Position:
        left = tuple(Span(*each) for each in told["left"])
        return cls(int(told["steps"]), int(told["row"]), left)


@dataclass
class Ledger:
    """Of workers that go at their own pace. `of` shares a row, one for each place; whoever sits
    in place n follows the line of the n-th shares."""

    of: int
    lines: dict[int, int] = field(default_factory=dict)
    """Of those who are here: the first row of its line that is not used."""
    open: dict[int, int] = field(default_factory=dict)
    """The same of lines that nobody follows."""
    spans: list[Span] = field(default_factory=list)
    """What lies open before those rows."""
    taken: dict[int, list[Share]] = field(default_factory=dict)
    """Open shares that somebody is at work on."""
    generation: int = 0

    @classmethod
    def begin(cls, of: int, position: Position | None = None) -> Ledger:
        """All are here, at the same row."""
        position = position or Position()
        return cls(of, dict.fromkeys(range(of), position.row), spans=list(position.left))

    # -- what happens -----------------------------------------------------------------------

    def used(self, worker: int, share: Share) -> bool:
        """Its update is in the state that stays. Whether it was this worker's to use: a share
        that another has, or that was used before, changes nothing."""
        claimed = self.taken.get(worker, [])
        if share in claimed:
            claimed.remove(share)
            return True
        at = self.lines.get(worker)
        if at is None or share[1:] != (worker, self.of) or share.row < at:
            return False
        self._lay_open(Span(worker, self.of, at, share.row))  # what it passed over
        self.lines[worker] = share.row + 1
        return True

    def loses(self, worker: int) -> None:
        if worker in self.lines:
            self.generation += 1
            self.open[worker] = self.lines.pop(worker)
        for row, place, of in self.taken.pop(worker, []):
            self._lay_open(Span(place, of, row, row + 1))

    def joins(self, worker: int) -> int:
        """The row at which it goes on: that of the slowest, so that nobody is behind for what was
        before it came; its own, where nobody else is here."""
        if worker in self.lines:
            return self.lines[worker]
        self.generation += 1
        was = self.open.pop(worker, 0)
        row = max(was, min(self.lines.values(), default=was))
        self._lay_open(Span(worker, self.of, was, row))
        self.lines[worker] = row
        return row

    def take(self, worker: int, before: int, most: int) -> list[Share]:
        """Up to so many open shares of rows before that one, the first rows first, for this
        worker to use. Asked again it is told the same, until it has used them."""
        mine = self.taken.get(worker, [])
        if mine or worker not in self.lines:
            return list(mine)
        while len(mine) < most:
            share = self._first_open(before)
            if share is None:
                break
            mine.append(share)
        if mine:
            self.taken[worker] = mine
        return list(mine)

    # -- questions --------------------------------------------------------------------------

    def offers(self, worker: int, before: int) -> bool:
        """Whether `take` would give this worker something."""
        rows = [*self.open.values(), *(span.first for span in self.spans)]
        return bool(self.taken.get(worker)) or any(row < before for row in rows)

    def is_settled(self, before: int) -> bool:
        """Whether every share of the rows before that one is used."""
        rows = [*self.lines.values(), *self.open.values(), *(span.first for span in self.spans)]
        return not any(self.taken.values()) and all(row >= before for row in rows)

    def at_work(self, before: int) -> list[int]:
        """Those who have shares of these rows to use yet."""
        late = {worker for worker, row in self.lines.items() if row < before}
        return sorted(late | {worker for worker, shares in self.taken.items() if shares})

    def position(self, unused: Iterable[Share] = ()) -> Position:
        """What a checkpoint of this moment says, to go on with any number of workers. `unused`
        were delivered, but are not in what the checkpoint holds."""
        lines = {**self.lines, **self.open}
        row = max(lines.values(), default=0)
        left = [share for span in self.spans for share in span.shares()]
        left += [share for own in self.taken.values() for share in own]
        left += [Share(r, n, self.of) for n, at in lines.items() for r in range(at, row)]
        return packed(row, [*left, *unused])

    # -- whole ------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "of": self.of, "generation": self.generation,
            "lines": sorted(self.lines.items()), "open": sorted(self.open.items()),
            "spans": [list(each) for each in self.spans],
            "taken": [[n, [list(s) for s in own]] for n, own in sorted(self.taken.items())],
        }  # fmt: skip

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Ledger:
        return cls(
            told["of"],
            {int(n): int(row) for n, row in told["lines"]},
            {int(n): int(row) for n, row in told["open"]},
            [Span(*each) for each in told["spans"]],
            {int(n): [Share(*each) for each in own] for n, own in told["taken"]},
            told["generation"],
        )

    # -- inside -----------------------------------------------------------------------------

    def _lay_open(self, span: Span) -> None:
        if span.first < span.last:
            self.spans.append(span)

    def _first_open(self, before: int) -> Share | None:
        """The first open share of these rows, which is open no more."""
        at = min(range(len(self.spans)), key=lambda n: (self.spans[n].first, n), default=None)
        line = min(self.open, key=lambda n: (self.open[n], n), default=None)
        if at is not None and (line is None or self.spans[at].first <= self.open[line]):
            place, of, first, last = self.spans[at]
            if first >= before:
                return None
            self.spans[at : at + 1] = [Span(place, of, first + 1, last)] * (first + 1 < last)
            return Share(first, place, of)
        if line is None or self.open[line] >= before:
            return None
        self.open[line] += 1
        return Share(self.open[line] - 1, line, self.of)


def shares_of(spans: Sequence[Span]) -> list[Share]:
    """One by one, the first rows first."""
    return sorted(share for span in spans for share in span.shares())


def merged(begins: Position, of: int, used: Mapping[int, int]) -> Position:
    """Where a training stands that began there with `of` workers, each at its own pace, when so
    many batches of each place are in the state. What was left is dealt first, a share for each of
    them in a step (`Data.deal`); then come the rows."""
    left = shares_of(begins.left)
    dealt = -(-len(left) // of)
    open_ = [share for n, share in enumerate(left) if n // of >= used.get(n % of, 0)]
    rows = [max(0, used.get(place, 0) - dealt) for place in range(of)]
    most = max(rows)
    for place, made in enumerate(rows):
        open_ += [Share(begins.row + row, place, of) for row in range(made, most)]
    steps = max((used.get(place, 0) for place in range(of)), default=0)
    return packed(begins.row + most, open_, steps=begins.steps + steps)


def packed(row: int, left: Iterable[Share], steps: int | None = None) -> Position:
    """The same in the fewest words: a last row of which nothing is used is not begun."""
    shares = set(left)
    while row:
        of = next((share.of for share in shares if share.row == row - 1), 0)
        whole = {Share(row - 1, place, of) for place in range(of)}
        if not of or not whole <= shares:
            break
        shares -= whole
        row -= 1
    spans: list[Span] = []
    for share in sorted(shares, key=lambda each: (each.of, each.place, each.row)):
        if spans and spans[-1][:2] == share[1:] and spans[-1].last == share.row:
            spans[-1] = spans[-1]._replace(last=share.row + 1)
        else:
            spans.append(Span(share.place, share.of, share.row, share.row + 1))
    return Position(row if steps is None else steps, row, tuple(spans))
