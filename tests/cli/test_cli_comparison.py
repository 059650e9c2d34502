from __future__ import annotations

import math
from typing import Any

import pytest

from windlass.cli.comparison import Side, compare, grid, latex, markdown
from windlass.core.goals import direction_of, parse_goal


def side(name: str, params: dict[str, str], goal: str | None = None, **metrics: float) -> Side:
    told: dict[str, dict[str, Any]] = {
        key: {"last": value, "min": value - 1, "max": value + 1} for key, value in metrics.items()
    }
    return Side(name * 8, name, params, told, goal, {"state": "done"})


def test_only_params_that_differ_are_shown_unless_all_are_wanted() -> None:
    sides = [side("a", {"lr": "1", "seed": "7"}), side("b", {"lr": "2", "seed": "7"}),
             side("c", {"lr": "1", "seed": "7", "extra": "x"})]  # fmt: skip
    assert [row.name for row in compare(sides)] == ["state", "extra", "lr"]
    assert [row.name for row in compare(sides, everything=True)] == [
        "state", "extra", "lr", "seed",
    ]  # fmt: skip


def test_changes_are_from_the_baseline_and_the_best_is_marked() -> None:
    rows = compare([side("a", {}, loss=2.0), side("b", {}, loss=1.0), side("c", {}, loss=3.0)])
    last = next(row for row in rows if row.name == "loss")
    assert [cell.change for cell in last.cells] == ["", "-50.0%", "+50.0%"]
    assert [cell.better for cell in last.cells] == [None, True, False]
    assert [cell.best for cell in last.cells] == [False, True, False]


def test_the_goal_says_which_way_is_better() -> None:
    sides = [side("a", {}, "max oddity", oddity=1.0), side("b", {}, oddity=2.0)]
    rows = {row.name: row for row in compare(sides)}
    assert set(rows) == {"state", "oddity", "oddity (max)"}
    assert rows["oddity"].cells[1].better is True


def test_a_metric_of_which_nobody_knows_the_way_has_no_best() -> None:
    rows = compare([side("a", {}, oddity=0.0), side("b", {}, oddity=2.0)])
    assert [row.name for row in rows] == ["state", "oddity"]
    assert rows[1].cells[1].change == "+2" and rows[1].cells[1].better is None


def test_a_value_that_is_no_number_compares_with_nothing() -> None:
    rows = compare([side("a", {}, loss=math.nan), side("b", {}, loss=1.0), side("c", {})])
    assert [cell.text for cell in rows[1].cells] == ["NaN", "1", ""]
    assert [cell.change for cell in rows[1].cells] == ["", "", ""]


def test_many_jobs_have_a_line_each() -> None:
    sides = [side(f"job{at}", {"lr": str(at)}) for at in range(8)]
    head, lines = grid(sides, compare(sides))
    assert head == ["job", "state", "lr"] and len(lines) == 8


def test_forms_for_notes_and_papers_are_escaped() -> None:
    head, lines = ["", "a|b"], [["lr_0 50%", "x|y"]]
    assert markdown(head, lines) == ["|  | a\\|b |", "| --- | ---: |", "| lr_0 50% | x\\|y |"]
    assert r"  lr\_0 50\% & x|y \\" in latex(head, lines)


@pytest.mark.parametrize(
    ("key", "direction"),
    [
        ("loss", "min"), ("train/loss", "min"), ("valLoss", "min"), ("val_acc", "max"),
        ("eval_top1", "max"), ("lr", None), ("epoch", None), ("rmse", "min"),
    ],
)  # fmt: skip
def test_a_name_says_which_way_is_better(key: str, direction: str | None) -> None:
    assert direction_of(key) == direction


def test_a_goal_goes_before_the_name_and_is_checked() -> None:
    assert direction_of("loss", "max loss") == "max"
    assert parse_goal("min a key") == ("min", "a key")
    with pytest.raises(ValueError, match="min KEY"):
        parse_goal("loss")
