"""Pipelines with a flush by the clock: each schedule is simulated with the times of its stages.

gpipe, 1f1b          what their equation says, but for uneven stages and links
interleaved, zbv     two stages on a worker: cut into twice as many
zb1p, zbv            a backward in halves, which the clock puts where they go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from windlass.train.planning.profile import Profile
from windlass.train.planning.question import Candidate, Question, StageCost, ms
from windlass.train.planning.shapes import Held, Shape, even_cuts
from windlass.train.planning.states import States
from windlass.train.planning.timed import StageTimes, flushed_clock
from windlass.train.policies import schedules
from windlass.train.policies.clock import Clock
from windlass.train.policies.schedules import Schedule

CHUNKS = 2
HALVES = 1.05
"""What a backward in halves costs more than a whole one: gradients wait for their second half in
memory that is no longer at hand, and each layer's is begun by itself."""
MADE: dict[str, tuple[Callable[[int, int], Schedule], int, int]] = {
    "gpipe": (schedules.gpipe, 1, 0),
    "1f1b": (schedules.one_f_one_b, 1, 1),
    "zb1p": (schedules.zb1p, 1, 3),
    "interleaved": (partial(schedules.interleaved, chunks=CHUNKS), CHUNKS, 4),
    "zbv": (schedules.zbv, 2, 5),
}
"""How the schedule is made, stages on each worker, simplicity."""


def clocked(
    question: Question, shape: Shape, profile: Profile, states: States, name: str,
    pairs: Sequence[tuple[int, int]] | None = None, recompute: bool = False,
) -> Candidate | None:  # fmt: skip
    """`profile` and `states` are of a micro-batch. `pairs`: the stages; left out, as even as can
    be. None: there are not as many blocks, or it is too much to simulate."""
    make, each, simple = MADE[name]
    own = states.between(states.time_ms)
    if recompute:
        own = own + states.between(states.forward_ms)
    if pairs is None:
        count = shape.stages * each
        if count > states.count - 1:
            return None
        sent = np.array([question.near.one_way_ms(float(each)) for each in states.cut_bytes])
        ends = even_cuts(np.maximum(own, sent[:, None]), [states.within] * count)
        if ends is None:
            return None
        pairs = list(zip([0, *ends], ends, strict=False))
    times = []
    for start, end in pairs:
        forward = float(states.forward_ms[end] - states.forward_ms[start])
        before = question.near.one_way_ms(float(states.cut_bytes[start]))
        backward = (float(own[start, end]) - forward) * (HALVES if name[:2] == "zb" else 1.0)
        times.append(StageTimes(forward, backward, 1, before))
    schedule = make(len(pairs), shape.micro_batches)
    found = flushed_clock(schedule, times)
    if found is None:
        return None
    weights = states.between(states.parameter_bytes)
    syncs = [question.sync_ms(float(weights[pair]), shape.copies) for pair in pairs]
    on_rank = [sum(syncs[s] for s in schedule.stages_of(r)) for r in range(shape.stages)]
    step = found.makespan + max(on_rank)
    held = _held(found, Held(profile, states, recompute), pairs)
    stages = tuple(
        StageCost(
            tuple(states.blocks(*pair)), shape.copies, float(own[pair]) * shape.micro_batches,
            sync, round(held[schedule.rank_of[at][0]]),
        )
        for at, (pair, sync) in enumerate(zip(pairs, syncs, strict=True))
    )  # fmt: skip
    samples = question.profile.batch * (1 if question.shared else shape.copies)
    busiest = max(sum(span.end - span.start for span in rank) for rank in found.spans)
    bound = (
        f"bound by its busiest worker ({ms(busiest)} of {ms(step)}) and the "
        f"{1 - busiest / step:.0%} for which that one waits"
    )
    options: dict[str, int | bool] = {
        "micro_batches": shape.micro_batches, "replicas": shape.copies,
    }  # fmt: skip
    if recompute:
        options["recompute"] = True
    if name == "interleaved":
        options["chunks"] = CHUNKS
    simplicity = (30 if shape.copies > 1 else 20) + simple
    return Candidate(name, "flush", simplicity, stages, 1000 * samples / step, bound, options)


def _held(found: Clock, held: Held, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Bytes on each rank, with what its schedule has in flight."""
    ranks = [0.0] * len(found.schedule.ranks)
    for at, pair in enumerate(pairs):
        rank = found.schedule.rank_of[at][0]
        ranks[rank] += float(held.bytes(found.in_flight[at])[pair])
    return ranks
