"""Hyperopt's spaces as ours, without Hyperopt."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from windlass.client.importers.hyperopt import Space, load
from windlass.core.errors import InvalidInput
from windlass.core.studies import StudySpec

SCRIPT = """
import math
from hyperopt import fmin, tpe, hp, Trials, STATUS_OK
from hyperopt.pyll.base import scope

def objective(given):
    raise RuntimeError("never called")

SPACE = {
    "lr": hp.loguniform("lr", math.log(1e-4), math.log(1e-1)),
    "dropout": hp.uniform("dropout", 0, 0.5),
    "batch": hp.quniform("batch size", 16, 128, 16),
    "layers": scope.int(hp.quniform("layers", 1, 6, 1)),
    "seed": hp.randint("seed", 10),
    "units": hp.uniformint("units", 4, 64),
    "act": hp.choice("act", ["relu", "tanh", None]),
    "noise": hp.normal("noise", 0, 0.1),
    "epochs": 12,
    "model": hp.choice("model", [
        {"type": "svm", "C": hp.lognormal("svm_C", 0, 1),
         "kernel": hp.choice("kernel", [
             {"ktype": "linear"},
             {"ktype": "rbf", "width": hp.uniform("width", 0, 1)}])},
        {"type": "tree", "depth": hp.qloguniform("depth", 0, 3, 1)},
    ]),
    "pick": hp.pchoice("pick", [(0.1, 1), (0.9, 2)]),
    "odd": hp.uniform("odd", 0, 1) * 2,
}
if __name__ == "__main__":
    trials = Trials()
    best = fmin(objective, SPACE, algo=tpe.suggest, max_evals=100, trials=trials)
    print(1 / len(trials.losses()))
"""


def of(folder: Path, text: str, name: str = "") -> Space:
    path = folder / "search.py"
    path.write_text(text)
    return load(f"{path}:{name}" if name else str(path), sys.executable)


@pytest.mark.parametrize("name", ["SPACE", ""])
def test_every_distribution_maps_or_is_reported(tmp_path: Path, name: str) -> None:
    found = of(tmp_path, SCRIPT, name)
    assert found.space == {
        "lr": {"range": "log:0.0001..0.1"},
        "dropout": {"range": "float:0..0.5"},
        "batch_size": {"range": "int:16..128/16"},
        "layers": {"range": "int:1..6/1"},
        "seed": {"range": "int:0..9"},
        "units": {"range": "int:4..64"},
        "act": {"choices": ["relu", "tanh", "none"]},
        "noise": {"range": "float:-0.3..0.3"},
        "epochs": {"choices": [12]},
        "model": {"choices": ["svm", "tree"]},
        "svm_C": {"range": "log:0.0497870683679..20.0855369232", "when": {"model": ["svm"]}},
        "kernel": {"choices": ["linear", "rbf"], "when": {"model": ["svm"]}},
        "width": {"range": "float:0..1", "when": {"kernel": ["rbf"]}},
        "depth": {"range": "logint:1..20", "when": {"model": ["tree"]}},
        "pick": {"choices": [1, 2]},
    }
    notes = {(note.fate.value, note.field) for note in found.notes}
    assert {("by hand", "odd"), ("by hand", "noise"), ("by hand", "svm_C"), ("by hand", "act"),
            ("dropped", "pick"), ("mapped", "width")} <= notes  # fmt: skip
    spec = {"job": {"run": "python train.py"}, "space": found.space, "minimize": "loss"}
    assert len(StudySpec.model_validate(spec).space) == 15


def test_a_name_of_two_branches_is_told_apart_or_shared(tmp_path: Path) -> None:
    head = "from hyperopt import hp\nspace = hp.choice('m', ["
    found = of(tmp_path, head + "{'t': 'a', 'n': 1, 'k': 5}, {'t': 'b', 'n': 2, 'k': 5}])\n")
    assert found.space == {
        "m": {"choices": ["a", "b"]},
        "n": {"choices": [1], "when": {"m": ["a"]}},
        "k": {"choices": [5], "when": {"m": ["a", "b"]}},
        "b_n": {"choices": [2], "when": {"m": ["b"]}},
    }


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("x = 1\n", "", "calls no fmin and has no `space`"),
        ("x = 1\n", "space", "there is no space in it"),
        ("import nowhere\n", "space", "No module named 'nowhere'"),
        ("space = {}\n", "space", "describes no parameter"),
    ],
)
def test_what_is_no_space_is_said_in_words(tmp_path: Path, text, name, words) -> None:
    with pytest.raises(InvalidInput) as caught:
        of(tmp_path, text, name)
    assert words in str(caught.value)
    with pytest.raises(InvalidInput, match="no such file"):
        load("nowhere.py:space", sys.executable)
