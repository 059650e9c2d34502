"""Pipelines with a flush, alone or in copies beside each other: GPipe and 1F1B.

    T_step = (M + K - 1) max over stages of t + sync of the copies

with K stages and M micro-batches. A stage of GPipe keeps all M micro-batches, stage k of 1F1B
min(K - k, M). With recomputation it keeps their inputs and all of one micro-batch, and computes
forward twice. The cuts are the exact min-max of t for K stages; with a limit of memory, among
those stages that fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from windlass.train.planning.clocked import MADE, clocked
from windlass.train.planning.profile import Profile
from windlass.train.planning.question import Candidate, Question, StageCost, ms
from windlass.train.planning.shapes import Held, Shape, even_cuts
from windlass.train.planning.states import States, states_of

MOST_STAGES = 64
MOST_STATES = 200
_CUTS = (1, 2, 4, 8, 16, 32, 64, 128)


class _Found(NamedTuple):
    candidate: Candidate
    shape: Shape
    pairs: list[tuple[int, int]]
    recompute: bool


def flushed(question: Question) -> Iterator[Candidate]:
    """The best of each kind, with and without recomputation."""
    if question.workers < 2 or len(question.profile.blocks) < 2:
        return
    states = states_of(question.profile, MOST_STATES, in_order=question.in_order)
    summed: dict[float, tuple[Profile, States]] = {}
    best: dict[tuple[str, bool, bool], _Found] = {}
    of_stages: dict[int, _Found] = {}
    for shape in _shapes(question, states.count - 1):
        if shape.micro not in summed:
            profile = question.profile.at(shape.micro)
            summed[shape.micro] = profile, states.again(profile)
        for name in ("gpipe", "1f1b"):
            for recompute in (False, True) if question.memory_bytes is not None else (False,):
                found = _candidate(question, shape, *summed[shape.micro], name, recompute)
                if found is None:
                    continue
                kind = (name, recompute, shape.copies > 1)
                _keep_faster(best, kind, found)
                if name == "1f1b" and not recompute:
                    _keep_faster(of_stages, shape.stages, found)
    by_clock: dict[tuple[str, bool], Candidate] = {}
    for found in of_stages.values():
        for name in MADE:
            if name in ("gpipe", "1f1b") or not _is_asked_for(question, name):
                continue
            other = clocked(question, found.shape, *summed[found.shape.micro], name)
            kept = by_clock.get((name, found.shape.copies > 1))
            if other is not None and (kept is None or other.samples_per_s > kept.samples_per_s):
                by_clock[name, found.shape.copies > 1] = other
    for found in best.values():
        yield _by_clock(question, found, *summed[found.shape.micro])
    yield from by_clock.values()


def _keep_faster(kept: dict[Any, _Found], key: object, found: _Found) -> None:
    before = kept.get(key)
    faster = before is None or found.candidate.samples_per_s > (
        before.candidate.samples_per_s * (1 + 1e-12)
    )
    if faster:
        kept[key] = found


def _is_asked_for(question: Question, name: str) -> bool:
    """Those without an equation: where the clock decides, or they are asked for by name."""
    named = question.names is not None and name in question.names
    return named or (question.by_clock and question.names is None)


def _by_clock(question: Question, found: _Found, profile: Profile, states: States) -> Candidate:
    if not question.by_clock:
        return found.candidate
    shape, candidate = found.shape, found.candidate
    timed = clocked(
        question, shape, profile, states, candidate.strategy, found.pairs, found.recompute
    )
    return candidate if timed is None else timed


def _shapes(question: Question, most_stages: int) -> Iterator[Shape]:
    for stages in range(2, min(question.workers, most_stages, MOST_STAGES) + 1):
        if question.workers % stages:
            continue
        copies = question.workers // stages
        mine = question.taken(copies)
        for each in [each for each in _CUTS if each <= mine] or [1]:
            yield Shape(copies, stages, each, mine / each)


def _candidate(
    question: Question, shape: Shape, profile: Profile, states: States, name: str,
    recompute: bool,
) -> _Found | None:  # fmt: skip
    flight = [
        shape.micro_batches if name == "gpipe" else min(shape.stages - k, shape.micro_batches)
        for k in range(shape.stages)
    ]
    held = Held(profile, states, recompute)
    own = states.between(states.time_ms)
    if recompute:
        own = own + states.between(states.forward_ms)
    cut_ms = np.array([question.near.transfer_ms(float(each)) for each in states.cut_bytes])
    cost = np.maximum(own, cut_ms[:, None]) if question.overlap else own + cut_ms[:, None]
    limit = question.memory_bytes
    allowed = [
        states.within if limit is None else states.within & (held.bytes(each) <= limit)
        for each in flight
    ]
    ends = even_cuts(cost, allowed)
    if ends is None:
        return None
    pairs = list(zip([0, *ends], ends, strict=False))
    slowest = max(float(cost[pair]) for pair in pairs)
    weights = states.between(states.parameter_bytes)
    syncs = [question.sync_ms(float(weights[pair]), shape.copies) for pair in pairs]
    rounds = shape.micro_batches + shape.stages - 1
    step = rounds * slowest + max(syncs)
    batch = question.profile.batch
    samples = batch if question.shared else batch * shape.copies
    stages = tuple(
        StageCost(
            tuple(states.blocks(*pair)), shape.copies,
            float(own[pair]) * shape.micro_batches, sync, round(float(held.bytes(each)[pair])),
        )
        for pair, each, sync in zip(pairs, flight, syncs, strict=True)
    )  # fmt: skip
    bubble = (shape.stages - 1) / rounds
    bound = f"bound by its bubble of {bubble:.0%} and its slowest stage ({ms(slowest)} each time)"
    options = {"micro_batches": shape.micro_batches, "replicas": shape.copies}
    if recompute:
        options["recompute"] = True
    simplicity = (30 if shape.copies > 1 else 20) + (name == "1f1b")
    rate = 1000 * samples / step
    found = Candidate(name, "flush", simplicity, stages, rate, bound, options)
    return _Found(found, shape, pairs, recompute)
