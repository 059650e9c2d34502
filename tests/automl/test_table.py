"""Tables: read, judged in words, cut into columns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from windlass.automl import families, shipping, table
from windlass.automl.table import Unfit
from windlass.core.spaces import Dimension


def made(folder: Path, head: str, *rows: str) -> table.Table:
    path = folder / "table.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return table.read(path)


def test_columns_are_numbers_or_categories_and_what_tells_nothing_is_left_out(tmp_path) -> None:
    rows = [f"{at},{'red' if at % 2 else ''},same,name-{at},{at * 1.5},NA" for at in range(60)]
    found, problem = table.judge(made(tmp_path, "a,colour,fix,id,y,none", *rows), "y")
    assert problem.task == "regression" and "60 different numbers" in problem.why
    assert problem.numbers == ("a",) and problem.categories == ("colour",)
    assert [note.split()[0] for note in problem.notes] == ["fix", "id", "none"]
    asked = {"numbers": ["a", "gone"], "categories": ["colour"]}
    [[a, gone, colour]] = table.features(asked, [{"a": " 1.5", "colour": None}])
    assert a == 1.5 and math.isnan(gone) and colour == ""


def test_the_task_is_guessed_from_the_target_and_may_be_said(tmp_path) -> None:
    whole = made(tmp_path, "x;y", *[f"{at};{at % 3}" for at in range(30)])
    _, problem = table.judge(whole, "y")
    assert problem.task == "classification" and problem.classes == ("0", "1", "2")
    assert table.judge(whole, "y", "regression")[1].classes == ()
    words = made(tmp_path, "x,y", *[f"{at},{'yes' if at % 2 else 'no'}" for at in range(30)], "1,")
    kept, problem = table.judge(words, "y")
    assert problem.classes == ("no", "yes") and len(kept.rows) == 30
    assert problem.notes == ("1 rows without y are left out",)


@pytest.mark.parametrize(
    ("text", "task", "words"),
    [
        ("", "", "is empty"),
        ("x,y\n", "", "a head and no rows"),
        ("x,z\n" + "1,2\n" * 20, "", "no column 'y': there are x, z"),
        ("x,x,y\n1,2,3\n", "", "'x' stands twice"),
        ("x,y\n1,2\n1,2,3\n", "", "line 3: 3 cells where the head has 2"),
        ("x,y\n1,2\n", "", "at least 10 are needed"),
        ("x,y\n" + "1,a\n2,a\n" * 10, "", "always 'a': there is nothing to tell apart"),
        ("x,y\n" + "1,a\n2,b\n" * 10, "regression", "such as 'a'): no regression"),
        ("y\n" + "1\n2\n" * 10, "", "no column to learn y from"),
    ],
)
def test_what_cannot_be_learnt_from_is_said_in_words(tmp_path, text, task, words) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(Unfit) as caught:
        table.judge(table.read(path), "y", task)
    assert words in str(caught.value)


def test_the_space_has_each_familys_parameters_only_where_it_is_chosen() -> None:
    space = families.space_of(["linear", "forest"])
    assert space["family"] == ["linear", "forest"]
    assert all(each["when"] for name, each in space.items() if name != "family")
    for written in families.space_of(families.SPACES).values():
        Dimension.model_validate(written)


def test_what_travels_needs_no_windlass() -> None:
    for path, text in shipping.model_files().items():
        compile(text, path, "exec")
        assert b"windlass." not in text.replace(b"`windlass.predictions`", b"")
