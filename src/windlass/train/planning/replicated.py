"""Strategies in which every worker computes the whole model: seconds and bytes.

    allreduce   max(T, W) or T + W                 (2 + f) w             + activations
    zero1       the same traffic                   (2 + f / p) w         + activations
    fsdp        T + max(0, 1.5 W - overlap)        (2 + f) w / p + block + activations

w bytes of parameters, as many of gradients, f times as many of the optimiser, p workers, W their
sync. With Adam in float32 f is 2 and 4 w / p are the 16 bytes per parameter over p of the ZeRO
paper. `fsdp` gathers a block and the one after it, hence `block`: twice the largest.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.train.planning.question import Candidate, Question, StageCost, ms, size
from windlass.train.planning.timed import gathered_ms, replicated_ms


def replicated(question: Question) -> Iterator[Candidate]:
    workers = question.workers
    taken = question.taken(workers)
    profile = question.profile.at(taken)
    samples = question.profile.batch if question.shared else question.profile.batch * workers
    weights, factor = profile.parameter_bytes, profile.optimiser_factor
    saved = sum(block.saved_bytes for block in profile.blocks)
    largest = max(block.parameter_bytes for block in profile.blocks)
    compute, sync = profile.time_ms, question.sync_ms(weights, workers)

    def candidate(name: str, simplicity: int, sync_ms: float, memory: float) -> Candidate:
        step = question.both(compute, sync_ms)
        if name != "fsdp" and question.by_clock and question.overlap and workers > 1:
            step = replicated_ms(profile, lambda some: question.sync_ms(some, workers))
            if name == "zero1":  # what was stepped goes to all, and nothing hides it
                step += gathered_ms(profile, workers, question.near)
        stage = StageCost(
            tuple(range(len(profile.blocks))), workers, compute, sync_ms, round(memory + saved)
        )
        return Candidate(
            name, "data", simplicity, (stage,), 1000 * samples / step,
            _bound(question, compute, sync_ms, weights),
        )  # fmt: skip

    yield candidate("allreduce", 0, sync, (2 + factor) * weights)
    if workers > 1:
        yield candidate("zero1", 10, sync, (2 + factor / workers) * weights)
        shard = (2 + factor) * weights / workers
        yield candidate("fsdp", 11, 1.5 * sync, shard + 2 * min(largest, weights))


def _bound(question: Question, compute: float, sync: float, weights: float) -> str:
    if not sync or (question.overlap and sync <= compute):
        return f"bound by compute ({ms(compute)} a batch)"
    told = "against" if question.overlap else "on top of"
    return (
        f"bound by the sync of {size(weights)} of parameters among {question.workers} workers: "
        f"{ms(sync)} {told} {ms(compute)} of compute"
    )
