"""What a schedule takes by the clock: what the equations of a plan leave out.

    stages that are uneven          a pipeline fills and empties through the quick ones quicker
    what is under way               a batch that waits for its activations, a link that is busy
    orders that wait                replicas for each other, a stage for the one behind it
    gradients to be sent            not before backward has made them

Costs are milliseconds of one micro-batch (or mini-batch, where nothing is flushed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windlass.train.planning.links import Link
from windlass.train.planning.profile import Profile
from windlass.train.planning.question import Question
from windlass.train.policies import schedules
from windlass.train.policies.clock import Clock, Cost, Transfer, clock
from windlass.train.policies.schedules import Action, Schedule

MOST_ACTIONS = 20_000
"""In a simulation: about a quarter of a second."""


@dataclass(frozen=True)
class StageTimes:
    """Of one batch on one replica. `before_ms`: until its inputs have come from the stage before,
    or a gradient has gone back there."""

    forward_ms: float
    backward_ms: float
    replicas: int = 1
    before_ms: float = 0.0
    sync_ms: float = 0.0


def costs(stages: Sequence[StageTimes], *, update_ms: Sequence[float] = ()) -> Cost:
    """Of an action. The halves of a backward count alike, but for the first stage, whose inputs
    want no gradient: all of it is the weights'."""

    def cost(action: Action) -> float:
        stage = stages[action.stage]
        if action.kind == "F":
            return stage.forward_ms
        if action.kind == "B":
            return stage.backward_ms
        if action.kind == "U":
            return update_ms[action.stage] if update_ms else 0.0
        if action.stage == 0:
            return stage.backward_ms if action.kind == "W" else 0.0
        return stage.backward_ms / 2

    return cost


def transfers(stages: Sequence[StageTimes]) -> Transfer:
    return lambda one, other: stages[max(one, other)].before_ms


def flushed_clock(schedule: Schedule, stages: Sequence[StageTimes]) -> Clock | None:
    """None: too long to be simulated."""
    if sum(map(len, schedule.ranks)) > MOST_ACTIONS:
        return None
    return clock(schedule, costs(stages), transfers(stages), in_turn=True)


def stashed_ms(question: Question, stages: Sequence[StageTimes], update_every: int = 1) -> float:
    """Between two batches of a pipeline that is full and never flushed; 0.0 where that is too
    long to be simulated. Without overlap replicas wait for each other's gradients at each update,
    of `update_every` batches where it is more than one round."""
    replicas = [stage.replicas for stage in stages]
    even = schedules.aligned(replicas) * (1 if update_every == 1 else update_every)
    first = 3 * schedules.depth(replicas)
    first += -first % even
    window = even * max(4, -(-24 // even))
    batches = first + window + schedules.depth(replicas) + even
    if 2 * batches * len(replicas) > MOST_ACTIONS:
        return 0.0
    if update_every == 1:
        order = schedules.pipedream(replicas, batches, overlap=question.overlap)
    else:
        every = max(update_every, schedules.depth(replicas))
        order = schedules.two_bw(replicas, -(-batches // every), every)
    shown = [0.0 if question.overlap else stage.sync_ms for stage in stages]
    found = clock(order, costs(stages, update_ms=shown), transfers(stages), in_turn=True)
    ends = sorted(
        span.end
        for rank in order.rank_of[0]
        for span in found.spans[rank]
        if span.action.kind == "B"
    )
    return (ends[first + window - 1] - ends[first - 1]) / window


def replicated_ms(profile: Profile, sync: Callable[[float], float]) -> float:
    """A step of data parallel: gradients go out in buckets, each when backward has filled it, one
    after another. `sync` of so many bytes."""
    from windlass.train.runners.buckets import BUCKET_BYTES, FIRST_BYTES  # not without torch

    at = free = filled = 0.0
    most = FIRST_BYTES
    for block in reversed(profile.blocks):
        at += block.backward_ms
        filled += block.parameter_bytes
        if filled >= most:
            free, filled, most = max(free, at) + sync(filled), 0.0, BUCKET_BYTES
    if filled:
        free = max(free, at) + sync(filled)
    return sum(block.forward_ms for block in profile.blocks) + max(at, free)


def gathered_ms(profile: Profile, workers: int, link: Link) -> float:
    """Until all have the parameters that each stepped (`zero1`): whole ones, the largest first to
    who has least, and as long for each as for who has most."""
    sizes = [0] * workers
    for size in sorted((block.parameter_bytes for block in profile.blocks), reverse=True):
        sizes[sizes.index(min(sizes))] += size
    return link.one_way_ms((workers - 1) * max(sizes))
