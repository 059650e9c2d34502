"""What one run may have over MLflow's wire, and answers that come in pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

API = "/api/2.0/mlflow/"
POINTS = 25_010


def made(wire: httpx.Client) -> str:
    answer = wire.post(API + "runs/create", json={"experiment_id": "0", "start_time": 1})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["run"]["info"]["run_id"])


def batch(wire: httpx.Client, run_id: str, **fields: Any) -> httpx.Response:
    return wire.post(API + "runs/log-batch", json={"run_id": run_id, **fields})


def test_a_history_comes_in_pages_whether_they_are_asked_for_or_not(
    wire: httpx.Client, newest: Path, script: Callable[..., str]
) -> None:
    run_id = made(wire)
    for first in range(0, POINTS, 1000):
        points = [
            {"key": "loss", "value": at, "timestamp": at + 1, "step": at}
            for at in range(first, min(POINTS, first + 1000))
        ]
        assert batch(wire, run_id, metrics=points).status_code == 200
    seen: list[int] = []
    query: dict[str, Any] = {"run_id": run_id, "metric_key": "loss"}
    while True:
        answer = wire.get(API + "metrics/get-history", params=query).json()
        assert len(answer["metrics"]) <= 25_000
        seen += [each["step"] for each in answer["metrics"]]
        if "next_page_token" not in answer:
            break
        query["page_token"] = answer["next_page_token"]
    assert seen == list(range(POINTS))
    text = (
        "import json, mlflow\n"
        f"found = mlflow.MlflowClient().get_metric_history({run_id!r}, 'loss')\n"
        "print(json.dumps([len(found), found[-1].step]))\n"
    )
    told = script(newest, text).strip().splitlines()[-1]
    assert json.loads(told) == [POINTS, POINTS - 1], "their client goes on by itself"


def test_keys_parameters_and_tags_past_the_most_are_refused_in_words(wire: httpx.Client) -> None:
    run_id = made(wire)

    def metrics(first: int, count: int) -> list[dict[str, Any]]:
        return [
            {"key": f"k{at}", "value": 1, "timestamp": 1, "step": 1}
            for at in range(first, first + count)
        ]

    for first in range(0, 10_000, 1000):
        assert batch(wire, run_id, metrics=metrics(first, 1000)).status_code == 200
    over = batch(wire, run_id, metrics=metrics(9_999, 2))
    assert over.status_code == 400
    assert "has 10000 metric keys, the most that one may have: 'k10000'" in over.json()["message"]
    one = {"run_id": run_id, "key": "k10000", "value": 1, "timestamp": 2}
    assert wire.post(API + "runs/log-metric", json=one).status_code == 400
    known = {**one, "key": "k7", "value": 2}
    assert wire.post(API + "runs/log-metric", json=known).status_code == 200, (
        "what is there goes on"
    )
    for first in range(0, 10_000, 100):
        pairs = [{"key": f"p{at}", "value": "x"} for at in range(first, first + 100)]
        assert batch(wire, run_id, params=pairs).status_code == 200
    over = wire.post(API + "runs/log-parameter", json={"run_id": run_id, "key": "q", "value": "1"})
    assert over.status_code == 400 and "10000 parameters" in over.json()["message"]
    same = wire.post(
        API + "runs/log-parameter", json={"run_id": run_id, "key": "p0", "value": "x"}
    )
    assert same.status_code == 200
