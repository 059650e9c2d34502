"""A space that we import, beside what the real Hyperopt draws from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.client.importers.hyperopt import load
from windlass.core.spaces import holds
from windlass.core.studies import StudySpec
from windlass.testing.environments import Unavailable, environment

pytestmark = pytest.mark.slow
SEARCH = """
import json, math
import numpy
from hyperopt import fmin, hp, rand, Trials
from hyperopt.pyll.base import scope

space = {
    "lr": hp.loguniform("lr", math.log(1e-4), math.log(1e-1)),
    "drop": hp.uniform("drop", 0, 0.5),
    "batch": hp.quniform("batch", 16, 128, 16),
    "units": hp.uniformint("units", 4, 64),
    "seed": hp.randint("seed", 10),
    "layers": scope.int(hp.quniform("layers", 1, 6, 1)),
    "act": hp.choice("act", ["relu", "tanh"]),
    "model": hp.choice("model", [
        {"type": "svm", "C": hp.loguniform("C", -2, 2),
         "kernel": hp.choice("kernel", [{"k": "linear"},
                                        {"k": "rbf", "width": hp.uniform("width", 0, 1)}])},
        {"type": "tree", "depth": hp.qloguniform("depth", 0, 3, 1)},
        {"type": "none"},
    ]),
}
trials = Trials()
fmin(lambda given: 0.0, space, algo=rand.suggest, max_evals=200, trials=trials,
     rstate=numpy.random.default_rng(0), show_progressbar=False, verbose=False)
if __name__ == "__main__":
    drawn = [{name: float(each[0]) for name, each in trial["misc"]["vals"].items() if each}
             for trial in trials.trials]
    print(json.dumps(drawn))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return environment("hyperopt", "hyperopt==0.2.7", "setuptools<81")
    except Unavailable as err:
        pytest.skip(str(err))


def test_what_hyperopt_draws_is_in_the_space_that_was_imported(
    python: Path, tmp_path: Path
) -> None:
    path = tmp_path / "search.py"
    path.write_text(SEARCH)
    done = subprocess.run([str(python), str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(drawn) == 200
    found = load(f"{path}:space", sys.executable)
    spec = {"job": {"run": "x"}, "space": found.space, "minimize": "loss"}
    space = StudySpec.model_validate(spec).space
    seen = set()
    for sample in drawn:
        values = {}
        for name, dimension in space.items():
            if holds(dimension, values):
                assert name in sample, (name, sample)
                value = sample[name]
                values[name] = dimension.choices[int(value)] if dimension.choices else value
                assert dimension.contains(values[name]), (name, value, dimension.text())
        assert set(values) == set(sample), "the same parameters exist"
        seen.add((values["model"], values.get("kernel")))
    assert seen == {("svm", "linear"), ("svm", "rbf"), ("tree", None), ("none", None)}


def test_a_python_that_has_the_real_one_gives_the_same_space(python: Path, tmp_path: Path) -> None:
    path = tmp_path / "search.py"
    path.write_text(SEARCH)
    theirs, ours = load(f"{path}:space", str(python)), load(f"{path}:space", sys.executable)
    assert theirs.space == ours.space
