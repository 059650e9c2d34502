"""Rungs: who pauses, who is promoted, who is never."""

from __future__ import annotations

import pytest
from study_scene import World, past, spec

from windlass.core.studies import PrunerSpec, TrialState
from windlass.tune.halving import asynchronous, best_at, milestones, synchronous
from windlass.tune.history import Advance, Pause, Prune, Resume

ASHA = spec(pruner={"kind": "asha", "min_step": 1, "factor": 3, "max_step": 27}, trials=27)
LOSS = ASHA.objectives[0]


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({"min_step": 1, "factor": 3, "max_step": 27}, [1, 3, 9]),
        ({"min_step": 2, "factor": 2, "max_step": 17}, [2, 4, 8, 16]),
        ({"min_step": 5, "factor": 4, "max_step": 5}, []),
    ],
)
def test_rungs_lie_a_factor_apart_and_before_the_end(fields, steps) -> None:
    assert milestones(PrunerSpec(kind="asha", **fields)) == steps


def test_a_third_of_those_that_came_to_a_rung_pass_it() -> None:
    history = [past(number, float(number)) for number in range(7)]
    assert best_at(ASHA.pruner, LOSS, history, 0) == ({0, 1}, 7)
    assert best_at(ASHA.pruner, LOSS, history, 1) == (set(), 0)


def test_the_first_to_come_pauses_and_a_better_one_passes_once_there_are_three() -> None:
    alone = [past(0, 5.0)]
    [step] = asynchronous(ASHA.pruner, LOSS, alone, 1, True)
    assert isinstance(step, Pause) and step.number == 0
    three = [past(0, 5.0, state="paused"), past(1, 6.0, state="paused"), past(2, 4.0)]
    assert asynchronous(ASHA.pruner, LOSS, three, 1, True) == [Advance(2, 1)]


def test_a_free_place_goes_to_a_paused_trial_that_became_one_of_the_best() -> None:
    history = [past(0, 1.0, state="paused"), past(1, 6.0, state="paused"), past(2, 7.0)]
    steps = asynchronous(ASHA.pruner, LOSS, history, 1, True)
    assert [type(step) for step in steps] == [Pause, Resume]
    assert steps[1].number == 0 and steps[1].rung == 1
    assert not any(
        isinstance(step, Resume) for step in asynchronous(ASHA.pruner, LOSS, history, 0, True)
    )


def test_the_highest_rung_is_promoted_first() -> None:
    top = [past(n, 1.0 + n, 1.0 + n, 1.0 + n, state="paused", rung=1) for n in range(3)]
    low = [past(n, 0.5 * n, state="paused") for n in range(3, 9)]
    steps = asynchronous(ASHA.pruner, LOSS, [*top, *low], 1, True)
    assert [(step.number, step.rung) for step in steps] == [(0, 2)]


def test_who_overran_several_rungs_is_judged_at_each() -> None:
    others = [past(n, 9.0 + n, state="paused") for n in range(1, 3)]
    fast = past(0, *[1.0] * 5)
    steps = asynchronous(ASHA.pruner, LOSS, [fast, *others], 0, True)
    assert [type(step) for step in steps] == [Advance, Pause]
    assert steps[0] == Advance(0, 1)


def test_at_the_end_those_that_were_never_promoted_are_pruned() -> None:
    history = [past(0, 1.0, 1.0, state="succeeded"), past(1, 5.0, state="paused")]
    [step] = asynchronous(ASHA.pruner, LOSS, history, 3, False)
    assert isinstance(step, Prune) and step.number == 1
    assert asynchronous(ASHA.pruner, LOSS, [*history, past(2)], 3, False) == []


def test_without_pauses_who_is_not_among_the_best_is_stopped() -> None:
    rules = ASHA.pruner.model_copy(update={"pause": False})
    two = [past(0, 1.0), past(1, 2.0)]
    assert [type(s) for s in asynchronous(rules, LOSS, two, 0, True)] == [Advance, Advance]
    three = [past(0, 1.0, rung=1), past(1, 2.0, rung=1), past(2, 9.0)]
    [step] = asynchronous(rules, LOSS, three, 0, True)
    assert isinstance(step, Prune) and step.number == 2


def test_a_value_that_is_no_number_is_never_among_the_best() -> None:
    history = [past(0, float("nan")), past(1, 5.0), past(2, 6.0)]
    assert best_at(ASHA.pruner, LOSS, history, 0)[0] == {1}


def test_synchronous_rungs_wait_for_all_then_let_a_third_pass() -> None:
    rules = spec(pruner={"kind": "halving", "max_step": 27}).pruner
    waiting = [past(n, float(n), state="paused") for n in range(5)]
    assert synchronous(rules, LOSS, [*waiting, past(5)], 3, False) == []
    assert synchronous(rules, LOSS, [*waiting, past(5, 9.0, state="paused")], 3, True) == []
    steps = synchronous(rules, LOSS, [*waiting, past(5, 9.0, state="paused")], 1, False)
    assert [(type(step), step.number) for step in steps] == [
        (Resume, 0), (Prune, 2), (Prune, 3), (Prune, 4), (Prune, 5),
    ]  # fmt: skip


def test_a_synchronous_rung_does_not_wait_for_a_trial_that_crashed() -> None:
    rules = spec(pruner={"kind": "halving", "max_step": 27}).pruner
    history = [past(0, 1.0, state="paused"), past(1, 2.0, state="paused"), past(2, state="failed")]
    steps = synchronous(rules, LOSS, history, 3, False)
    assert [(type(step), step.number) for step in steps] == [(Resume, 0), (Prune, 1)]


@pytest.mark.parametrize("kind", ["asha", "halving"])
@pytest.mark.parametrize("parallel", [1, 4, 27])
def test_a_whole_study_ends_with_few_long_trials_and_the_best_among_them(kind, parallel) -> None:
    study = spec(
        pruner={"kind": kind, "min_step": 1, "factor": 3, "max_step": 27},
        trials=27, parallel=parallel, seed=3,
    )  # fmt: skip
    world = World(study, lambda params, step: (params["x"] - 0.5) ** 2 + 1 / step, 27)
    world.run()
    assert len(world.trials) == 27 and world.most <= parallel
    assert all(trial.ended for trial in world.trials)
    whole = [trial for trial in world.trials if trial.state is TrialState.SUCCEEDED]
    best = min(world.trials, key=lambda trial: (trial.params["x"] - 0.5) ** 2)
    assert best in whole and 1 <= len(whole) <= 9
    assert world.steps < 27 * 27 / 3
