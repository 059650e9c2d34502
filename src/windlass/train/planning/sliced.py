"""Layers cut over neighbours: `tensor`, and pipelines whose stages are cut too.

    T(t) = (T - C) + C / t + sums            C of the time is in layers that can be cut
    w(t) = (w - c) + c / t                   c of the parameters

Of t workers that hold one copy together each computes a t-th of those layers; what stands behind
them is summed over the t in forward, what stands before them in backward, and nothing hides that.
All else each of them computes whole. What is a copy of the model to the others is such a group, so
every other formula is asked about a model with these times, on a t-th of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from windlass.train.planning.flushed import flushed
from windlass.train.planning.links import Link
from windlass.train.planning.profile import BatchTimes, BlockCost, Profile
from windlass.train.planning.question import Candidate, Question, StageCost, ms, size

Sums = Callable[[float, int], float]
"""Milliseconds of so many bytes, in so many sums."""


def sliced(question: Question) -> Iterator[Candidate]:
    for slices in _sizes(question):
        inner = inside(question, slices)
        yield _tensor(question, inner, slices)
        for each in flushed(inner):
            options = {**each.options, "tensor": slices}
            yield replace(each, options=options, simplicity=each.simplicity + 20)


def _sizes(question: Question) -> list[int]:
    workers, per_node = question.workers, question.per_node
    return [
        n for n in range(2, workers + 1)
        if workers % n == 0 and question.profile.slices and question.profile.slices % n == 0
        and (per_node % n == 0 or n % per_node == 0)
    ]  # fmt: skip


def inside(question: Question, slices: int) -> Question:
    """What the groups of so many are asked, as if each were one worker."""
    link, per_node = link_of(question, slices), question.per_node // slices
    held = per_node if per_node > 1 else 1
    return replace(
        question, profile=cut(question.profile, slices, sums_over(link, slices)),
        workers=question.workers // slices, per_node=held,
        node_link=question.node_link if held > 1 else None,
        link=question.link if question.workers > question.per_node else question.near,
    )  # fmt: skip


def link_of(question: Question, slices: int) -> Link:
    """Neighbours stand on one node as long as it has room for them."""
    if question.node_link is not None and slices <= question.per_node:
        return question.node_link
    return question.near


def sums_over(link: Link, slices: int) -> Sums:
    def sums(count: float, times: int) -> float:
        more = 2 * (slices - 1) * link.latency_s * 1000 * max(0, times - 1)
        return link.sync_ms(count, slices) + more if times else 0.0

    return sums


def cut(profile: Profile, slices: int, sums: Sums) -> Profile:
    """What one of so many slices costs."""
    blocks = tuple(_block(each, slices, sums) for each in profile.blocks)
    others = tuple(_times(profile, each, slices, sums) for each in profile.others)
    return replace(profile, blocks=blocks, others=others, slices=0)


def _block(block: BlockCost, slices: int, sums: Sums) -> BlockCost:
    share, waits = _share(block, slices), sums(block.summed_bytes, block.sums) / 2
    weights = block.parameter_bytes - block.cut_bytes + block.cut_bytes / slices
    return replace(
        block, forward_ms=block.forward_ms * share + waits,
        backward_ms=block.backward_ms * share + waits, parameter_bytes=round(weights),
        cut_ms=0.0, cut_bytes=0, summed_bytes=0, sums=0,
    )  # fmt: skip


def _times(profile: Profile, times: BatchTimes, slices: int, sums: Sums) -> BatchTimes:
    def told(measured: tuple[float, ...]) -> tuple[float, ...]:
        part = times.batch / profile.batch
        return tuple(
            each * _share(block, slices) + sums(block.summed_bytes * part, block.sums) / 2
            for each, block in zip(measured, profile.blocks, strict=True)
        )

    return BatchTimes(times.batch, told(times.forward_ms), told(times.backward_ms))


def _share(block: BlockCost, slices: int) -> float:
    """Of its time, without the sums."""
    if not block.time_ms:
        return 1.0
    return 1 - (1 - 1 / slices) * block.cut_ms / block.time_ms


def _tensor(question: Question, inner: Question, slices: int) -> Candidate:
    copies = inner.workers
    taken = question.taken(copies)
    profile, whole = inner.profile.at(taken), question.profile.at(taken)
    weights, saved = profile.parameter_bytes, sum(each.saved_bytes for each in profile.blocks)
    sync = inner.sync_ms(weights, copies)  # behind the whole backward
    step = profile.time_ms + sync
    sums = sums_over(link_of(question, slices), slices)
    summing = sum(sums(each.summed_bytes, each.sums) for each in whole.blocks)
    stage = StageCost(
        tuple(range(len(profile.blocks))), copies, profile.time_ms, sync,
        round((2 + profile.optimiser_factor) * weights + saved),
    )  # fmt: skip
    samples = question.profile.batch * (1 if question.shared else copies)
    summed = sum(each.summed_bytes for each in whole.blocks)
    bound = (
        f"bound by what is not cut and by sums of {size(summed)} over {slices} workers: "
        f"{ms(summing)} of {ms(step)}"
    )
    return Candidate(
        "tensor", "tensor", 12, (stage,), 1000 * samples / step, bound, {"size": slices}
    )
