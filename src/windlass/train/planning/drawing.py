"""The clock table of a plan: who computes what when, with the times that were predicted."""

from __future__ import annotations

from windlass.core.errors import InvalidInput
from windlass.train.planning.clocked import MADE
from windlass.train.planning.plan import Plan
from windlass.train.policies import schedules
from windlass.train.policies.clock import UNITS, clock, draw
from windlass.train.policies.schedules import Action, Schedule

MOST_RANKS = 32
_ROUNDS = 3


def drawn(plan: Plan, columns: int | None = 100) -> str:
    """Raises InvalidInput for a plan without a pipeline."""
    schedule = schedule_of(plan)
    if len(schedule.ranks) > MOST_RANKS:
        raise InvalidInput(
            f"--draw: at most {MOST_RANKS} ranks fit on a screen (found {len(schedule.ranks)})"
        )
    times = [stage.compute_ms for stage in plan.stages]
    longest = max((each for each in times if each), default=None)
    if longest is None or None in times:
        return draw(clock(schedule), columns)

    def cost(action: Action) -> float:
        """In thirds of the slowest stage, and whole ones, so that columns are alike."""
        share = (times[action.stage] or 0.0) / longest
        return float(UNITS[action.kind] * max(1, round(share * 3)) / 3)

    return draw(clock(schedule, cost), columns, unit=1 / 3)


def schedule_of(plan: Plan) -> Schedule:
    """A few batches of it: the fill, and the even part after."""
    stages = len(plan.stages)
    if stages < 2:
        raise InvalidInput(
            f"--draw: {plan.strategy} is not a pipeline: every worker does the same"
        )
    if plan.strategy in MADE:
        count = int(str(plan.options.get("micro_batches", 2 * stages)))
        count = min(count, 3 * stages)
        if plan.strategy == "interleaved":
            return schedules.interleaved(stages, count, plan.stages_each)
        return MADE[plan.strategy][0](stages, count)
    if plan.strategy == "2bw":
        return schedules.two_bw(plan.replicas, 2)
    return schedules.pipedream(plan.replicas, _ROUNDS * max(*plan.replicas, stages))
