"""Optuna's samplers, asked as the server asks them: in a process of their own."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from study_scene import spec

from windlass.core.studies import StudySpec, TrialState
from windlass.server.studies.asking import NoAnswer, Sampling
from windlass.tune.draw import fits
from windlass.tune.history import Past
from windlass.tune.samplers import answer, question

pytest.importorskip("optuna")

SPACE = {
    "lr": "log:1e-4..1e-1", "layers": "int:1..6", "optimizer": ["sgd", "adam"],
    "beta": {"range": "float:0..1", "when": {"optimizer": "adam"}},
}  # fmt: skip


def study(kind: str, **fields: object) -> StudySpec:
    sampler = {"kind": kind, "startup": 3}
    return spec(**{"space": SPACE, "sampler": sampler, "trials": 30, **fields})


def asked(about: StudySpec, number: int, history: list[Past], warm: tuple[Past, ...] = ()):
    """Through JSON, as it travels."""
    whole = json.loads(json.dumps(question(about, number, history, warm)))
    return json.loads(json.dumps(answer(whole)))


@pytest.mark.parametrize("kind", ["tpe", "cmaes", "nsga2"])
def test_a_sampler_asked_again_says_the_same_and_fits_the_space(kind: str) -> None:
    goals = [{"metric": "a"}, {"metric": "b"}] if kind == "nsga2" else [{"metric": "a"}]
    about, history = study(kind, objectives=goals), []
    for number in range(8):
        found = asked(about, number, history)
        assert fits(about.space, found["params"])
        value = found["params"]["layers"] + found["params"]["lr"]
        values = (value, -value) if kind == "nsga2" else (value,)
        state = TrialState.FAILED if number == 2 else TrialState.SUCCEEDED
        history.append(Past(number, found["params"], state, values=values, attrs=found["attrs"]))
    assert asked(about, 8, history) == asked(about, 8, history)
    assert asked(about, 9, history) != asked(about, 8, history)


@pytest.mark.slow
def test_gaussian_processes_learn() -> None:
    about, history = study("gp", space={"x": "float:0..1"}), []
    for number in range(7):
        x = asked(about, number, history)["params"]["x"]
        history.append(Past(number, {"x": x}, TrialState.SUCCEEDED, values=((x - 0.3) ** 2,)))
    assert min(each.values[0] for each in history) < 0.01


def test_results_of_an_earlier_study_and_of_constraints_are_learnt_from() -> None:
    about = study("tpe", space={"x": "float:0..1"}, constraints=[{"metric": "m", "most": 1}])
    warm = tuple(
        Past(-n - 1, {"x": n / 20}, TrialState.SUCCEEDED, values=((n / 20 - 0.8) ** 2,))
        for n in range(20)
    )
    drawn = [asked(about, number, [], warm)["params"]["x"] for number in range(12)]
    assert sum(abs(x - 0.8) < 0.25 for x in drawn) >= 8
    out = [
        Past(n, {"x": n / 20}, TrialState.SUCCEEDED, values=((n / 20 - 0.8) ** 2,),
             excess=(1.0 if n > 8 else -1.0,))
        for n in range(20)
    ]  # fmt: skip
    drawn = [asked(about, number, out)["params"]["x"] for number in range(20, 32)]
    assert sum(x < 0.55 for x in drawn) >= 8


def late(kind: str, goal: str, trials: int, silent: tuple[int, ...] = ()) -> list[float]:
    """Where a sampler looks in the second half of its trials: the best is at 1, and out of bounds
    from 0.4 on. The silent ones do not tell how far they were out."""
    sign = 1.0 if goal == "minimize" else -1.0
    about = study(
        kind, space={"x": "float:0..1", "y": "float:0..1"}, trials=60,
        objectives=[{"metric": "a", "goal": goal}], constraints=[{"metric": "m", "most": 1}],
    )  # fmt: skip
    history: list[Past] = []
    for number in range(trials):
        found = asked(about, number, history)
        x, y = found["params"]["x"], found["params"]["y"]
        value = sign * ((x - 1) ** 2 + (y - 0.5) ** 2)
        excess = math.inf if number in silent else x - 0.4
        history.append(
            Past(number, found["params"], TrialState.SUCCEEDED, values=(value,),
                 excess=(excess,), attrs=found["attrs"])
        )  # fmt: skip
    return [past.params["x"] for past in history[trials // 2 :]]


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("kind", ["tpe", "cmaes", "nsga2"])
def test_who_is_told_of_bounds_keeps_to_them(kind: str, goal: str) -> None:
    """Also CMA-ES, to which Optuna does not tell them; and who tells nothing spoils nothing."""
    found = late(kind, goal, 40, silent=(1, 5))
    assert sum(x <= 0.4 for x in found) >= 8, found


@pytest.mark.slow
def test_gaussian_processes_keep_to_bounds_too() -> None:
    found = late("gp", "minimize", 14, silent=(1, 5))
    assert statistics.median(found) < 0.6, found


def test_without_a_word_from_optuna_a_question_is_answered_with_an_error() -> None:
    with pytest.raises(ValueError):
        answer({"spec": {}, "number": 0, "history": []})


@asynccontextmanager
async def sampling(**more: float) -> AsyncIterator[Sampling]:
    found = Sampling(**more)
    try:
        yield found
    finally:
        await found.close()


def test_the_process_may_be_killed_and_ends_when_nobody_asks() -> None:
    about = study("tpe")

    async def story() -> None:
        async with sampling(idle_seconds=0.2) as asking:
            assert asking.pid is None
            first = await asking.ask(about, 0, [], [])
            pid = asking.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert await asking.ask(about, 0, [], []) == first
            again = asking.pid
            for _ in range(600):
                if asking.pid is None:
                    break
                await asyncio.sleep(0.1)
            assert asking.pid is None and again not in (None, pid)
            assert (await asking.ask(about, 0, [], [])) == first

    asyncio.run(story())


def test_a_sampler_that_refuses_is_told_of_and_the_process_lives_on() -> None:
    async def story() -> None:
        async with sampling() as asking:
            wrong = study("cmaes", objectives=[{"metric": "a"}, {"metric": "b"}])
            with pytest.raises(NoAnswer, match="cmaes"):
                await asking.ask(wrong, 0, [], [])
            params, _ = await asking.ask(study("tpe"), 0, [], [])
            assert fits(study("tpe").space, params)

    asyncio.run(story())
