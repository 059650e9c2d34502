"""Spaces with branches from a Python function: every way is found, and nothing else."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from windlass.client import space_program
from windlass.client.spaces import of_file, of_function
from windlass.core.errors import InvalidInput
from windlass.core.studies import StudySpec
from windlass.tune.draw import by_chance, fits, grid


def checked(space: dict[str, Any]) -> Any:
    """As the server takes it."""
    spec = {"job": {"run": "python train.py"}, "space": space, "minimize": "loss"}
    return StudySpec.model_validate(spec).space


def network(trial: Any) -> None:
    kind = trial.suggest_categorical("kind", ["forest", "net"])
    if kind == "forest":
        trial.suggest_int("trees", 10, 500, log=True)
        return
    for layer in range(trial.suggest_int("layers", 1, 3)):
        trial.suggest_int(f"units_{layer}", 16, 256)
    if trial.suggest_categorical("drop", [True, False]):
        trial.suggest_float("rate", 0, 0.9, step=0.1)
    trial.suggest_float("lr", 1e-4, 1e-1, log=True)


def either(trial: Any) -> None:
    a = trial.suggest_categorical("a", [1, 2, 3])
    b = trial.suggest_int("b", 0, 4, step=2)
    if a == 2 or b > 2:
        trial.suggest_float("p", 0, 1)
    if str(a) + "x" in ("1x", "2x") and not b % 4:
        trial.suggest_categorical("q", [True, 1, "1"])


def test_branches_and_loops_become_conditions() -> None:
    assert of_function(network) == {
        "kind": {"kind": "choice", "choices": ["forest", "net"]},
        "trees": {"kind": "int", "low": 10, "high": 500, "log": True,
                  "when": [{"kind": ["forest"]}]},
        "layers": {"kind": "int", "low": 1, "high": 3, "when": [{"kind": ["net"]}]},
        "units_0": {"kind": "int", "low": 16, "high": 256, "when": [{"kind": ["net"]}]},
        "drop": {"kind": "choice", "choices": [True, False], "when": [{"kind": ["net"]}]},
        "rate": {"kind": "float", "low": 0, "high": 0.9, "step": 0.1,
                 "when": [{"kind": ["net"], "drop": [True]}]},
        "lr": {"kind": "float", "low": 1e-4, "high": 0.1, "log": True,
               "when": [{"kind": ["net"]}]},
        "units_1": {"kind": "int", "low": 16, "high": 256,
                    "when": [{"kind": ["net"], "layers": [2, 3]}]},
        "units_2": {"kind": "int", "low": 16, "high": 256,
                    "when": [{"kind": ["net"], "layers": [3]}]},
    }  # fmt: skip


class Drawn:
    """A trial with values, as a script would meet it: says what the function asks for."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.asked: set[str] = set()

    def _value(self, name: str, *_: Any, **__: Any) -> Any:
        self.asked.add(name)
        return self.values[name]

    suggest_float = suggest_int = suggest_categorical = _value


@pytest.mark.parametrize("function", [network, either])
def test_what_is_drawn_is_what_the_function_asks_for(function: Any) -> None:
    space = checked(of_function(function))
    for seed in range(300):
        values = by_chance(space, random.Random(seed))
        trial = Drawn(values)
        function(trial)  # a KeyError: it asks for what was not drawn
        assert trial.asked == set(values)
        assert fits(space, values)


def test_a_grid_over_a_function_has_each_combination_once() -> None:
    def small(trial: Any) -> None:
        if trial.suggest_categorical("a", ["x", "y"]) == "y":
            trial.suggest_categorical("b", [1, 2])

    found = grid(checked(of_function(small)), None)
    assert found == [{"a": "x"}, {"a": "y", "b": 1}, {"a": "y", "b": 2}]


def test_values_that_are_never_looked_at_cost_nothing() -> None:
    calls = []

    def wide(trial: Any) -> dict[str, Any]:
        calls.append(1)
        return {f"p{at}": trial.suggest_categorical(f"p{at}", "abcdef") for at in range(100)}

    assert len(of_function(wide)) == 100
    assert len(calls) == 2, "one way, and once more to see that it is the same"


def looks_at_a_range(trial: Any) -> None:
    if trial.suggest_float("lr", 0, 1) > 0.5:
        trial.suggest_int("n", 1, 2)


def another_range(trial: Any) -> None:
    trial.suggest_int("n", 1, trial.suggest_categorical("most", [2, 3]))


def by_chance_other(trial: Any) -> None:
    trial.suggest_categorical("a", [1, 2]) == 1  # noqa: B015
    trial.suggest_int(f"n{random.random()}", 1, 2)


def too_many(trial: Any) -> None:
    for at in range(8):
        bool(trial.suggest_categorical(f"p{at}", list(range(4))))


def same_name(trial: Any) -> None:
    trial.suggest_int("n", 1, 2)
    trial.suggest_int("n", 1, 3)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (looks_at_a_range, "looks at lr, float:0..1: a way can depend on a choice"),
        (another_range, "n is int:1..2 on one way and int:1..3 on another"),
        (too_many, f"more than {space_program.MOST_WAYS} ways"),
        (same_name, "n is suggested twice, as int:1..2 and int:1..3"),
        (lambda trial: None, "suggests no parameter"),
        (lambda trial: trial.suggest_uniform("a", 1, 2), "trial.suggest_uniform: a trial has"),
        (lambda trial: trial.suggest_categorical("a", [None]), "a choice is a text"),
        (lambda trial: trial.suggest_int("a", 1.5, 2), "a: low is a whole number .found 1.5"),
    ],
)
def test_what_cannot_be_a_space_is_said_in_words(function: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        of_function(function)


def test_a_function_that_goes_by_chance_is_found_out() -> None:
    with pytest.raises(InvalidInput, match="when it is called again|on another"):
        of_function(by_chance_other)


def test_a_file_is_run_by_the_users_python(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("KINDS = ['a', 'b']\n")
    path = tmp_path / "search.py"
    path.write_text(
        "from beside import KINDS\n"
        "def space(trial):\n    trial.suggest_categorical('kind', KINDS)\n"
        "def broken(trial):\n    raise RuntimeError('on purpose')\n"
    )
    assert of_file(f"{path}:space", sys.executable) == of_file(
        "search.py:space", sys.executable, tmp_path
    )
    for where, words in (
        (f"{path}:other", "no function other in it; there is space, broken"),
        (f"{path}:broken", "on purpose"),
        (str(path), "is not FILE:FUNCTION"),
        (f"{tmp_path}/nowhere.py:space", "no such file"),
    ):
        with pytest.raises(InvalidInput, match=words):
            of_file(where, sys.executable)
