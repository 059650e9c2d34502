"""Population-based training (Jaderberg et al. 2017).

`parallel` members train at once. Each time a member has come another `interval` of steps it is
looked at: one of the worst is stopped, and in its place a new trial starts from the checkpoint of
one of the best (exploit), with that one's parameters changed a little (explore). A member that
took over is a trial of its own, so each value of a parameter has its own result; `trials` bounds
how many there may be in all.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.studies import StudySpec, TrialState
from windlass.tune.draw import chance, explore
from windlass.tune.history import Advance, Create, Past, Prune, Step, loss


def steps(spec: StudySpec, target: int, history: Sequence[Past]) -> list[Step]:
    """What to do with members that were due for a look."""
    objective, rules = spec.objectives[0], spec.pruner
    assert rules.interval is not None
    found: list[Step] = []
    made = len(history)
    members = [past for past in history if past.state is TrialState.RUNNING]
    if not all(past.reports for past in members):
        return []  # one that has only begun is waited for: nobody is the worst of one
    ranked = sorted(members, key=lambda past: (loss(objective, past.reports[-1][1]), past.number))
    part = max(1, int(len(ranked) * rules.quantile)) if len(ranked) > 1 else 0
    best, worst = ranked[:part], ranked[len(ranked) - part :] if part else []
    for past in members:
        looks = past.reports[-1][0] // rules.interval
        if looks <= past.rung:
            continue
        better = [each for each in best if each.number != past.number]
        if past not in worst or past in best or not better or made >= target:
            found.append(Advance(past.number, looks))
            continue
        dice = chance(spec.seed, made, "explore")
        parent = dice.choice(better)
        params = explore(spec.space, parent.params, rules.resample, dice)
        why = (
            f"step {past.reports[-1][0]}: trial {made} takes its place, from trial {parent.number}"
        )
        found += [
            Prune(past.number, why),
            Create(made, params, parent.number, parent.reports[-1][0] // rules.interval),
        ]
        made += 1
    return found
