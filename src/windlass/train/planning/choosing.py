"""The best of the candidates that fit, the runner-up, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace

from windlass.core.errors import InvalidInput, NeverFits
from windlass.train.planning.flushed import flushed
from windlass.train.planning.question import Candidate, Question, size
from windlass.train.planning.replicated import replicated
from windlass.train.planning.sliced import sliced
from windlass.train.planning.stashed import stashed

KNOWN = (
    "allreduce", "zero1", "fsdp", "gpipe", "1f1b", "zb1p", "interleaved", "zbv", "pipedream",
    "2bw", "tensor",
)  # fmt: skip
_EQUAL = 1 + 1e-9


@dataclass(frozen=True)
class Answer:
    chosen: Candidate
    data_parallel: Candidate
    runner_up: Candidate | None
    why: str
    """Why the runner-up was not chosen."""
    notes: tuple[str, ...]


def candidates(question: Question) -> list[Candidate]:
    """One or a few of each strategy, whether they fit or not, the simplest first."""
    found = [
        *replicated(question), *flushed(question), *stashed(question), *sliced(question),
    ]  # fmt: skip
    return sorted(found, key=lambda each: each.simplicity)


def answer(question: Question) -> Answer:
    """Raises NeverFits when nothing fits, with how much is missing."""
    everything = candidates(question)
    data_parallel = everything[0]
    assert data_parallel.strategy == "allreduce"
    names = question.names
    mine = [each for each in everything if names is None or each.strategy in names]
    if not mine:
        raise InvalidInput(
            f"strategies: {', '.join(sorted(names or ()))}: the planner has no plan with these",
            hint=f"it knows {', '.join(KNOWN)}; pipelines need 2 workers and 2 blocks",
        )
    fitting = [each for each in mine if each.fits(question)]
    if not fitting:
        raise _too_large(question, mine)
    chosen = best(fitting)
    others = [each for each in fitting if each.family != chosen.family]
    others = others or [each for each in mine if each.family != chosen.family]
    others = others or [each for each in fitting if each.strategy != chosen.strategy]
    runner_up = best(others) if others else None
    why = _why(question, chosen, runner_up) if runner_up else ""
    return Answer(chosen, data_parallel, runner_up, why, _notes(question, chosen, mine))


def best(found: list[Candidate]) -> Candidate:
    """The fastest; on equal speed the simplest."""
    fastest = max(each.samples_per_s for each in found)
    return min(
        (each for each in found if each.samples_per_s * _EQUAL >= fastest),
        key=lambda each: each.simplicity,
    )


def _too_large(question: Question, mine: list[Candidate]) -> NeverFits:
    limit = question.memory_bytes or 0
    least = min((*mine, *_leanest(question)), key=lambda each: each.memory_bytes)
    return NeverFits(
        f"memory: nothing fits in {size(limit)} a worker: {least.strategy} comes nearest with "
        f"{size(least.memory_bytes)}, {size(least.memory_bytes - limit)} too much",
        hint="more workers, more memory, or a smaller batch",
        short_bytes=least.memory_bytes - limit,
    )


def _leanest(question: Question) -> list[Candidate]:
    """What fits under the lowest limit under which anything does, to a thousandth."""
    low, high, found = float(question.memory_bytes or 1), 1e18, list[Candidate]()
    while high > low * 1.001:
        middle = (low * high) ** 0.5
        asked = replace(question, memory_bytes=round(middle))
        there = [
            each
            for each in candidates(asked)
            if each.fits(asked) and (question.names is None or each.strategy in question.names)
        ]
        if there:
            found, high = there, float(min(each.memory_bytes for each in there))
        else:
            low = middle
    return found


def _why(question: Question, chosen: Candidate, other: Candidate) -> str:
    if not other.fits(question):
        over = other.memory_bytes - (question.memory_bytes or 0)
        return (
            f"{other.strategy} would hold {size(other.memory_bytes)} on a worker, {size(over)} "
            "more than there is"
        )
    ratio = chosen.samples_per_s / other.samples_per_s
    if ratio <= _EQUAL:
        return f"{other.strategy} is as fast; {chosen.strategy} is simpler"
    return f"{chosen.strategy} is {ratio:.2f}x of {other.strategy}, which is {other.bound}"


def _notes(question: Question, chosen: Candidate, mine: list[Candidate]) -> tuple[str, ...]:
    found = []
    if question.memory_bytes is not None:
        large = [each for each in mine if not each.fits(question)]
        if large and max(each.samples_per_s for each in large) > chosen.samples_per_s:
            first = best(large)
            found.append(
                f"{first.strategy} would be faster ({first.samples_per_s:,.0f} samples/s) but "
                f"holds {size(first.memory_bytes)} on a worker, "
                f"{size(first.memory_bytes - question.memory_bytes)} too much"
            )
    alone = 1000 * question.profile.batch / question.profile.time_ms
    if alone > chosen.samples_per_s * _EQUAL and question.workers > 1:
        found.append(f"one worker alone is faster: {alone:,.0f} samples/s")
    if chosen.family != "data" and not question.states.exact:
        found.append(
            "the graph has more cuts than can be tried: the best of "
            f"{question.states.count:,} was taken"
        )
    return tuple(found)
