"""1.14, the account alone: each sample of an epoch once, whoever comes, goes or is killed."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from windlass.train.data import Data
from windlass.train.ledger import Ledger, Position, Share, Span, merged, packed, shares_of

EPOCHS = 2


class Play:
    """A training of workers that go at their own pace. What is in `state` is what counts: a
    worker that is killed takes with it what it computed and had not delivered."""

    def __init__(self, data: Data, workers: int) -> None:
        self.data = data
        self.until = EPOCHS * data.steps_per_epoch
        self.state: Counter[tuple[int, int]] = Counter()
        self.begin(workers, Position())

    def begin(self, workers: int, position: Position) -> None:
        self.ledger = Ledger.begin(workers, position)
        self.lines = dict.fromkeys(range(workers), position.row)
        self.todo: dict[int, list[Share]] = {n: [] for n in range(workers)}
        self.held: dict[int, list[Share]] = {n: [] for n in range(workers)}

    def compute(self, worker: int) -> bool:
        """One step. Whether there was anything to do."""
        each = self.data.steps_per_epoch
        if self.todo[worker]:
            self.held[worker].append(self.todo[worker].pop(0))
            return True
        row = self.lines[worker]
        if row % each == 0 and row or row >= self.until:  # the end of an epoch
            self.deliver(worker)
            self.todo[worker] = self.ledger.take(worker, row, 2)
            if self.todo[worker]:
                return self.compute(worker)
        if row >= self.until:
            return False
        self.held[worker].append(Share(row, worker, self.ledger.of))
        self.lines[worker] += 1
        return True

    def deliver(self, worker: int) -> None:
        for share in self.held[worker]:
            assert self.ledger.used(worker, share)
            self.use(share)
        self.held[worker] = []

    def use(self, share: Share) -> None:
        cursor = self.data.at(share.row)
        for sample in self.data.share(cursor, share.place, share.of):
            self.state[cursor.epoch, sample] += 1

    def kill(self, worker: int) -> None:
        if worker in self.lines:
            held = self.held[worker]
            del self.lines[worker]
            self.todo[worker], self.held[worker] = [], []
            self.ledger.loses(worker)
            for share in held:  # what a stale worker says later is refused
                assert not self.ledger.used(worker, share)

    def join(self, worker: int) -> None:
        if worker not in self.lines:
            self.lines[worker] = self.ledger.joins(worker)

    def resume(self, workers: int) -> None:
        """From a checkpoint of this moment, with another number of workers."""
        saved = json.loads(json.dumps(self.ledger.position().to_json()))
        self.begin(workers, Position.from_json(saved))

    def together(self, workers: int) -> None:
        """The rest in step, as a synchronous strategy would from the same checkpoint."""
        position = self.ledger.position()
        cursor, left = self.data.stand(position), shares_of(position.left)
        while left:
            batches = [self.data.make_up(cursor, left, n, workers) for n in range(workers)]
            for sample in (sample for batch in batches for sample in batch.samples):
                rows = [each for each in batches[0].makes_up]
                epochs = {self.data.at(each.row).epoch for each in rows}
                epoch = next(e for e in sorted(epochs) if not self.state[e, sample])
                self.state[epoch, sample] += 1
            left = left[len(batches[0].makes_up) :]
        while self.data.row(cursor) < self.until:
            for n in range(workers):
                for sample in self.data.share(cursor, n, workers):
                    self.state[cursor.epoch, sample] += 1
            cursor = self.data.after(cursor)

    def finish(self) -> None:
        if not self.lines:
            self.join(0)
        while not self.ledger.is_settled(self.until):
            for worker in list(self.lines):
                self.compute(worker)
                self.deliver(worker)

    def check(self) -> None:
        once = {(epoch, n): 1 for epoch in range(EPOCHS) for n in range(self.data.size)}
        assert self.state == once


ACTS = some.lists(
    some.tuples(
        some.sampled_from(
            ["compute"] * 5 + ["deliver"] * 4 + ["kill", "join"] * 2 + ["resume", "copy"]
        ),
        some.integers(0, 3),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(
    size=some.integers(1, 17), batch=some.integers(1, 6), workers=some.integers(1, 4), acts=ACTS,
    ends_together=some.booleans(),
)  # fmt: skip
def test_each_sample_of_each_epoch_is_used_once(
    size: int, batch: int, workers: int, acts: list[tuple[str, int]], ends_together: bool
) -> None:
    play = Play(Data(range(size), batch, seed=3), workers)
    for act, number in acts:
        worker = number % play.ledger.of
        if act == "resume":
            play.resume(number + 1)
        elif act == "copy":  # a second copy that heard the same goes on in its place
            play.ledger = Ledger.from_json(json.loads(json.dumps(play.ledger.to_json())))
        elif act in ("kill", "join"):
            getattr(play, act)(worker)
        elif worker in play.lines:
            getattr(play, act)(worker)
    if ends_together:
        play.together(workers)
    else:
        play.finish()
    play.check()


def test_who_is_lost_leaves_its_line_and_who_comes_back_begins_at_the_slowest() -> None:
    ledger = Ledger.begin(3)
    for worker, rows in ((0, 5), (1, 2), (2, 4)):
        for row in range(rows):
            assert ledger.used(worker, Share(row, worker, 3))
    assert not ledger.used(0, Share(2, 0, 3)), "once more"
    ledger.loses(1)
    assert not ledger.used(1, Share(2, 1, 3)), "it is of an old generation"
    assert ledger.take(0, 6, 1) == [Share(2, 1, 3)]
    assert ledger.take(0, 6, 1) == [Share(2, 1, 3)], "asked again"
    assert ledger.joins(1) == 4, "its third row is for anybody, as the second is for worker 0"
    assert ledger.generation == 2
    ledger.loses(0)
    assert ledger.take(2, 6, 9) == [Share(2, 1, 3), Share(3, 1, 3), Share(5, 0, 3)]
    assert not ledger.is_settled(6)


def test_a_position_says_a_row_of_which_nothing_is_used_as_not_begun() -> None:
    whole = [Share(row, place, 2) for row in (3, 4) for place in (0, 1)]
    assert packed(5, whole) == Position(3, 3)
    assert packed(5, [*whole[1:], Share(1, 0, 3)]) == Position(
        4, 4, (Span(1, 2, 3, 4), Span(0, 3, 1, 2))
    )
    assert Position.of({"steps": 7}) == Position(7, 7)
    position = packed(9, [Share(2, 1, 4)], steps=11)
    assert Position.of(position.words()) == position


@pytest.mark.parametrize("seed", range(20))
def test_left_shares_make_batches_of_no_more_than_a_global_one(seed: int) -> None:
    dice = random.Random(seed)
    data = Data(range(23), 5, seed=seed)
    left = sorted({Share(dice.randrange(5), dice.randrange(3), 3) for _ in range(8)})
    wanted = sorted(s for each in left for s in data.share(data.at(each.row), *each[1:]))
    found: list[int] = []
    while left:
        shares = [data.make_up(data.at(5), left, n, 2) for n in range(2)]
        samples = [sample for each in shares for sample in each.samples]
        assert len(samples) <= 5
        found += samples
        left = left[len(shares[0].makes_up) :]
    assert sorted(found) == wanted


TURNS = some.lists(
    some.tuples(some.integers(1, 4), some.lists(some.integers(0, 6), min_size=4, max_size=4)),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(size=some.integers(1, 17), batch=some.integers(1, 6), turns=TURNS)
def test_generations_at_their_own_pace_use_each_sample_once(
    size: int, batch: int, turns: list[tuple[int, list[int]]]
) -> None:
    """Each generation has so many workers, of which so many batches are in the state at its end:
    of one that was lost perhaps fewer than it made."""
    data = Data(range(size), batch, seed=3)
    until = EPOCHS * data.steps_per_epoch
    state: Counter[tuple[int, int]] = Counter()
    position = Position()
    for workers, pace in [*turns, (2, [1000] * 4)]:
        used = {}
        for worker in range(workers):
            cursor, left = data.stand(position), shares_of(position.left)
            made = 0
            while made < pace[worker] and (left or data.row(cursor) < until):
                if left:
                    found = data.deal(cursor, left, worker, workers)
                    mine = found.makes_up[worker : worker + 1]
                    epochs = [data.at(each.row).epoch for each in mine]
                    left = left[len(found.makes_up) :]
                else:
                    found = data.batch(cursor, worker, workers)
                    epochs, cursor = [cursor.epoch], data.after(cursor)
                state.update((epoch, n) for epoch in epochs for n in found.samples)
                made += 1
            used[worker] = made
        position = merged(position, workers, used)
    assert state == {(epoch, n): 1 for epoch in range(EPOCHS) for n in range(size)}
    assert position.row == until and not position.left
