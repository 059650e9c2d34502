"""Successive halving: rungs at which a trial must be among the best to go on.

    step     1        3        9        27
    rung     0        1        2        3
    trial 0  ■■■■■■■■■■■■■■■■■■■■■■■■■■■ …        ■ runs   ┆ paused, holds nothing
    trial 1  ■┆
    trial 2  ■┆┆┆┆┆■■■┆                            promoted once it was among the best third

Asynchronous (ASHA, Li et al. 2020): a trial that comes to a rung goes on if it is among the best
1/factor of all that came there so far, and pauses if not; a free place is given first to a paused
trial that has become one of the best, from the highest rung down, and only then to a new one.
Synchronous: a rung waits for all of its trials, then the best 1/factor go on.

Whether a trial came to a rung is read from its reports alone, so it can be worked out anew at any
time; `Past.rung` says how many it has passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.studies import Objective, PrunerSpec, TrialState
from windlass.tune.history import Advance, Past, Pause, Prune, Resume, Step, loss

_RUNGS = 40


def milestones(spec: PrunerSpec) -> list[int]:
    """The steps of the rungs."""
    found = [spec.min_step * spec.factor**at for at in range(_RUNGS)]
    return [step for step in found if spec.max_step is None or step < spec.max_step]


def best_at(
    spec: PrunerSpec, objective: Objective, history: Sequence[Past], rung: int
) -> tuple[set[int], int]:
    """The numbers of the best 1/factor of those that came to a rung, and how many came."""
    step = milestones(spec)[rung]
    came = [
        (loss(objective, value), past.number)
        for past in history
        if (value := past.at(step)) is not None
    ]
    keep = len(came) // spec.factor
    if not spec.pause and came:
        keep = max(1, keep) if len(came) >= spec.factor else len(came)
    return {number for _, number in sorted(came)[:keep]}, len(came)


def asynchronous(
    spec: PrunerSpec, objective: Objective, history: Sequence[Past], places: int, more: bool
) -> list[Step]:
    """What to do with trials at rungs. `places`: free ones; `more`: a new trial would take one."""
    steps: list[Step] = []
    rungs = milestones(spec)
    best = [best_at(spec, objective, history, rung) for rung in range(len(rungs))]
    for past in history:
        if past.state is TrialState.RUNNING:
            steps += _arrived(spec, past, rungs, best)
    waiting = [past for past in history if past.state is TrialState.PAUSED]
    waiting.sort(key=lambda past: (-past.rung, past.number))
    for past in waiting:
        if places > 0 and past.rung < len(rungs) and past.number in best[past.rung][0]:
            why = f"promoted past step {rungs[past.rung]}: among the best of {best[past.rung][1]}"
            steps.append(Resume(past.number, past.rung + 1, why))
            places -= 1
    resumed = {step.number for step in steps if isinstance(step, Resume)}
    left = [past for past in waiting if past.number not in resumed]
    if left and not more and not resumed and not any(past.busy for past in history):
        steps += [Prune(past.number, "never among the best of its rung") for past in left]
    return steps


def _arrived(
    spec: PrunerSpec, past: Past, rungs: list[int], best: list[tuple[set[int], int]]
) -> list[Step]:
    """A running trial and the rungs that it came to since."""
    at = past.rung
    while at < len(rungs) and past.at(rungs[at]) is not None:
        if past.number not in best[at][0]:
            why = f"step {rungs[at]}: not among the best 1/{spec.factor} of {best[at][1]}"
            stop = Pause(past.number, why) if spec.pause else Prune(past.number, why)
            return [*([Advance(past.number, at)] if at != past.rung else []), stop]
        at += 1
    return [Advance(past.number, at)] if at != past.rung else []


def synchronous(
    spec: PrunerSpec, objective: Objective, history: Sequence[Past], places: int, more: bool
) -> list[Step]:
    """`more`: not all trials of the first rung are made yet."""
    steps: list[Step] = []
    rungs = milestones(spec)
    settled = not more
    for rung, step in enumerate(rungs):
        there = [past for past in history if past.rung >= rung]
        settled = settled and all(past.ended or past.at(step) is not None for past in there)
        came = sorted(
            (loss(objective, value), past.number)
            for past in there
            if (value := past.at(step)) is not None
        )
        keep = {number for _, number in came[: max(1, len(there) // spec.factor)]}
        for past in there:
            if past.rung != rung or past.number not in {number for _, number in came}:
                continue
            if settled and past.number in keep:
                why = f"promoted past step {step}: among the best {len(keep)} of {len(there)}"
                if past.state is TrialState.RUNNING:
                    steps.append(Advance(past.number, rung + 1))
                elif past.state is TrialState.PAUSED and places > 0:
                    steps.append(Resume(past.number, rung + 1, why))
                    places -= 1
            elif settled and past.state in (TrialState.RUNNING, TrialState.PAUSED):
                why = f"step {step}: not among the best {len(keep)} of {len(there)}"
                steps.append(Prune(past.number, why))
            elif past.state is TrialState.RUNNING:
                steps.append(Pause(past.number, f"step {step}: waits for the others of its rung"))
        if not there:
            break
    return steps
