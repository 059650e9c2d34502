"""Pipelines without a flush: PipeDream, and 2BW, which keeps two versions of the weights.

Both come from PipeDream's programme. 2BW cuts a batch into at least as many micro-batches as are
in flight (fewer than twice the workers) and updates once for all of them: the same traffic, and
less of a batch in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from windlass.train.planning.levels import solve_levels
from windlass.train.planning.problem import Memory, Piece, Problem, problem_of, warm_up
from windlass.train.planning.programme import solve
from windlass.train.planning.question import Candidate, Question, StageCost, ms, size
from windlass.train.planning.states import States
from windlass.train.planning.timed import StageTimes, stashed_ms
from windlass.train.policies import schedules
from windlass.train.policies.schedules import depth

_TRIES = 8
_WAITS = 1.005


@dataclass(frozen=True)
class _Solved:
    pieces: Sequence[Piece]
    slowest_ms: float


def stashed(question: Question) -> Iterator[Candidate]:
    if question.workers < 2:
        return
    profile = question.profile
    memory = Memory(question.memory_bytes, profile.optimiser_factor)
    found = _candidate(question, question.states, "pipedream", memory, 1)
    if found is not None:
        yield found
    cut = min(2 * question.workers, profile.batch)
    if (question.memory_bytes is None and not profile.others) or cut < 2:
        return  # where time is in proportion to the batch, 2bw is never faster than pipedream
    micro = question.states.again(profile.at(profile.batch / cut))
    memory = Memory(question.memory_bytes, profile.optimiser_factor, 2, 1.0)
    found = _candidate(question, micro, "2bw", memory, cut)
    if found is not None and depth(found.replicas) <= cut:
        yield found


def _candidate(
    question: Question, states: States, name: str, memory: Memory, cut: int
) -> Candidate | None:
    """`states` are of one of the `cut` parts of a batch. The programme counts what a stage has in
    flight by the workers before it; what the stages behind it are may ask for more, and then it
    is solved again with as much less memory."""
    limit, kept = question.memory_bytes, None
    for _ in range(_TRIES):
        found = _solved(question, states, name, memory, cut)
        if found is None or found.fits(question):
            return found or kept
        kept = found
        assert limit is not None and memory.limit_bytes is not None
        less = 0.999 * memory.limit_bytes * limit / found.memory_bytes
        memory = replace(memory, limit_bytes=less)
    return kept


def _solved(
    question: Question, states: States, name: str, memory: Memory, cut: int
) -> Candidate | None:
    problem = _problem(question, states, memory, cut)
    found = _best(question, states, problem, memory)
    names = question.names
    if found is None or (len(found.pieces) < 2 and (names is None or "allreduce" in names)):
        return None  # a single stage is data parallel, and simpler so
    stages = []
    replicas = tuple(piece.replicas for piece in found.pieces)
    for number, piece in enumerate(found.pieces):
        at = (piece.start, piece.end)
        weights = float(problem.parameter_bytes[at])
        saved = float(states.saved_bytes[piece.end] - states.saved_bytes[piece.start])
        held = memory.of_stage(weights, saved, schedules.warm_up(replicas, number))
        stages.append(
            StageCost(
                tuple(states.blocks(*at)), piece.replicas, float(problem.time_ms[at]),
                question.sync_ms(weights, piece.replicas), round(held),
            )
        )  # fmt: skip
    replicated = any(count > 1 for count in replicas)
    simplicity = (30 if replicated else 20) + (3 if name == "2bw" else 2)
    slowest, bound = found.slowest_ms, _bound(question, states, found, stages)
    if question.by_clock:
        clocked = cut * stashed_ms(question, _times(question, states, found, stages), cut)
        if clocked > slowest * _WAITS:
            slowest, bound = clocked, f"bound by waits between its stages ({ms(clocked)} a batch)"
    options = {"micro_batches": cut} if name == "2bw" else {}
    rate = 1000 * question.profile.batch / slowest
    return Candidate(name, "stash", simplicity, tuple(stages), rate, bound, options)


def _times(
    question: Question, states: States, found: _Solved, stages: Sequence[StageCost]
) -> list[StageTimes]:
    """Of one of the parts that go through the pipeline."""
    times = []
    for piece, stage in zip(found.pieces, stages, strict=True):
        forward = float(states.forward_ms[piece.end] - states.forward_ms[piece.start])
        whole = float(states.time_ms[piece.end] - states.time_ms[piece.start])
        sent = float(states.cut_bytes[piece.start])
        times.append(
            StageTimes(
                forward, whole - forward, stage.replicas, question.near.one_way_ms(sent),
                stage.sync_ms,
            )
        )  # fmt: skip
    return times


def _problem(question: Question, states: States, memory: Memory, cut: int) -> Problem:
    """Times of a whole batch, whatever parts it is computed in."""
    found = problem_of(states, question.workers, question.near, question.overlap, memory)
    if cut == 1:
        return found
    return replace(found, time_ms=found.time_ms * cut, cut_ms=found.cut_ms * cut)


def _best(question: Question, states: States, problem: Problem, memory: Memory) -> _Solved | None:
    flat = solve(problem)
    best = _Solved(flat, problem.bottleneck_ms(flat)) if flat is not None else None
    if question.node_link is not None and question.nodes > 1:
        levels = solve_levels(problem, question.per_node, question.node_link)
        if levels is not None and (best is None or levels.slowest_ms < best.slowest_ms):
            if question.memory_bytes is None or _fits(levels.pieces, states, problem, memory):
                best = _Solved(levels.pieces, levels.slowest_ms)
    return best


def _fits(pieces: Sequence[Piece], states: States, problem: Problem, memory: Memory) -> bool:
    before = 0
    for piece in pieces:
        if (
            warm_up(problem.workers, before, piece.replicas)
            > problem.most_warm[piece.start, piece.end]
        ):
            return False
        before += piece.replicas
    return True


def _bound(question: Question, states: States, found: _Solved, stages: Sequence[StageCost]) -> str:
    for at, (piece, stage) in enumerate(zip(found.pieces, stages, strict=True)):
        own = question.both(stage.compute_ms, stage.sync_ms) / stage.replicas
        if own >= found.slowest_ms * (1 - 1e-9):
            what = "sync" if stage.sync_ms > stage.compute_ms else "compute"
            return f"bound by the {what} of stage {at + 1} ({ms(own)} a batch)"
        if question.near.transfer_ms(float(states.cut_bytes[piece.start])) >= found.slowest_ms:
            return (
                f"bound by the {size(float(states.cut_bytes[piece.start]))} between stages "
                f"{at} and {at + 1} ({ms(found.slowest_ms)} a batch, there and back)"
            )
    return f"bound by its slowest stage ({ms(found.slowest_ms)} a batch)"
