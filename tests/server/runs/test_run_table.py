from __future__ import annotations

import math
from typing import Any

import pytest
from runs_scene import PROJECT, Runs, run_id

from windlass.core.errors import InvalidInput
from windlass.server.runs import table
from windlass.server.runs.table import Asked


def page(runs: Runs, **asked: Any) -> dict[str, Any]:
    return runs.read(lambda conn: table.page(conn, PROJECT, Asked(**asked)))


def names(runs: Runs, **asked: Any) -> list[str]:
    return [item["name"] for item in page(runs, **asked)["items"]]


@pytest.fixture
def three(runs: Runs) -> Runs:
    """Three runs whose loss and rate differ, and one of another project."""
    for number, (lr, loss, optimizer) in enumerate(
        [("0.1", 0.5, "adam"), ("1e-2", 0.25, "sgd"), ("auto", math.nan, "3 layers")], start=1
    ):
        run = runs.run(number, name=f"n{number}", given={"lr": lr, "opt": optimizer},
                       marked={"team": f"t{number}"})  # fmt: skip
        runs.log(run, [(0, 0, 9.0), (1, 1, loss)], source="tqdm")
        runs.log(run, [(0, 0, number / 10)], key="acc")
    runs.run(9, name="foreign", project="e" * 32)
    runs.run(8, name="gone", state="deleted")
    return runs


def test_rows_come_newest_first_with_params_and_metrics(three: Runs) -> None:
    found = page(three)
    assert [item["name"] for item in found["items"]] == ["n3", "n2", "n1"]
    assert (found["total"], found["next"], found["more_columns"]) == (3, None, 0)
    first = found["items"][2]
    assert first["params"]["lr"] == {"value": "0.1", "source": ""}
    loss = first["metrics"]["loss"]
    assert (loss["last"], loss["step"], loss["min"], loss["max"], loss["count"]) == (
        0.5, 1, 0.5, 9.0, 2,
    )  # fmt: skip
    assert (loss["min_step"], loss["max_step"], loss["source"]) == (1, 0, "tqdm")
    assert found["items"][0]["metrics"]["loss"]["last"] == "NaN"


FILTERS = [
    ("metrics.loss < 0.3", ["n2"]),
    ("metrics.loss <= 0.5 and metrics.acc < 0.15", ["n1"]),
    ("metrics.loss = NaN", ["n3"]),
    ("max.loss > 8", ["n3", "n2", "n1"]),
    ("min.acc in (0.1, 0.3)", ["n3", "n1"]),
    ("params.lr = 0.01", ["n2"]),
    ("params.lr >= 0.01", ["n2", "n1"]),
    ("params.lr = '1e-2'", ["n2"]),
    ("params.lr = '0.01'", []),
    ("params.opt = 3", []),
    ("params.opt like '%layers'", ["n3"]),
    ("params.opt != adam", ["n3", "n2"]),
    ("tags.team not in (t1, t2)", ["n3"]),
    ("name ilike 'N%' and status = finished", ["n3", "n2", "n1"]),
    ("attributes.run_name = 'n2'", ["n2"]),
    ("started < 1970-01-01T00:16:40.002Z", ["n1"]),
    ("user = nobody", []),
]


def test_runs_are_chosen_by_a_filter(three: Runs) -> None:
    found = {text: names(three, filter=text) for text, _ in FILTERS}
    assert found == dict(FILTERS)


SORTS = [
    ("metrics.loss", ["n2", "n1", "n3"]),
    ("-metrics.loss", ["n1", "n2", "n3"]),
    ("-max.acc", ["n3", "n2", "n1"]),
    ("params.lr", ["n2", "n1", "n3"]),
    ("metrics.nobody", ["n3", "n2", "n1"]),
    ("name", ["n1", "n2", "n3"]),
    ("-started", ["n3", "n2", "n1"]),
]


def test_runs_are_sorted_by_anything(three: Runs) -> None:
    found = {text: names(three, sort=text) for text, _ in SORTS}
    assert found == dict(SORTS)


def test_a_table_is_filtered_and_sorted_by_the_same_things(three: Runs) -> None:
    asked = "metrics.loss < 0.6 and params.lr > 0.001"
    assert names(three, filter=asked, sort="metrics.loss") == ["n2", "n1"]
    assert names(three, filter=asked, sort="-params.lr") == ["n1", "n2"]


def test_pages_follow_each_other(three: Runs) -> None:
    found = page(three, sort="name", limit=2)
    assert (len(found["items"]), found["total"], found["next"]) == (2, 3, 2)
    assert names(three, sort="name", limit=2, offset=2) == ["n3"]
    assert names(three, ids=(run_id(1), run_id(9))) == ["n1"]


def test_columns_are_those_asked_for(three: Runs) -> None:
    [found] = page(three, ids=(run_id(1),), columns=("params.lr", "max.loss"))["items"]
    assert (set(found["params"]), set(found["metrics"])) == ({"lr"}, {"loss"})
    [bare] = page(three, ids=(run_id(1),), columns=("metrics.acc",))["items"]
    assert (bare["params"], set(bare["metrics"])) == ({}, {"acc"})


def test_without_columns_the_most_common_come_and_the_rest_is_counted(
    three: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "GUESSED", 1)
    three.log(run_id(1), [(0, 0, 1.0)], key="a-rare-one")
    found = page(three)
    assert found["more_columns"] == 3
    assert set(found["items"][2]["metrics"]) == {"acc"}
    assert set(page(three, columns=("*",))["items"][2]["metrics"]) == {"acc", "a-rare-one", "loss"}


def test_an_answer_is_bounded(three: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_CELLS", 5)
    with pytest.raises(InvalidInput, match="3 runs have 12 values; an answer has at most 5"):
        page(three, columns=("*",))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"filter": "metric.loss < low"}, "a number (found 'low')"),
    ({"filter": "metrics.loss like 'x'"}, "is a number: no like"),
    ({"filter": "metrics.loss > nan"}, "NaN is only"),
    ({"filter": "models.x = 1"}, "no kind 'models'; known: metrics"),
    ({"filter": "age > 3"}, "no 'age'; known"),
    ({"filter": "started > soon"}, "an ISO-8601 time"),
    ({"filter": "started like '2%'"}, "is a time"),
    ({"sort": "loss"}, "sort: no 'loss'"),
    ({"columns": ("lr",)}, "columns: no 'lr'"),
]


def test_what_is_wrong_names_the_choices(runs: Runs) -> None:
    for asked, words in WRONG:
        with pytest.raises(InvalidInput) as caught:
            page(runs, **asked)
        assert words in caught.value.message
