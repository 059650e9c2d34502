"""Optuna's samplers behind one question: this history, this space, trial N: which parameters?

Nothing is remembered between two questions. The study is built anew in memory from the history,
and the dice are thrown from (seed, number): a process that was killed and started again gives the
same answer. What a sampler wants to find again with a trial (the state of CMA-ES, the generation
of NSGA-II) travels as `attrs` with its row.
"""

from __future__ import annotations

import json
import math
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.spaces import Dimension, holds, numeric
from windlass.core.studies import OUR_OWN, StudySpec, TrialState
from windlass.tune.draw import fits
from windlass.tune.history import Past
from windlass.tune.plan import own

_LEARNT = 2000
"""Of a long history so many trials, the newest, are learnt from."""
_UNKNOWN = 1e300
"""How far a trial is out of bounds that did not tell."""


def question(
    spec: StudySpec, number: int, history: Sequence[Past], warm: Sequence[Past] = ()
) -> dict[str, Any]:
    """What the process of `python -m windlass.tune` is asked, as JSON."""
    about = {"space", "objectives", "sampler", "seed", "constraints", "trials"}
    return {
        "spec": spec.model_dump(mode="json", include=about),
        "number": number,
        "history": [
            _told(past) for past in (*warm, *history[-_LEARNT:]) if fits(spec.space, past.params)
        ],
    }


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """`{"params", "attrs"}`. Raises ModuleNotFoundError without Optuna."""
    spec = StudySpec.model_validate_json(json.dumps({**asked["spec"], "job": {"run": "true"}}))
    number = int(asked["number"])
    if spec.sampler.kind in OUR_OWN:
        return {"params": own(spec, number), "attrs": {}}
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experimental samplers, and of independent sampling
        study = optuna.create_study(
            directions=[objective.goal for objective in spec.objectives],
            sampler=_sampler(spec, zlib.crc32(f"{spec.seed}/{number}".encode())),
        )
        for past in _judged(spec, _measured(asked["history"])):
            trial = _frozen(spec, past)
            if trial is not None:
                study.add_trial(trial)
        trial = study.ask()
        found: dict[str, Any] = {}
        for name, dimension in spec.space.items():
            if holds(dimension, found):
                found[name] = _suggest(trial, name, dimension)
    attrs = study._storage.get_trial_system_attrs(trial._trial_id)
    return {"params": found, "attrs": {key: attrs[key] for key in attrs}}


def installed() -> bool:
    """Whether there is an Optuna, without importing it."""
    from importlib.util import find_spec

    return find_spec("optuna") is not None


def _told(past: Past) -> dict[str, Any]:
    return {
        "params": dict(past.params),
        "state": past.state.value,
        "values": list(past.values),
        "excess": [min(each, _UNKNOWN) for each in past.excess],
        "attrs": dict(past.attrs),
    }


def _sampler(spec: StudySpec, seed: int) -> Any:
    from optuna import samplers

    startup = spec.sampler.startup
    if spec.sampler.kind == "tpe":
        return samplers.TPESampler(seed=seed, n_startup_trials=startup)
    if spec.sampler.kind == "cmaes":
        return samplers.CmaEsSampler(seed=seed, n_startup_trials=startup)
    if spec.sampler.kind == "gp":
        return samplers.GPSampler(seed=seed, n_startup_trials=startup)
    population = max(4, min(50, spec.trials // 5))
    return samplers.NSGAIISampler(seed=seed, population_size=population)


def _measured(history: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Who did not tell is as far out as the worst that did: a number without measure would make
    all others look alike to a Gaussian process."""
    told = [past["excess"] for past in history]
    worst = [
        max((each for each in column if 0 < each < _UNKNOWN), default=1.0)
        for column in zip(*(each for each in told if each), strict=True)
    ]
    return [
        {**past, "excess": [min(pair) for pair in zip(past["excess"], worst, strict=False)]}
        for past in history
    ]


def _judged(spec: StudySpec, history: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """CMA-ES knows of no bounds, but it only ranks: what is out of them comes behind all others,
    and the further out the further behind."""
    if spec.sampler.kind != "cmaes" or not spec.constraints:
        return history
    sign = 1.0 if spec.objectives[0].goal == "minimize" else -1.0
    known = [sign * value for past in history for value in past["values"] if value is not None]
    worst = max((value for value in known if math.isfinite(value)), default=0.0)
    judged = []
    for past in history:
        out = sum(max(0.0, each) for each in past["excess"])
        judged.append(
            {**past, "values": [sign * (worst + out)]} if out and past["values"] else past
        )
    return judged


def _frozen(spec: StudySpec, past: Mapping[str, Any]) -> Any:
    """An earlier trial as Optuna has it. One that failed says where not to look again, as far as
    the sampler listens; one that runs is counted so that its neighbour is not tried too."""
    from optuna.trial import TrialState as Theirs
    from optuna.trial import create_trial

    values = past["values"]
    whole = len(values) == len(spec.objectives) and all(
        value is not None and math.isfinite(value) for value in values
    )
    state = {
        TrialState.SUCCEEDED: Theirs.COMPLETE,
        TrialState.PRUNED: Theirs.COMPLETE,  # its last value is a value
        TrialState.PAUSED: Theirs.COMPLETE,
        TrialState.FAILED: Theirs.FAIL,
        TrialState.CANCELLED: Theirs.FAIL,
    }.get(TrialState(past["state"]), Theirs.RUNNING)
    if state is Theirs.COMPLETE and not whole:
        state = Theirs.FAIL
    attrs = dict(past["attrs"])
    if past["excess"] and state is Theirs.COMPLETE:
        attrs["constraints"] = past["excess"]
    return create_trial(
        state=state,
        values=values if state is Theirs.COMPLETE else None,
        params=past["params"],
        distributions={name: _distribution(spec.space[name]) for name in past["params"]},
        system_attrs=attrs,
    )


def _suggest(trial: Any, name: str, dimension: Dimension) -> Any:
    found = trial._suggest(name, _distribution(dimension))
    return found if dimension.kind == "choice" else numeric(dimension, found)


def _distribution(dimension: Dimension) -> Any:
    from optuna import distributions

    if dimension.kind == "choice":
        return distributions.CategoricalDistribution(dimension.choices)
    if dimension.kind == "int":
        first, step = int(dimension.low), int(dimension.step or 1)
        last = first + (int(dimension.high) - first) // step * step  # a multiple: no warning
        return distributions.IntDistribution(first, last, log=dimension.log, step=step)
    low, high = dimension.low, dimension.high
    if dimension.step is not None:
        high = low + math.floor((high - low) / dimension.step + 1e-9) * dimension.step
    return distributions.FloatDistribution(low, high, log=dimension.log, step=dimension.step)
