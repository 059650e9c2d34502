"""Median stopping: a trial whose best so far is worse than what half of the others had on average
by the same step is stopped (Golovin et al. 2017, the rule of Vizier)."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.studies import Objective, PrunerSpec, TrialState
from windlass.tune.history import Past, Prune, Step, loss


def stopping(spec: PrunerSpec, objective: Objective, history: Sequence[Past]) -> list[Step]:
    steps: list[Step] = []
    for past in history:
        if past.state is not TrialState.RUNNING or not past.reports:
            continue
        at = past.reports[-1][0]
        if at < spec.min_step:
            continue
        others = [_average(objective, each, at) for each in history if each is not past]
        came = [value for value in others if value is not None]
        if len(came) < spec.startup:
            continue
        mine = min(loss(objective, value) for _, value in past.reports)
        median = _middle(came)
        if mine > median:
            shown = objective.sign * median
            why = f"step {at}: worse than the median of {len(came)} others ({shown:.4g})"
            steps.append(Prune(past.number, why))
    return steps


def _average(objective: Objective, past: Past, step: int) -> float | None:
    """Of its reports up to a step; None: it has not come so far."""
    if not past.reports or past.reports[-1][0] < step:
        return None
    found = [loss(objective, value) for at, value in past.reports if at <= step]
    return sum(found) / len(found) if found else None


def _middle(values: Sequence[float]) -> float:
    # Not of `statistics`: a server that starts would load decimal and fractions with it.
    ordered, at = sorted(values), len(values) // 2
    return ordered[at] if len(ordered) % 2 else (ordered[at - 1] + ordered[at]) / 2
