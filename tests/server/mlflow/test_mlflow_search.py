"""`runs/search`: the filter language, the order and the pages are MLflow's."""

from __future__ import annotations

import random
import time

import httpx
import pytest
from comparing import Pair

RUNS = [
    # name, metrics, params, tags
    ("a", {"loss": 0.5, "acc": 0.9}, {"lr": "0.1", "net": "ResNet"}, {"team": "blue"}),
    ("b", {"loss": 0.25, "acc": "NaN"}, {"lr": "0.01", "net": "resnet50"}, {"team": "Blue"}),
    ("c", {"loss": "NaN"}, {"lr": "0.1"}, {"a b": "x"}),
    ("d", {"acc": 0.1}, {"net": "vgg_16"}, {"team": "red"}),
    ("e", {}, {}, {}),
]

LENIENT = ("params.lr = '0.1' and", "and", "metrics.loss < 1 params.lr = '1'")
"""No mistakes to theirs, which reads over a missing or a dangling `and`."""


@pytest.fixture(scope="module")
def searched(pair: Pair) -> Pair:
    """An experiment {searched} with a few runs on both servers."""
    pair.call("POST", "experiments/create", {"name": "searched"},
              keep={"searched": "experiment_id"})  # fmt: skip
    for place, (name, metrics, params, tags) in enumerate(RUNS):
        pair.call("POST", "runs/create", {
            "experiment_id": "{searched}", "start_time": 1000 + place, "run_name": name,
        }, keep={f"run_{name}": "run.info.run_id"})  # fmt: skip
        pair.call("POST", "runs/log-batch", {
            "run_id": f"{{run_{name}}}",
            "metrics": [
                {"key": key, "value": value, "timestamp": 5} for key, value in metrics.items()
            ],
            "params": [{"key": key, "value": value} for key, value in params.items()],
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        })  # fmt: skip
    pair.call("POST", "runs/update", {"run_id": "{run_b}", "status": "FINISHED", "end_time": 5000})
    pair.call("POST", "runs/delete", {"run_id": "{run_e}"})
    return pair


@pytest.mark.parametrize("text", [
    "", "metrics.loss < 1", "metrics.loss <= 0.25", "metrics.loss != 0.5", "metric.acc = 0.9",
    "metrics.loss > -1 and params.lr = '0.1'", 'params.lr = "0.1" AND tags.team = "blue"',
    "params.net LIKE 'Res%'", "params.net ILIKE 'res%'", "params.net LIKE 'vgg\\_%'",
    "params.net LIKE '%1_'", "tags.team != 'red'", "tags.`a b` = 'x'", 'tags."a b" = "x"',
    "attributes.status = 'FINISHED'", "attributes.run_name = 'a'", "run_name LIKE '%'",
    "attributes.start_time > 1001", "start_time <= 1001 and end_time > 1",
    "attributes.run_id IN ('{run_a}', '{run_c}')", "run_id NOT IN ('{run_a}')",
    "attributes.`Run name` = 'd'", "params.lr IS NULL", "params.lr IS NOT NULL",
    "tags.team IS NULL and metrics.loss != 3", "metrics.nothing > 1", "params.nothing != '1'",
    "attributes.created > 1002", "metrics.`loss` < 1",
], ids=str)  # fmt: skip
def test_filters_choose_the_same_runs(searched: Pair, text: str) -> None:
    searched.call("POST", "runs/search", {"experiment_ids": ["{searched}"], "filter": text},
                  status=200)  # fmt: skip


@pytest.mark.parametrize("text", [
    "metrics.loss < 'a'", "params.lr = 0.1", "tags.team = blue", "loss < 1", "colour.a = 'b'",
    "metrics.loss LIKE 'a'", "params.lr > '1'", "attributes.status > 'a'", "metrics.loss <",
    "metrics.loss < 1 or metrics.loss > 2", "metrics.loss < 1 params.lr = '1'", "and",
    "attributes.run_name IN ('a')", "metrics.loss IS NULL", "attributes.start_time = 'x'",
    "dataset.colour = 'a'", "'a' = 'b'", "params.lr = '0.1' and", "(metrics.loss < 1)",
], ids=str)  # fmt: skip
def test_bad_filters_are_refused(searched: Pair, text: str) -> None:
    body = {"experiment_ids": ["{searched}"], "filter": text}
    ours = searched.ours.call("POST", "/api/2.0/mlflow/runs/search", body, None)
    theirs = searched.real.call("POST", "/api/2.0/mlflow/runs/search", body, None)
    assert ours.status == 400 and ours.value["error_code"] == "INVALID_PARAMETER_VALUE", ours
    if text not in LENIENT:
        assert theirs.status in (400, 500), theirs


@pytest.mark.parametrize("order", [
    ["metrics.loss"], ["metrics.loss DESC"], ["metrics.acc ASC", "params.lr DESC"],
    ["params.net"], ["tags.team desc"], ["tags.`a b`"], ["attributes.start_time"],
    ["attribute.run_name DESC"], ["end_time"], ["status", "metrics.loss"], ["start_time ASC"],
    ["created DESC"],
], ids=str)  # fmt: skip
def test_orders_are_the_same(searched: Pair, order: list[str]) -> None:
    searched.call("POST", "runs/search", {
        "experiment_ids": ["{searched}"], "order_by": order, "run_view_type": "ALL",
    }, status=200)  # fmt: skip


def test_bad_orders_are_refused(searched: Pair) -> None:
    for order in (["metrics.loss up"], ["colour"], ["a b c"], ["metrics.loss", "metrics.loss"]):
        answer = searched.ours.call(
            "POST", "/api/2.0/mlflow/runs/search",
            {"experiment_ids": ["{searched}"], "order_by": order}, None,
        )  # fmt: skip
        assert answer.status == 400, (order, answer)


@pytest.mark.parametrize("view", ["ACTIVE_ONLY", "DELETED_ONLY", "ALL"])
def test_the_deleted_are_found_where_they_are_asked_for(searched: Pair, view: str) -> None:
    searched.call("POST", "runs/search", {"experiment_ids": ["{searched}"], "run_view_type": view})
    searched.call("POST", "runs/search", {"experiment_ids": [], "run_view_type": view})


def test_pages_go_on_where_the_last_one_ended(searched: Pair) -> None:
    body = {"experiment_ids": ["{searched}"], "max_results": 3, "order_by": ["run_name"]}
    first = searched.call("POST", "runs/search", body, status=200)
    token = first.value["next_page_token"]
    searched.call("POST", "runs/search", {**body, "page_token": token}, status=200)
    for wrong in ("!", "bm9wZQ==", "W10="):
        answer = searched.ours.call(
            "POST", "/api/2.0/mlflow/runs/search", {**body, "page_token": wrong}, None
        )
        assert answer.status == 400, answer


def test_experiments_are_searched_alike(searched: Pair) -> None:
    for name, tag in (("exp-1", "x"), ("exp-2", "y"), ("Exp-3", "x")):
        searched.call("POST", "experiments/create",
                      {"name": name, "tags": [{"key": "t", "value": tag}]},
                      keep={name.lower().replace("-", "_"): "experiment_id"})  # fmt: skip
    for text in (
        "name = 'exp-1'", "name LIKE 'exp-%'", "name ILIKE 'exp-%'", "tags.t = 'x'",
        "name LIKE '%xp-%' and tags.t != 'x'", "tag.t LIKE 'y'", "attribute.name = 'exp-2'",
        "tags.t IS NOT NULL and name != 'exp-1'", "experiment_id = '{exp_1}'",
        "experiment_id IN ('{exp_1}', '{exp_2}')", "name LIKE 'exp-%' and creation_time > 5",
    ):  # fmt: skip
        for order in (["name"], ["name DESC"], ["creation_time ASC", "name"]):
            body = {"max_results": 10, "filter": text, "order_by": order}
            searched.call("POST", "experiments/search", body, status=200)


def test_a_search_over_many_pages_finds_each_run_once_and_in_order(wire: httpx.Client) -> None:
    api = "/api/2.0/mlflow/"
    name = f"many-{time.time_ns()}"
    made = wire.post(api + "experiments/create", json={"name": name}).json()["experiment_id"]
    chance = random.Random(1)
    wanted = set()
    for place in range(120):
        run = wire.post(api + "runs/create", json={"experiment_id": made, "start_time": place})
        run_id = run.json()["run"]["info"]["run_id"]
        loss = chance.random()
        wire.post(api + "runs/log-batch", json={
            "run_id": run_id, "metrics": [{"key": "loss", "value": loss, "timestamp": 1}],
            "params": [{"key": "lr", "value": str(place % 3)}],
        })  # fmt: skip
        if loss < 0.5 and place % 3 == 1:
            wanted.add(run_id)
    body = {
        "experiment_ids": [made], "filter": "metrics.loss < 0.5 and params.lr = '1'",
        "order_by": ["metrics.loss ASC"], "max_results": 20,
    }  # fmt: skip
    found: list[str] = []
    losses: list[float] = []
    while True:
        page = wire.post(api + "runs/search", json=body).json()
        found += [run["info"]["run_id"] for run in page.get("runs", ())]
        losses += [run["data"]["metrics"][0]["value"] for run in page.get("runs", ())]
        if "next_page_token" not in page:
            break
        body["page_token"] = page["next_page_token"]
    assert set(found) == wanted and len(found) == len(wanted) and losses == sorted(losses)
