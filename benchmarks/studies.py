"""Claims: ASHA reaches random search's best in at most a quarter of its trial-seconds; a study
adds at most half to the time of a bare job; trivial trials come faster than Ray Tune's.

The surface is the multi-fidelity Hartmann function in six dimensions of Kandasamy et al. (2017),
where a step is one of 81 parts of the full fidelity; time is simulated with the pure core that the
server uses. Reached is what a trial has at full fidelity, at its end.

A trivial trial reports one number and ends. Ours is a job, with a Python process of its own, on a
server that is up; Ray's is a call in a worker that is up and has had a trial before (its default
for functions), or a worker of its own. Both after a warm-up, in turns, so many at once.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measure import (
    CACHE,
    Row,
    at_least,
    at_most,
    folder,
    interleave,
    median,
    per_second,
)
from windlass.core.studies import StudySpec, TrialState
from windlass.testing.platform import Platform
from windlass.tune.history import Advance, Create, Finish, Past, Pause, Prune, Resume
from windlass.tune.plan import own, plan

STEPS = 81
SEEDS = 15
RANDOM_TRIALS = 64
JOBS = 8
TRIALS, AT_ONCE, ROUNDS = 24, 4, 3
PEER = Path(__file__).parent / "peers" / "ray_tune.py"

_ALPHA = (1.0, 1.2, 3.0, 3.2)
_A = (
    (10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14),
)  # fmt: skip
_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def measure() -> list[Row]:
    random, asha = [], []
    for seed in range(SEEDS):
        best, cost = _search(_study("none", RANDOM_TRIALS, seed), None)
        random.append(float(cost))
        # Other points than random search had: its best must be found, not only recognised.
        other = _study("asha", 40 * RANDOM_TRIALS, 1000 + seed)
        asha.append(float(_search(other, best)[1]))
    ratios = [a / r for a, r in zip(asha, random, strict=True)]
    bare, tried = _platform()
    trivial = _trivial()
    return [
        at_most(
            "ASHA, steps of trials to random search's best", median(ratios), 1.0, 0.25,
            lambda value: f"{value:.2f}",
        ),
        at_most(
            "study, time of a trial against a bare job", tried, bare, 1.5,
            lambda value: f"{value:.2f} s",
        ),
        at_least(
            "trivial trials a second, a process each (Ray Tune)", median(trivial["ours"]),
            median(trivial["apart"]), 1.0, per_second,
        ),
        at_least(
            "trivial trials a second (Ray Tune, whose trials share processes)",
            median(trivial["ours"]), median(trivial["shared"]), 1.0, per_second,
        ),
    ]  # fmt: skip


def hartmann(params: dict[str, Any], fidelity: float) -> float:
    """Less is better; the least is -3.32."""
    x = [params[f"x{at}"] for at in range(6)]
    return -sum(
        (alpha - 0.1 * (1 - fidelity))
        * math.exp(-sum(a * (v - p) ** 2 for a, v, p in zip(row, x, place, strict=True)))
        for alpha, row, place in zip(_ALPHA, _A, _P, strict=True)
    )


def _study(pruner: str, trials: int, seed: int) -> StudySpec:
    rungs = {"min_step": 1, "factor": 3, "max_step": STEPS} if pruner == "asha" else {}
    return StudySpec.model_validate(
        {"job": {"run": "train"}, "space": {f"x{at}": "float:0..1" for at in range(6)},
         "minimize": "loss", "sampler": "random", "trials": trials, "parallel": 4, "seed": seed,
         "pruner": {"kind": pruner, **rungs}}
    )  # fmt: skip


def _search(study: StudySpec, until: float | None) -> tuple[float, int]:
    """(best at full fidelity, steps of all trials together), to the end or until it is as good."""
    trials: list[Past] = []
    best, cost = math.inf, 0
    while True:
        steps = plan(study, study.trials, trials)
        if any(isinstance(step, Finish) for step in steps):
            return best, cost
        for step in steps:
            _carry_out(study, trials, step)
        if steps:
            continue
        for at, trial in enumerate(trials):
            if trial.state is not TrialState.RUNNING:
                continue
            now = len(trial.reports) + 1
            value = hartmann(dict(trial.params), now / STEPS)
            cost += 1
            trial = replace(trial, reports=(*trial.reports, (now, value)))
            if now == STEPS:
                trial = replace(trial, state=TrialState.SUCCEEDED, values=(value,))
                best = min(best, value)
            trials[at] = trial
        if until is not None and best <= until:
            return best, cost


def _carry_out(study: StudySpec, trials: list[Past], step: Any) -> None:
    if isinstance(step, Create):
        trials.append(Past(step.number, own(study, step.number), TrialState.RUNNING))
        return
    trial = trials[step.number]
    if isinstance(step, Advance):
        trial = replace(trial, rung=step.rung)
    elif isinstance(step, Pause):
        trial = replace(trial, state=TrialState.PAUSED)
    elif isinstance(step, Resume):
        trial = replace(trial, state=TrialState.RUNNING, rung=step.rung)
    elif isinstance(step, Prune):
        trial = replace(trial, state=TrialState.PRUNED, values=(trial.reports[-1][1],))
    trials[step.number] = trial


def _trivial() -> dict[str, list[float]]:
    """Trials a second: ours, Ray's in shared workers, and Ray's with a worker each."""
    python = _ray()
    with folder() as place, Platform(place / "home") as platform:
        _study_of(platform, AT_ONCE)

        def theirs(how: str) -> float:
            # Not below the checkout: the path of a Unix socket may have about 100 characters.
            temporary = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
            words = [str(TRIALS), str(AT_ONCE), str(temporary), *([how] if how else [])]
            env = {
                **os.environ,
                "RAY_USAGE_STATS_ENABLED": "0",
                "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
            }
            try:
                told = subprocess.run(
                    [str(python), str(PEER), *words], env=env, check=True, capture_output=True,
                    text=True, timeout=600,
                )  # fmt: skip
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            return TRIALS / float(json.loads(told.stdout.splitlines()[-1])["seconds"])

        return interleave(
            {
                "ours": lambda: TRIALS / _study_of(platform, TRIALS),
                "shared": lambda: theirs(""),
                "apart": lambda: theirs("apart"),
            },
            ROUNDS, warm=False,
        )  # fmt: skip


def _study_of(platform: Platform, trials: int) -> float:
    command = [sys.executable, "-c", "import windlass; windlass.log(step=1, loss=1.0)"]
    began = time.monotonic()
    made = platform.client.studies.create(
        {"job": {"run": command}, "space": {"x": "float:0..1"}, "minimize": "loss",
         "sampler": "random", "trials": trials, "parallel": AT_ONCE, "give": "environment"}
    )  # fmt: skip
    done = platform.client.studies.wait(made.id, timeout_seconds=600)
    assert done.counts == {"succeeded": trials}, done
    return time.monotonic() - began


def _ray() -> Path:
    venv = CACHE / "ray-tune-venv"
    if not (venv / "bin" / "ray").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "-q", "ray[tune]"], check=True)
    return venv / "bin" / "python"


def _platform() -> tuple[float, float]:
    """Seconds of a bare job, and of a trial, one after the other: the mean of each."""
    script = "import windlass; windlass.log(step=1, loss=1.0)"
    command = [sys.executable, "-c", script]
    with folder() as place, Platform(place / "home") as platform:
        bare = []
        for _ in range(JOBS):
            began = time.monotonic()
            job = platform.submit(command)
            platform.client.jobs.wait(job.id, timeout_seconds=120)
            bare.append(time.monotonic() - began)
        began = time.monotonic()
        made = platform.client.studies.create(
            {"job": {"run": command}, "space": {"x": "float:0..1"}, "minimize": "loss",
             "sampler": "random", "trials": JOBS, "parallel": 1, "give": "environment"}
        )  # fmt: skip
        platform.client.studies.wait(made.id, timeout_seconds=300)
        tried = (time.monotonic() - began) / JOBS
    return sum(bare) / len(bare), tried
