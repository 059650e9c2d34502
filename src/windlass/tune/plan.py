"""What a study does next: its spec and its history in, steps out. Pure.

Called again with what came of its steps, it goes on; called twice with the same history, it says
the same. So a server that dies between two of its steps asks again and loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.studies import StudySpec, TrialState
from windlass.tune import halving, median, population
from windlass.tune.draw import by_chance, chance, grid
from windlass.tune.history import Create, Finish, Past, Prune, Resume, Step


def plan(spec: StudySpec, target: int, history: Sequence[Past]) -> list[Step]:
    """`target`: how many trials there are to be. `history`: all of them, in order."""
    target = size(spec, target)
    made = len(history)
    places = max(0, spec.parallel - sum(past.busy for past in history))
    steps = _pruned(spec, target, history, places)
    taken = sum(isinstance(step, Resume) for step in steps)
    created = sum(isinstance(step, Create) for step in steps)
    limit = target
    if spec.pruner.kind == "pbt":  # a member is replaced, never added
        limit = min(target, max(spec.parallel, made))
    room = min(places - taken, limit - made - created)
    if _all_fail(spec, history):
        room = 0
    steps += [Create(made + created + at) for at in range(room)]
    if not steps and all(past.ended for past in history):
        return [Finish(_told(history))]
    return steps


def size(spec: StudySpec, target: int) -> int:
    """How many trials there can be: a grid has an end."""
    if spec.sampler.kind != "grid":
        return target
    return min(target, len(grid(spec.space, spec.sampler.points)))


def hopeless(spec: StudySpec, history: Sequence[Past]) -> str:
    """Why a study cannot go on; "": it can."""
    if not _all_fail(spec, history):
        return ""
    return f"the first {spec.max_failures} trials all failed: see `windlass logs` of one of them"


def own(spec: StudySpec, number: int) -> dict[str, object]:
    """The parameters of a trial by the samplers that are our own."""
    if spec.sampler.kind == "grid":
        return grid(spec.space, spec.sampler.points)[number]
    return by_chance(spec.space, chance(spec.seed, number))


def _pruned(spec: StudySpec, target: int, history: Sequence[Past], places: int) -> list[Step]:
    rules, objective = spec.pruner, spec.objectives[0]
    more = len(history) < target and not _all_fail(spec, history)
    if rules.kind == "asha":
        return halving.asynchronous(rules, objective, history, places, more)
    if rules.kind == "halving":
        return halving.synchronous(rules, objective, history, places, more)
    if rules.kind == "median":
        return median.stopping(rules, objective, history)
    if rules.kind == "pbt":
        return population.steps(spec, target, history)
    return []


def _all_fail(spec: StudySpec, history: Sequence[Past]) -> bool:
    failed = sum(past.state is TrialState.FAILED for past in history)
    good = any(past.reports or past.state is TrialState.SUCCEEDED for past in history)
    return failed >= spec.max_failures and not good


def _told(history: Sequence[Past]) -> str:
    """How many trials ended how."""
    words = []
    for state in TrialState:
        count = sum(past.state is state for past in history)
        if count:
            words.append(f"{count} {state}")
    return ", ".join(words) or "no trials"


__all__ = ["Create", "Finish", "Prune", "Resume", "Step", "hopeless", "own", "plan", "size"]
