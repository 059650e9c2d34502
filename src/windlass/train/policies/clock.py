"""A schedule against the clock, before it runs: when each action begins and ends, what stands
idle, how much is in flight; and the same drawn as a table.

    1f1b: 3 stages, 4 batches, 3 ranks
            0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16 17
    rank 0  F0 F1 F2 .  .  .  .  B0 ── F3 B1 ── B2 ── .  B3 ──
    …

An action begins when its rank has done the one before it and what it needs has come. When no rank
can go on, the ranks wait for each other in a circle: such a schedule is refused, with the circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from windlass.core.errors import InvalidInput
from windlass.train.policies.schedules import KINDS, Action, Schedule

Cost = Callable[[Action], float]
Transfer = Callable[[int, int], float]
"""(from stage, to stage) → the time that what one gives the other is under way."""

UNITS: Mapping[str, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0, "U": 0.0}


def units(action: Action) -> float:
    """Backward takes twice as long as forward, an update no time."""
    return UNITS[action.kind]


def at_once(from_stage: int, to_stage: int) -> float:
    return 0.0


class Span(NamedTuple):
    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Clock:
    schedule: Schedule
    spans: tuple[tuple[Span, ...], ...]
    """For each rank, in its order."""

    @cached_property
    def makespan(self) -> float:
        return max((rank[-1].end for rank in self.spans if rank), default=0.0)

    @cached_property
    def busy(self) -> float:
        """Of all ranks together."""
        return sum(span.end - span.start for rank in self.spans for span in rank)

    @property
    def bubble(self) -> float:
        """The part of all ranks' time, from the first action to the last, in which they wait."""
        whole = len(self.spans) * self.makespan
        return 1 - self.busy / whole if whole else 0.0

    @property
    def overhead(self) -> float:
        """What is waited, as a multiple of what is worked: (K-1)/M of gpipe and 1f1b."""
        whole = len(self.spans) * self.makespan
        return whole / self.busy - 1 if self.busy else 0.0

    @property
    def waits_within(self) -> float:
        """The same part counting each rank from its own first action to its own last."""
        lived = sum(rank[-1].end - rank[0].start for rank in self.spans if rank)
        return 1 - self.busy / lived if lived else 0.0

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """For each stage, the most batches that one of its ranks holds between their forward and
        the end of their backward (and with them, their saved tensors)."""
        return tuple(
            max(_most_held(self.schedule.ranks[rank], {stage}) for rank in ranks)
            for stage, ranks in enumerate(self.schedule.rank_of)
        )

    @cached_property
    def in_flight_of_ranks(self) -> tuple[int, ...]:
        """The same for each rank, over all stages that it holds."""
        stages = range(self.schedule.stages)
        return tuple(_most_held(actions, set(stages)) for actions in self.schedule.ranks)


def _most_held(actions: Sequence[Action], stages: set[int]) -> int:
    split = {each[1:] for each in actions if each.kind == "W"}
    held = most = 0
    for kind, stage, batch in actions:
        if stage not in stages:
            continue
        if kind == "F":
            held += 1
            most = max(most, held)
        elif kind == "B" or kind == ("W" if (stage, batch) in split else "I"):
            held -= 1
    return most


def needs(schedule: Schedule, action: Action) -> list[Action]:
    """What must be done, by whichever rank, before this action can begin."""
    kind, stage, batch = action
    if kind == "F":
        return [Action("F", stage - 1, batch)] if stage else []
    if kind == "W":
        return [Action("I", stage, batch)]
    if kind == "U":
        every = schedule.update_every[stage]
        upto = min((batch + 1) * every, schedule.batches)
        return [Action("B", stage, b) for b in range(batch * every, upto)]
    found = [Action("F", stage, batch)]
    if stage + 1 < schedule.stages:
        found.append(Action("B", stage + 1, batch))
    return found


def clock(
    schedule: Schedule,
    cost: Cost = units,
    transfer: Transfer = at_once,
    *,
    in_turn: bool = False,
) -> Clock:
    """Raises InvalidInput when the schedule cannot run, with who waits for whom. `in_turn`: what a
    rank sends to others goes out one after the other, as over one link."""
    done: dict[Action, float] = {}
    there: dict[Action, float] = {}
    next_of = [0] * len(schedule.ranks)
    free = [0.0] * len(schedule.ranks)
    link = [0.0] * len(schedule.ranks)
    spans: list[list[Span]] = [[] for _ in schedule.ranks]
    waiting: dict[Action, list[int]] = {}
    ready = list(range(len(schedule.ranks)))
    while ready:
        rank = ready.pop()
        actions = schedule.ranks[rank]
        while next_of[rank] < len(actions):
            action = actions[next_of[rank]]
            start, missing = free[rank], None
            for needed in needs(schedule, action):
                came = done if needed.stage == action.stage else there
                at = came.get(needed, came.get(needed._replace(kind=_ALIKE[needed.kind])))
                if at is None:
                    missing = needed
                    break
                start = max(start, at)
            if missing is not None:
                waiting.setdefault(_either(missing), []).append(rank)
                break
            free[rank] = start + cost(action)
            spans[rank].append(Span(action, start, free[rank]))
            next_of[rank] += 1
            if action.kind == "U":  # each replica of a stage has its own
                continue
            done[action] = free[rank]
            to = _goes_to(schedule, action)
            if to is not None and schedule.holder(to, action.batch) != rank:
                begins = max(free[rank], link[rank]) if in_turn else free[rank]
                link[rank] = there[action] = begins + transfer(action.stage, to)
            else:
                there[action] = free[rank]
            ready += waiting.pop(_either(action), [])
    _all_done(schedule, next_of, done)
    return Clock(schedule, tuple(tuple(each) for each in spans))


def _goes_to(schedule: Schedule, action: Action) -> int | None:
    """The stage that needs what this action makes."""
    if action.kind == "F":
        return action.stage + 1 if action.stage + 1 < schedule.stages else None
    return action.stage - 1 if action.kind in "BI" and action.stage else None


_ALIKE = {"F": "F", "B": "I", "I": "B", "W": "W", "U": "U"}
"""What a stage before gets comes from a whole backward or from the half that makes it."""


def _either(action: Action) -> Action:
    return action._replace(kind="B") if action.kind == "I" else action


def _all_done(schedule: Schedule, next_of: Sequence[int], done: Mapping[Action, float]) -> None:
    stuck = [r for r, n in enumerate(next_of) if n < len(schedule.ranks[r])]
    if not stuck:
        return
    where = {
        _either(action): rank
        for rank, actions in enumerate(schedule.ranks)
        for action in actions
        if action.kind != "U"
    }
    rank, told, seen = stuck[0], list[str](), list[int]()
    while rank not in seen:
        seen.append(rank)
        action = schedule.ranks[rank][next_of[rank]]
        missing = next(
            each
            for each in needs(schedule, action)
            if each not in done and each._replace(kind=_ALIKE[each.kind]) not in done
        )
        owner = where.get(_either(missing))
        if owner is None:
            raise InvalidInput(
                f"schedule {schedule.name}: rank {rank} waits at {action} for {missing}, "
                "which no rank does"
            )
        told.append(f"rank {rank} at {action} waits for {missing} (rank {owner})")
        rank = owner
    raise InvalidInput(
        f"schedule {schedule.name}: it never ends: {'; '.join(told[seen.index(rank) :])}",
        hint="the ranks wait for each other in a circle: change the order of one of them",
    )


# -- the table --------------------------------------------------------------------------------


def draw(found: Clock, columns: int | None = None, *, unit: float | None = None) -> str:
    """Ranks as rows, time as columns. `unit` is the time of one column (default: the shortest
    action's); `columns` cuts the table to so many characters."""
    lengths = [s.end - s.start for rank in found.spans for s in rank if s.end > s.start]
    unit = unit or min(lengths, default=1.0)
    labels = _row_labels(found.schedule)
    cells = [[(_label(found.schedule, rank, s), s) for s in spans] for rank, spans in
             enumerate(found.spans)]  # fmt: skip
    ticks = round(found.makespan / unit)
    width = 1 + max(
        [len(label) for row in cells for label, s in row if s.end > s.start] + [len(str(ticks))]
    )
    margin = max(len(each) for each in labels) + 2
    room = None if columns is None else max(width, columns - margin - 2)
    lines = [" " * margin + _cut("".join(f"{t:<{width}}" for t in range(ticks)), room)]
    for label, row in zip(labels, cells, strict=True):
        lines.append(f"{label:<{margin}}" + _cut(_row(row, unit, ticks, width), room))
    return "\n".join([_title(found), *lines, _legend(found)])


def _row(row: Sequence[tuple[str, Span]], unit: float, ticks: int, width: int) -> str:
    idle = "." + " " * (width - 1)
    cells = [idle] * ticks
    for label, span in row:
        first, end = round(span.start / unit), round(span.end / unit)
        for n, at in enumerate(range(first, min(end, ticks))):
            if n == 0:
                cells[at] = f"{label:<{width}}" if end - first == 1 else _run(label, width)
            else:
                last = at == end - 1
                cells[at] = "─" * (width - 1) + (" " if last else "─")
    return "".join(cells)


def _run(label: str, width: int) -> str:
    """The first cell of an action that goes on in the next."""
    return label + " " + "─" * (width - len(label) - 1)


def _cut(text: str, room: int | None) -> str:
    text = text.rstrip()
    return text if room is None or len(text) <= room else text[: room - 2] + " …"


def _label(schedule: Schedule, rank: int, span: Span) -> str:
    stages = schedule.stages_of(rank)
    chunk = "" if len(stages) == 1 else "abcdefghijklmnopqrstuvwxyz"[
        stages.index(span.action.stage) % 26
    ]  # fmt: skip
    return f"{span.action.kind}{span.action.batch}{chunk}"


def _row_labels(schedule: Schedule) -> list[str]:
    found = []
    for rank in range(len(schedule.ranks)):
        stages = schedule.stages_of(rank)
        told = ",".join(map(str, stages))
        replicas = schedule.rank_of[stages[0]]
        copy = f" copy {replicas.index(rank)}" if len(replicas) > 1 else ""
        found.append(f"rank {rank}  stage {told}{copy}")
    return found


def _title(found: Clock) -> str:
    schedule = found.schedule
    held = " ".join(map(str, found.in_flight))
    return (
        f"{schedule.name}: {schedule.stages} stages on {len(schedule.ranks)} ranks, "
        f"{schedule.batches} batches; idle {found.bubble:.1%}; in flight at most {held}"
    )


def _legend(found: Clock) -> str:
    schedule = found.schedule
    there = {span.action.kind: span.end > span.start for rank in found.spans for span in rank}
    told = ", ".join(f"{kind} {KINDS[kind]}" for kind in KINDS if there.get(kind))
    line = f"{told}, . idle"
    if there.get("U") is False:
        line += "; an update, which takes no time here, ends each round of a stage"
    if any(len(schedule.stages_of(rank)) > 1 for rank in range(len(schedule.ranks))):
        line += "; a, b …: the rank's first, second stage …"
    return line
