"""Schedules of pipelines as data: for each rank, the list of what it does, in order.

    gpipe         F0 F1 F2 F3 ........ B3 B2 B1 B0      all forward, then all back, in reverse
    1f1b          F0 F1 F2 B0 F3 B1 B2 B3               backward as soon as can be: less memory
    interleaved   1f1b with several stages on a rank    a bubble of 1/stages per rank
    zb1p, zbv     B = I (for the inputs) + W (for the weights); W fills the bubble
    pipedream     F0 F1 F2 B0 U0 F3 B1 U1 …             no flush: an update after each backward
    2bw           the same, an update after every m micro-batches

The first five flush: when a list is done, every gradient is there, and the runner updates once. In
the last two a batch is let in at each turn for as long as the training runs (`Lane`), and updates
(`U`) are part of the order: at which version of its weights a stage sees a batch is therefore
known before anything runs, however fast or slow the ranks are.

A schedule says nothing of messages: what a stage needs is named by the action that makes it
(`clock.needs`), and `clock.clock` refuses a schedule whose actions wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

from windlass.core.errors import InvalidInput

KINDS = {
    "F": "forward",
    "B": "backward",
    "I": "gradient of the inputs",
    "W": "gradient of the weights",
    "U": "update",
}


class Action(NamedTuple):
    """`batch` is a micro-batch of the step, or the running number of pipedream and 2bw; of an
    update (U) it is the update's own number: it makes version `batch + 1`."""

    kind: str
    stage: int
    batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.batch} of stage {self.stage}"


@dataclass(frozen=True)
class Schedule:
    name: str
    stages: int
    batches: int
    ranks: tuple[tuple[Action, ...], ...]
    rank_of: tuple[tuple[int, ...], ...]
    """For each stage, the ranks that hold it: several where it is replicated."""
    update_every: tuple[int, ...] = ()
    """For each stage, how many batches make one update (U). Empty: one after the whole list."""

    def holder(self, stage: int, batch: int) -> int:
        """The rank that does this batch at this stage, forward and backward."""
        ranks = self.rank_of[stage]
        return ranks[batch % len(ranks)]

    def stages_of(self, rank: int) -> tuple[int, ...]:
        return tuple(s for s, ranks in enumerate(self.rank_of) if rank in ranks)


# -- schedules that flush ---------------------------------------------------------------------


def gpipe(stages: int, batches: int) -> Schedule:
    _check(stages=stages, batches=batches)
    ranks = [
        [Action("F", s, b) for b in range(batches)]
        + [Action("B", s, b) for b in reversed(range(batches))]
        for s in range(stages)
    ]
    return _straight("gpipe", stages, batches, ranks)


def one_f_one_b(stages: int, batches: int) -> Schedule:
    _check(stages=stages, batches=batches)
    ranks = []
    for s in range(stages):
        forward = [Action("F", s, b) for b in range(batches)]
        backward = [Action("B", s, b) for b in range(batches)]
        ranks.append(_alternated(forward, backward, stages - 1 - s))
    return _straight("1f1b", stages, batches, ranks)


def interleaved(stages: int, batches: int, chunks: int) -> Schedule:
    """`stages` in all, `chunks` of them on each rank: stage s is rank s mod (stages / chunks)'s.

    Batches go in rounds, as many as there are ranks in each; a rank does a round with its first
    stage, then with its second … Where the rounds are not alike the first ones are larger."""
    _check(stages=stages, batches=batches, chunks=chunks)
    if stages % chunks:
        raise InvalidInput(f"stages: a multiple of chunks={chunks} (found {stages})")
    width = stages // chunks
    rounds = _rounds(batches, max(1, batches // width))
    ranks = []
    for rank in range(width):
        mine = [rank + n * width for n in range(chunks)]
        forward = [Action("F", s, b) for batch in rounds for s in mine for b in batch]
        backward = [Action("B", s, b) for batch in rounds for s in reversed(mine) for b in batch]
        warm_up = (chunks - 1) * len(rounds[0]) + 2 * (width - 1 - rank)
        ranks.append(_alternated(forward, backward, warm_up))
    rank_of = tuple((s % width,) for s in range(stages))
    return Schedule("interleaved", stages, batches, _frozen(ranks), rank_of)


def zb1p(stages: int, batches: int) -> Schedule:
    """1f1b whose weight gradients wait: rank s does them s batches late, in what was the bubble.
    Memory as 1f1b at its first rank, on all."""
    _check(stages=stages, batches=batches)
    ranks = []
    for s in range(stages):
        warm_up = min(stages - 1 - s, batches)
        found = [Action("F", s, b) for b in range(warm_up)]
        for b in range(batches):
            if warm_up + b < batches:
                found.append(Action("F", s, warm_up + b))
            found.append(Action("I", s, b))
            if b >= s:
                found.append(Action("W", s, b - s))
        found += [Action("W", s, b) for b in range(max(0, batches - s), batches)]
        ranks.append(found)
    return _straight("zb1p", stages, batches, ranks)


def zbv(stages: int, batches: int) -> Schedule:
    """Two stages on each rank, in a V: rank r holds stages r and stages-1-r, so the rank that
    begins also ends. No bubble within a rank when F, I and W take as long, from 2·ranks-1 batches
    on."""
    _check(stages=stages, batches=batches)
    if stages % 2:
        raise InvalidInput(f"stages: an even number, two to a rank (found {stages})")
    width = stages // 2
    ranks = [
        [each for each in _v(rank, width, max(batches, 2 * width - 1)) if each.batch < batches]
        for rank in range(width)
    ]
    rank_of = tuple((min(s, stages - 1 - s),) for s in range(stages))
    return Schedule("zbv", stages, batches, _frozen(ranks), rank_of)


def _v(rank: int, width: int, batches: int) -> list[Action]:
    """The hand-made order of "Zero Bubble Pipeline Parallelism", section 6, of a full pipeline."""
    stage = (rank, 2 * width - 1 - rank)
    done = {(kind, chunk): 0 for kind in "FIW" for chunk in (0, 1)}
    found: list[Action] = []

    def do(kind: str, chunk: int) -> None:
        found.append(Action(kind, stage[chunk], done[kind, chunk]))
        done[kind, chunk] += 1

    def do_all(*what: tuple[str, int]) -> None:
        for kind, chunk in what:
            do(kind, chunk)

    for _ in range(2 * (width - rank) - 1):
        do("F", 0)
    for _ in range(rank):
        do_all(("F", 1), ("F", 0))
    for _ in range(width - rank):
        do_all(("F", 1), ("I", 1), ("W", 1))
    while done["F", 1] < done["F", 0] or done["F", 0] < batches:
        if done["F", 0] < batches:
            do("F", 0)
        do_all(("I", 0), ("W", 0), ("F", 1), ("I", 1), ("W", 1))
    for _ in range(rank):
        do_all(("I", 0), ("I", 1))
    for _ in range(width - rank):
        do_all(("I", 0), ("W", 0))
    for chunk in (1, 0):
        while done["W", chunk] < done["I", chunk]:
            do("W", chunk)
    return found


# -- schedules that never flush ---------------------------------------------------------------


def warm_up(replicas: Sequence[int], stage: int) -> int:
    """Batches that each replica of a stage lets in before its first backward: so many that the
    stage has one more of each replica in flight than all of the next stage's can hold, or it
    could not work ahead of them.

    With R ranks this is PipeDream's floor((R - 1 - ranks before) / replicas) wherever that needs
    no rounding at the stages behind: straight pipelines, 3-1, 2-2-1. Of others (1-2-1, 3-2-1)
    PipeDream's rounds away a batch that is missing later, and every round waits for it."""
    held = replicas[-1]
    found = 0
    for s in range(len(replicas) - 2, stage - 1, -1):
        found = -(-held // replicas[s])
        held = replicas[s] * (found + 1)
    return found


def in_flight_at_input(replicas: Sequence[int]) -> int:
    """PipeDream's NOAM: batches in flight for each replica of the input stage, ceil(R / replicas)
    where nothing is rounded behind it."""
    return warm_up(replicas, 0) + 1


def depth(replicas: Sequence[int]) -> int:
    """Batches in flight in the whole pipeline: 2bw's updates are at least as far apart."""
    return in_flight_at_input(replicas) * replicas[0]


def first_ranks(replicas: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each stage its ranks: those of a stage lie side by side."""
    return tuple(
        tuple(range(sum(replicas[:s]), sum(replicas[: s + 1]))) for s in range(len(replicas))
    )


class Lane:
    """One rank's order under 1F1B-RR, a batch at a time: batch b is of replica b mod replicas,
    forward and backward; after `warm_up` forwards, one backward follows each forward. All
    replicas of a stage take part in each of its updates, of `update_every` batches (a round).

    An update follows this rank's last backward of its round; with `late`, its first backward of
    the next: replicas then need not wait for each other's backward, only for that of a turn ago.

    `first` is the first batch, and `version` what the stage's weights are then."""

    def __init__(
        self,
        replicas: Sequence[int],
        stage: int,
        replica: int,
        *,
        update_every: int | None = None,
        late: bool = False,
        first: int = 0,
        version: int = 0,
    ) -> None:
        self.stage, self.replica, self.replicas = stage, replica, replicas[stage]
        self.warm_up = warm_up(replicas, stage)
        self.update_every = update_every or self.replicas
        self.late = late
        self.first = first
        """The first batch since nothing was in flight."""
        self.next = first
        """The batch that is let in next."""
        self.version = version
        """When all that was given out is done."""
        self._round_ends = first + self.update_every
        self._open: deque[int] = deque()
        self._due: deque[Action] = deque()

    def is_mine(self, batch: int) -> bool:
        return batch % self.replicas == self.replica

    @property
    def next_of_mine(self) -> int:
        return self.next + (self.replica - self.next) % self.replicas

    def begins_round(self, batch: int) -> bool:
        return (batch - self.first) % self.update_every == 0

    def let_in(self) -> list[Action]:
        """What this rank does when the next batch comes; nothing when it is another replica's."""
        batch, found = self.next, list[Action]()
        self.next += 1
        if self.is_mine(batch):
            found.append(Action("F", self.stage, batch))
            self._open.append(batch)
            if len(self._open) > self.warm_up:
                found += self._back()
        return found

    def drain(self) -> list[Action]:
        """All that is left to do of what was let in. A round that was not full is updated as it
        is, by all replicas; the next batch begins a new one."""
        found: list[Action] = []
        while self._open:
            found += self._back()
        while self._round_ends - self.update_every < self.next:
            self._end_round()
        found += self._updates()
        self.first = self.next
        self._round_ends = self.first + self.update_every
        return found

    def _back(self) -> list[Action]:
        batch = self._open.popleft()
        found = [Action("B", self.stage, batch)]
        if self.late:
            found += self._updates()
        if batch + self.replicas >= self._round_ends:
            self._end_round()
        return found if self.late else found + self._updates()

    def _end_round(self) -> None:
        self._due.append(Action("U", self.stage, self.version))
        self._round_ends += self.update_every
        self.version += 1

    def _updates(self) -> list[Action]:
        found = list(self._due)
        self._due.clear()
        return found


def pipedream(replicas: Sequence[int], batches: int, *, overlap: bool = True) -> Schedule:
    """1F1B-RR with an update after each round of a stage: one backward of each replica. With
    `overlap` the replicas of a stage exchange a round's gradients while they compute the next, and
    its update comes a turn later."""
    _check(batches=batches, **{f"replicas[{n}]": each for n, each in enumerate(replicas)})
    return _lanes("pipedream", replicas, batches, tuple(replicas), late=overlap)


def is_late(replicas: Sequence[int], stage: int, overlap: bool) -> bool:
    """A stage that exchanges nothing has nothing to wait for."""
    return overlap and replicas[stage] > 1


def two_bw(replicas: Sequence[int], updates: int, micro_batches: int | None = None) -> Schedule:
    """The same with an update every `micro_batches` (default: `depth(replicas)`, the least)."""
    _check(updates=updates, **{f"replicas[{n}]": each for n, each in enumerate(replicas)})
    every = depth(replicas) if micro_batches is None else micro_batches
    if every < depth(replicas):
        raise InvalidInput(
            f"micro_batches: {depth(replicas)} or more, the depth of this pipeline, or two "
            f"versions of the weights are not enough (found {every})"
        )
    return _lanes("2bw", replicas, updates * every, (every,) * len(replicas))


def aligned(replicas: Sequence[int]) -> int:
    """After every so many batches all stages have whole rounds behind them: only there do their
    versions hold the same batches (vertical sync)."""
    return lcm(*replicas)


def _lanes(
    name: str,
    replicas: Sequence[int],
    batches: int,
    update_every: tuple[int, ...],
    *,
    late: bool = False,
) -> Schedule:
    ranks = []
    for stage, count in enumerate(replicas):
        for replica in range(count):
            lane = Lane(
                replicas, stage, replica, update_every=update_every[stage],
                late=is_late(replicas, stage, late),
            )  # fmt: skip
            found: list[Action] = []
            for _ in range(batches):
                found += lane.let_in()
            ranks.append(found + lane.drain())
    return Schedule(
        name, len(replicas), batches, _frozen(ranks), first_ranks(replicas), update_every
    )


# -- parts ------------------------------------------------------------------------------------


def _alternated(
    forward: Sequence[Action], backward: Sequence[Action], warm_up: int
) -> list[Action]:
    """`warm_up` forwards, then one and one, then the backwards that are left."""
    warm_up = min(warm_up, len(forward))
    found = list(forward[:warm_up])
    for ahead, back in zip(forward[warm_up:], backward, strict=False):
        found += (ahead, back)
    return found + list(backward[len(forward) - warm_up :])


def _rounds(batches: int, count: int) -> list[range]:
    each, more = divmod(batches, count)
    starts = [n * each + min(n, more) for n in range(count + 1)]
    return [range(a, b) for a, b in zip(starts, starts[1:], strict=False)]


def _straight(name: str, stages: int, batches: int, ranks: Sequence[list[Action]]) -> Schedule:
    return Schedule(name, stages, batches, _frozen(ranks), tuple((s,) for s in range(stages)))


def _frozen(ranks: Sequence[Sequence[Action]]) -> tuple[tuple[Action, ...], ...]:
    return tuple(tuple(each) for each in ranks)


def _check(**numbers: int) -> None:
    for name, value in numbers.items():
        if not isinstance(value, int) or value < 1:
            raise InvalidInput(f"{name}: a whole number, 1 or more (found {value!r})")
