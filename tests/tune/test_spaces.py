"""What parameters may be, and how values are drawn from it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from study_scene import spec

from windlass.core.spaces import Dimension
from windlass.core.studies import StudySpec, trial_job
from windlass.tune.draw import by_chance, chance, explore, fits, grid, marks, to_unit

CONDITIONAL = {
    "optimizer": ["sgd", "adam"],
    "momentum": {"range": "float:0..1", "when": {"optimizer": "sgd"}},
    "layers": "int:1..4",
    "width": {"range": "int:32..128/32", "when": {"layers": [2, 3, 4]}},
}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("log:1e-4..1e-1", {"kind": "float", "low": 1e-4, "high": 0.1, "log": True}),
        ("float:-1..1", {"kind": "float", "low": -1.0, "high": 1.0, "log": False}),
        ("float:0..1/0.25", {"kind": "float", "step": 0.25}),
        ("int:1..6", {"kind": "int", "low": 1.0, "high": 6.0}),
        ("logint:1..1024", {"kind": "int", "log": True}),
        ("sgd,adam", {"kind": "choice", "choices": ("sgd", "adam")}),
        ("1,2.5,true,x", {"kind": "choice", "choices": (1, 2.5, True, "x")}),
        ([1, 2], {"kind": "choice", "choices": (1, 2)}),
        (3, {"kind": "choice", "choices": (3,)}),
    ],
)  # fmt: skip
def test_a_dimension_is_written_in_one_word(text: Any, fields: dict[str, Any]) -> None:
    found = Dimension.model_validate(text)
    assert {name: getattr(found, name) for name in fields} == fields
    assert Dimension.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "text",
    ["log:0..1", "int:1..2.5", "float:2..1", "int:a..b", "float:1", "log:1..10/2", "float:0..inf",
     [], {"range": "float:0..1/0"}, None, "int:0..1e300", [1, 1]],
)  # fmt: skip
def test_a_dimension_that_makes_no_sense_is_refused(text: Any) -> None:
    with pytest.raises(ValidationError):
        Dimension.model_validate(text)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_is_drawn_fits_its_space_and_is_drawn_again_alike(seed: int, number: int) -> None:
    space = spec(space={**CONDITIONAL, "lr": "log:1e-5..1", "n": "logint:1..1000"}).space
    values = by_chance(space, chance(seed, number))
    assert values == by_chance(space, chance(seed, number))
    assert fits(space, values)
    assert ("momentum" in values) == (values["optimizer"] == "sgd")
    assert ("width" in values) == (values["layers"] > 1)
    assert all(0 <= to_unit(space[name], value) <= 1 for name, value in values.items())
    changed = explore(space, values, 0.25, chance(seed, number, "explore"))
    assert fits(space, changed)


def test_a_grid_has_every_combination_once_and_none_of_what_does_not_count() -> None:
    found = grid(spec(space={**CONDITIONAL, "momentum": {"range": [0.0, 0.9], "when": {
        "optimizer": "sgd"}}}).space, None)  # fmt: skip
    assert len(found) == (2 + 1) * (1 + 3 * 4)
    assert len({tuple(sorted(each.items())) for each in found}) == len(found)


def test_a_range_without_steps_is_cut_into_points() -> None:
    assert marks(Dimension.model_validate("log:1..100"), 3) == pytest.approx([1, 10, 100])
    assert marks(Dimension.model_validate("int:1..3"), 5) == [1, 2, 3]
    assert marks(Dimension.model_validate("float:0..1/0.5"), 5) == [0, 0.5, 1]
    with pytest.raises(ValidationError, match="a grid needs steps"):
        spec(sampler="grid", space={"x": "float:0..1"})


def command(study: StudySpec, **params: Any) -> list[str]:
    return list(trial_job(study, "study", 3, params).command("worker"))


def test_parameters_reach_the_command_where_it_names_them_or_at_its_end() -> None:
    space = {"lr": "log:1e-4..1", "flag": [True, False], "x": "float:-1..1"}
    named = spec(job={"run": "train --rate=${lr} -v"}, space=space)
    assert command(named, lr=0.1, flag=True, x=-0.5) == [
        "train", "--rate=0.1", "-v", "--flag", "true", "--x=-0.5",
    ]  # fmt: skip
    hydra = spec(job={"run": "train"}, space=space, give="assign")
    assert command(hydra, lr=0.1) == ["train", "lr=0.1"]
    only = spec(job={"run": "train"}, space=space, give="environment")
    assert command(only, lr=0.1) == ["train"]
    assert trial_job(only, "study", 3, {"lr": 0.1}).params == {"lr": 0.1}
    assert trial_job(only, "study", 3, {"lr": 0.1}).name == "study-3"


def test_a_gang_gets_its_parameters_in_every_role() -> None:
    job = {"roles": {"ps": {"run": "serve"}, "worker": {"run": "train", "count": 2}}}
    made = trial_job(spec(job=job), "study", 0, {"x": 0.5})
    assert made.command("ps") == ("serve", "--x", "0.5")
    assert made.command("worker") == ("train", "--x", "0.5")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"job": {"run": "x", "wrokers": 2}}, "job.wrokers"),
        ({"job": {"run": "x", "name": "mine"}}, "job.name"),
        ({"space": {}}, "space"),
        ({"space": {"a": {"range": "int:1..2", "when": {"b": 1}}, "b": "int:1..2"}}, "before it"),
        ({"space": {"b": [1], "a": {"range": "int:1..2", "when": {"b": 7}}}}, "never 7"),
        ({"job": {"run": "x ${a}"}, "space": {"b": [1], "a": {"range": [2], "when": {"b": 1}}}},
         "params"),
        ({"pruner": "pbt"}, "interval"),
        ({"pruner": "asha", "objectives": [{"metric": "a"}, {"metric": "b"}]}, "one objective"),
        ({"maximize": "a", "objectives": [{"metric": "b"}]}, "not both"),
        ({"constraints": [{"metric": "a"}]}, "least"),
        ({"trials": 0}, "trials"),
        ({"unknown": 1}, "unknown"),
    ],
)  # fmt: skip
def test_a_study_that_makes_no_sense_is_refused_by_name(fields: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        spec(**fields)
