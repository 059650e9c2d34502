"""Median stopping, populations, ends and results."""

from __future__ import annotations

import pytest
from study_scene import World, past, spec

from windlass.core.studies import Objective, TrialState
from windlass.tune import median, population
from windlass.tune.history import Advance, Create, Finish, Past, Prune
from windlass.tune.plan import hopeless, own, plan
from windlass.tune.results import best, curve, importance

ACC = Objective(metric="acc", goal="maximize")
LOSS = Objective(metric="loss")


def test_a_trial_worse_than_the_median_of_enough_others_is_stopped() -> None:
    rules = spec(pruner={"kind": "median", "min_step": 2, "startup": 3}).pruner
    others = [past(n, 1.0, 0.5, 0.4, state="succeeded") for n in range(3)]
    bad, good, young = past(3, 2.0, 1.5), past(4, 2.0, 0.1), past(5, 9.0)
    [step] = median.stopping(rules, LOSS, [*others, bad, good, young])
    assert isinstance(step, Prune) and step.number == 3
    assert median.stopping(rules, LOSS, [*others[:2], bad]) == []


def test_median_stopping_turns_with_the_goal() -> None:
    rules = spec(pruner={"kind": "median", "startup": 1}).pruner
    history = [past(0, 0.5, 0.9, state="succeeded"), past(1, 0.1, 0.1), past(2, 0.9, 0.9)]
    assert [step.number for step in median.stopping(rules, ACC, history)] == [1]


PBT = spec(pruner={"kind": "pbt", "interval": 5}, parallel=4, trials=12)


def test_the_worst_of_a_population_goes_on_from_the_best_with_other_parameters() -> None:
    members = [past(n, *[float(n)] * 5, params={"x": 0.2 * n + 0.1}) for n in range(4)]
    steps = population.steps(PBT, 12, members)
    assert [step for step in steps if isinstance(step, Advance)] == [
        Advance(0, 1), Advance(1, 1), Advance(2, 1),
    ]  # fmt: skip
    [pruned] = [step for step in steps if isinstance(step, Prune)]
    [made] = [step for step in steps if isinstance(step, Create)]
    assert pruned.number == 3
    assert (made.number, made.parent, made.rung) == (4, 0, 1)
    assert made.params is not None and made.params != members[0].params
    assert population.steps(PBT, 12, members) == steps, "asked again it says the same"


def test_nobody_is_replaced_before_its_time_or_past_the_number_of_trials() -> None:
    young = [past(n, *[float(n)] * 4, params={"x": 0.5}) for n in range(4)]
    assert population.steps(PBT, 12, young) == []
    grown = [past(n, *[float(n)] * 5, params={"x": 0.5}) for n in range(4)]
    assert all(isinstance(step, Advance) for step in population.steps(PBT, 4, grown))


def test_a_member_that_has_only_begun_is_waited_for() -> None:
    grown = [past(n, *[float(n)] * 5, params={"x": 0.5}) for n in range(3)]
    assert population.steps(PBT, 12, [*grown, past(3, params={"x": 0.5})]) == []


def test_a_population_keeps_its_size_and_ends_better_than_it_began() -> None:
    world = World(PBT, lambda params, step: (params["x"] - 0.7) ** 2 - 0.001 * step, 30)
    world.run()
    assert world.most == 4 and 4 < len(world.trials) <= 12
    assert world.parents, "somebody went on from another's checkpoint"
    whole = [trial for trial in world.trials if trial.state is TrialState.SUCCEEDED]
    assert len(whole) == 4


def test_places_are_filled_and_no_more() -> None:
    study = spec(parallel=3, trials=5)
    assert plan(study, 5, []) == [Create(0), Create(1), Create(2)]
    assert plan(study, 5, [past(0), past(1, state="succeeded"), past(2, state="pausing")]) == [
        Create(3)
    ]
    done = [past(n, state="succeeded") for n in range(4)] + [past(4, state="failed")]
    assert plan(study, 5, done) == [Finish("4 succeeded, 1 failed")]
    assert plan(study, 6, done) == [Create(5)], "more trials were asked for"


def test_a_grid_ends_with_its_last_point_whatever_was_asked_for() -> None:
    study = spec(sampler="grid", space={"a": [1, 2], "b": "int:1..2"}, trials=50, parallel=9)
    assert len(plan(study, 50, [])) == 4
    assert [own(study, number) for number in range(4)] == [
        {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 2, "b": 2},
    ]  # fmt: skip


def test_a_study_whose_first_trials_all_fail_cannot_go_on() -> None:
    study = spec(max_failures=3, trials=50)
    failed = [past(n, state="failed") for n in range(3)]
    assert "all failed" in hopeless(study, failed)
    assert not any(isinstance(step, Create) for step in plan(study, 50, failed))
    assert not hopeless(study, [*failed, past(3, state="succeeded")])
    assert not hopeless(study, failed[:2])


def ended(number: int, *values: float | None, **more: object) -> Past:
    return Past(number, more.pop("params", {}), TrialState.SUCCEEDED, values=values, **more)  # type: ignore[arg-type]


def test_the_best_is_the_best_of_those_within_bounds() -> None:
    history = [ended(0, 3.0), ended(1, 1.0, excess=(2.0,)), ended(2, 2.0), ended(3, None)]
    assert [each.number for each in best([LOSS], history)] == [2]
    assert [each.number for each in best([ACC], history)] == [0]
    assert curve(LOSS, history) == [(0, 3.0), (2, 2.0)]


def test_of_several_objectives_all_stay_that_no_other_beats() -> None:
    history = [ended(0, 1.0, 9.0), ended(1, 9.0, 1.0), ended(2, 9.0, 9.0), ended(3, 5.0, 5.0)]
    assert [each.number for each in best([LOSS, LOSS], history)] == [0, 1, 3]


def test_what_matters_explains_more_than_what_does_not() -> None:
    study = spec(space={"x": "float:0..1", "y": "float:0..1", "z": ["a", "b"]}, trials=60)
    history = [
        ended(n, (params["x"] - 0.3) ** 2, params=params)
        for n in range(60)
        if (params := own(study, n))
    ]
    found = importance(study.space, LOSS, history)
    assert found["x"] > 0.5 and found["y"] < 0.25 and found["z"] < 0.25
    assert importance(study.space, LOSS, history[:3]) == {}


@pytest.mark.parametrize("kind", ["none", "asha", "halving", "median"])
def test_a_plan_called_twice_is_the_same_plan(kind: str) -> None:
    study = spec(pruner=kind, trials=9, parallel=2)
    history = [past(0, 1.0, state="paused"), past(1, 2.0), past(2, 0.5)]
    assert plan(study, 9, history) == plan(study, 9, history)
