"""The same calls to a real MLflow server and to ours get the same answers, errors included."""

from __future__ import annotations

import pytest
from comparing import Pair

from windlass.server.mlflow.endpoints import TRACKING

ELSEWHERE = {
    ("GET", "/version"): "tests/server/mlflow/test_mlflow_rights.py",
    ("GET", "/api/3.0/mlflow/server-info"): "what we have, not what they have",
}
"""Endpoints that are not compared, and why."""


def metric(key: str, value: object, at_ms: int = 1000, **more: object) -> dict[str, object]:
    return {"key": key, "value": value, "timestamp": at_ms, **more}


@pytest.fixture(scope="module")
def experiment(pair: Pair) -> Pair:
    """An experiment of the tests, under the name {experiment}."""
    pair.call("POST", "experiments/create", {"name": "compared"},
              keep={"experiment": "experiment_id"})  # fmt: skip
    return pair


def new_run(pair: Pair, name: str = "run", **more: object) -> Pair:
    body = {"experiment_id": "{experiment}", "start_time": 5, "run_name": "one", **more}
    pair.call("POST", "runs/create", body, keep={name: "run.info.run_id"})
    return pair


def test_experiments_are_made_found_renamed_and_tagged(pair: Pair) -> None:
    pair.call("GET", "experiments/get", query={"experiment_id": "0"})
    pair.call("GET", "experiments/get-by-name", query={"experiment_name": "Default"})
    tags = [{"key": "team", "value": "blue"}]
    pair.call("POST", "experiments/create", {"name": "first", "tags": tags},
              keep={"first": "experiment_id"})  # fmt: skip
    pair.call("GET", "experiments/get", query={"experiment_id": "{first}"})
    pair.call("GET", "experiments/get-by-name", query={"experiment_name": "first"})
    pair.call("POST", "experiments/set-experiment-tag",
              {"experiment_id": "{first}", "key": "team", "value": "red"})  # fmt: skip
    pair.call("POST", "experiments/set-experiment-tag",
              {"experiment_id": "{first}", "key": "more", "value": ""})  # fmt: skip
    pair.call("POST", "experiments/delete-experiment-tag",
              {"experiment_id": "{first}", "key": "more"})  # fmt: skip
    pair.call("POST", "experiments/update", {"experiment_id": "{first}", "new_name": "second"})
    pair.call("GET", "experiments/get", query={"experiment_id": "{first}"})


@pytest.mark.parametrize("call", [
    ("GET", "experiments/get", {"experiment_id": "77"}),
    ("GET", "experiments/get", {"experiment_id": "x"}),
    ("GET", "experiments/get", {"other": "1"}),
    ("GET", "experiments/get-by-name", {"experiment_name": "nobody's"}),
    ("GET", "experiments/get-by-name", {"experiment_name": ""}),
    ("POST", "experiments/create", {}),
    ("POST", "experiments/create", {"name": ""}),
    ("POST", "experiments/create", {"name": 5}),
    ("POST", "experiments/create", {"name": "Default"}),
    ("POST", "experiments/create", {"name": "n" * 501}),
    ("POST", "experiments/create", {"name": "a", "tags": "no"}),
    ("POST", "experiments/update", {"experiment_id": "{experiment}"}),
    ("POST", "experiments/update", {"experiment_id": "77", "new_name": "x"}),
    ("POST", "experiments/delete", {"experiment_id": "77"}),
    ("POST", "experiments/delete", {}),
    ("POST", "experiments/restore", {"experiment_id": "{experiment}"}),
    ("POST", "experiments/set-experiment-tag", {"experiment_id": "77", "key": "a", "value": ""}),
    ("POST", "experiments/set-experiment-tag", {"experiment_id": "{experiment}"}),
    ("POST", "experiments/delete-experiment-tag", {"experiment_id": "{experiment}", "key": "no"}),
    ("GET", "experiments/search", {"max_results": 0}),
    ("GET", "experiments/search", {"max_results": 50001}),
    ("GET", "experiments/search", {"max_results": 5, "filter": "name > 5"}),
    ("GET", "experiments/search", {"max_results": 5, "filter": "colour = 'a'"}),
    ("GET", "experiments/search", {"max_results": 5, "page_token": "!"}),
    ("GET", "experiments/search", {"max_results": 5, "order_by": "tags.a"}),
    ("POST", "runs/create", {"experiment_id": "77"}),
    ("POST", "runs/create", {"experiment_id": "0", "run_name": "a",
                             "tags": [{"key": "mlflow.runName", "value": "b"}]}),
    ("GET", "runs/get", {"run_id": "0" * 32}),
    ("GET", "runs/get", {"run_uuid": "0" * 32}),
    ("GET", "runs/get", {"other": "1"}),
    ("POST", "runs/update", {"run_id": "0" * 32, "status": "FINISHED"}),
    ("POST", "runs/delete", {"run_id": "0" * 32}),
    ("POST", "runs/restore", {"run_id": "0" * 32}),
    ("POST", "runs/log-metric", {"run_id": "0" * 32, **metric("a", 1)}),
    ("POST", "runs/log-parameter", {"run_id": "0" * 32, "key": "a", "value": "b"}),
    ("POST", "runs/set-tag", {"run_id": "0" * 32, "key": "a", "value": "b"}),
    ("POST", "runs/delete-tag", {"run_id": "0" * 32, "key": "a"}),
    ("POST", "runs/log-batch", {"run_id": "0" * 32}),
    ("POST", "runs/log-batch", {}),
    ("POST", "runs/search", {"experiment_ids": ["x"]}),
    ("POST", "runs/search", {"experiment_ids": ["0"], "max_results": 50001}),
    ("POST", "runs/search", {"experiment_ids": ["0"], "max_results": -1}),
    ("GET", "metrics/get-history", {"run_id": "0" * 32, "metric_key": "a"}),
    ("GET", "metrics/get-history", {"run_id": "0" * 32}),
    ("GET", "logged-models/m-nothing", {}),
    ("PATCH", "logged-models/m-nothing/tags", {"tags": []}),
    ("POST", "logged-models", {}),
    ("POST", "logged-models", {"experiment_id": "77"}),
    ("POST", "logged-models/search", {}),
    ("POST", "runs/log-inputs", {"run_id": "0" * 32}),
    ("POST", "runs/outputs", {"run_id": "0" * 32, "models": [{"model_id": "m-a", "step": 1}]}),
], ids=lambda call: f"{call[1]} {call[2]}"[:70])  # fmt: skip
def test_mistakes_are_told_alike(experiment: Pair, call: tuple[str, str, dict]) -> None:
    method, path, fields = call
    if method == "GET":
        experiment.call(method, path, query=fields)
    else:
        experiment.call(method, path, fields)


def test_a_run_lives_from_its_creation_to_its_end(experiment: Pair) -> None:
    pair = new_run(experiment, tags=[{"key": "a", "value": "b"}], user_id="somebody")
    pair.call("GET", "runs/get", query={"run_id": "{run}"})
    pair.call("POST", "runs/update", {"run_id": "{run}", "status": "FAILED", "end_time": 9,
                                      "run_name": "two"})  # fmt: skip
    pair.call("POST", "runs/update", {"run_id": "{run}", "status": "SCHEDULED"})
    pair.call("POST", "runs/set-tag", {"run_id": "{run}", "key": "mlflow.runName", "value": "3"})
    pair.call("POST", "runs/set-tag", {"run_id": "{run}", "key": "x", "value": "1"})
    pair.call("POST", "runs/set-tag", {"run_id": "{run}", "key": "x", "value": "2"})
    pair.call("POST", "runs/delete-tag", {"run_id": "{run}", "key": "a"})
    pair.call("POST", "runs/delete-tag", {"run_id": "{run}", "key": "a"}, status=404)
    pair.call("GET", "runs/get", query={"run_id": "{run}"})
    pair.call("POST", "runs/delete", {"run_id": "{run}"})
    pair.call("GET", "runs/get", query={"run_id": "{run}"})
    pair.call("POST", "runs/log-metric", {"run_id": "{run}", **metric("a", 1)}, status=400)
    pair.call("POST", "runs/set-tag", {"run_id": "{run}", "key": "x", "value": "3"}, status=400)
    pair.call("POST", "runs/update", {"run_id": "{run}", "status": "RUNNING"}, status=400)
    pair.call("POST", "runs/restore", {"run_id": "{run}"})
    pair.call("POST", "runs/log-metric", {"run_id": "{run}", **metric("a", 1)})


def test_metrics_keep_their_values_and_the_latest_is_the_one_of_the_last_step(
    experiment: Pair,
) -> None:
    pair = new_run(experiment)
    for value, at_ms, step in (
        (1.5, 1000, 0), (2, 1001, 1), ("NaN", 1002, 2), ("Infinity", 1003, 3),
        ("-Infinity", 1004, 4), (-0.0, 1005, 5), (1e300, 1006, 2), ("7", "1007", "6"),
        (7, 1007, 6), (8, 1007, 6), (3, 1008, -4), (9, 900, 6),
    ):  # fmt: skip
        body = {"run_id": "{run}", **metric("loss", value, at_ms, step=step)}  # type: ignore[arg-type]
        pair.call("POST", "runs/log-metric", body)
        pair.call("GET", "runs/get", query={"run_id": "{run}"})
    history = {"run_id": "{run}", "metric_key": "loss"}
    found = pair.call("GET", "metrics/get-history", query=history)
    assert len(found.value["metrics"]) == 11  # one of them came twice
    pair.call("GET", "metrics/get-history", query={**history, "max_results": 4})
    pair.call("GET", "metrics/get-history", query={**history, "max_results": 0}, status=400)
    token = pair.call("GET", "metrics/get-history", query={**history, "max_results": 4})
    more = {**history, "max_results": 4, "page_token": token.value["next_page_token"]}
    pair.call("GET", "metrics/get-history", query=more)
    pair.call("GET", "metrics/get-history", query={**history, "metric_key": "none"})


@pytest.mark.parametrize("fields", [
    {}, {"key": "a"}, {"key": "a", "value": 1}, {"key": "", "value": 1, "timestamp": 1},
    metric("a", None), metric("a", "x"), metric("a", [1]), metric("a/../b", 1),
    metric("a" * 251, 1), metric("é*", 1), metric("a", 1, -5), metric("a", 1, step="x"),
    metric("/a", 1),
], ids=str)  # fmt: skip
def test_bad_metrics_are_refused_alike(experiment: Pair, fields: dict[str, object]) -> None:
    pair = experiment if "bad" in experiment.real.known else new_run(experiment, "bad")
    pair.call("POST", "runs/log-metric", {"run_id": "{bad}", **fields})
    batched = {"run_id": "{bad}", "metrics": [metric("good", 1), fields]}
    answer = pair.ours.call("POST", "/api/2.0/mlflow/runs/log-batch", batched, None)
    assert answer.status == 400 and answer.value["error_code"] == "INVALID_PARAMETER_VALUE"


def test_parameters_are_set_once(experiment: Pair) -> None:
    pair = new_run(experiment)

    def log(key: object, value: object, status: int = 200) -> None:
        pair.call("POST", "runs/log-parameter", {"run_id": "{run}", "key": key, "value": value},
                  status=status)  # fmt: skip

    log("lr", "0.1")
    log("lr", "0.1")
    log("lr", "0.2", 400)
    log("long", "x" * 7000)
    log("empty", "")
    log("", "x", 400)
    log("a" * 251, "x", 400)
    log("no?", "x", 400)
    log(5, "x", 400)
    pair.call("POST", "runs/log-batch", {"run_id": "{run}", "params": [
        {"key": "new", "value": "1"}, {"key": "lr", "value": "0.3"}]}, status=400)  # fmt: skip
    pair.call("POST", "runs/log-batch", {"run_id": "{run}", "params": [
        {"key": "b", "value": "1"}, {"key": "b", "value": "1"}]}, status=400)  # fmt: skip
    pair.call("GET", "runs/get", query={"run_id": "{run}"})


def test_batches_have_mlflows_limits(experiment: Pair) -> None:
    pair = new_run(experiment)

    def batch(metrics: int, params: int, tags: int, status: int) -> None:
        pair.call("POST", "runs/log-batch", {
            "run_id": "{run}",
            "metrics": [metric(f"m{n % 7}", n, n, step=n) for n in range(metrics)],
            "params": [{"key": f"p{n}", "value": "1"} for n in range(params)],
            "tags": [{"key": f"t{n}", "value": str(status)} for n in range(tags)],
        }, status=status)  # fmt: skip

    batch(800, 100, 100, 200)
    batch(1000, 0, 0, 200)
    batch(0, 0, 0, 200)
    batch(1001, 0, 0, 400)
    batch(0, 101, 0, 400)
    batch(0, 0, 101, 400)
    batch(900, 100, 1, 400)
    pair.call("GET", "runs/get", query={"run_id": "{run}"})
    for wrong in (
        {"metrics": "no"}, {"params": [{"value": "1"}]}, {"tags": [{"value": "1"}]},
        {"metrics": [{"key": "a", "value": 1}]}, {"tags": [{"key": "k" * 251, "value": ""}]},
        {"params": [{"key": "../p", "value": "1"}]},
    ):  # fmt: skip
        pair.call("POST", "runs/log-batch", {"run_id": "{run}", **wrong}, status=400)


def test_data_and_models_are_tied_to_runs(experiment: Pair) -> None:
    pair = new_run(experiment)
    model = {"experiment_id": "{experiment}", "name": "net", "source_run_id": "{run}",
             "model_type": "agent", "params": [{"key": "depth", "value": "3"}],
             "tags": [{"key": "kind", "value": "small"}]}  # fmt: skip
    pair.call("POST", "logged-models", model, keep={"model": "model.info.model_id"})
    pair.call(
        "POST", "logged-models", {"experiment_id": "{experiment}", "name": "a/b"}, status=400
    )
    pair.call("GET", "logged-models/{model}")
    pair.call("PATCH", "logged-models/{model}", {"model_id": "{model}",
                                                 "status": "LOGGED_MODEL_READY"})  # fmt: skip
    pair.call("PATCH", "logged-models/{model}/tags",
              {"tags": [{"key": "kind", "value": "big"}, {"key": "b", "value": "2"}]})  # fmt: skip
    pair.call("DELETE", "logged-models/{model}/tags/b")
    pair.call("DELETE", "logged-models/{model}/tags/b")
    pair.call(
        "POST",
        "logged-models/{model}/params",
        {"model_id": "{model}", "params": [{"key": "q", "value": "1"}]},
    )
    made = [{"model_id": "{model}", "step": 3}]
    pair.call("POST", "runs/outputs", {"run_id": "{run}", "models": made})
    data = {"name": "mnist", "digest": "abc", "source_type": "http", "source": "{}",
            "schema": "{}", "profile": "{}"}  # fmt: skip
    inputs = [{"dataset": data, "tags": [{"key": "mlflow.data.context", "value": "training"}]}]
    pair.call("POST", "runs/log-inputs", {"run_id": "{run}", "datasets": inputs,
                                          "models": [{"model_id": "{model}"}]})  # fmt: skip
    pair.call("POST", "runs/log-inputs", {"run_id": "{run}", "datasets": inputs})
    on = {"model_id": "{model}", "dataset_name": "mnist", "dataset_digest": "abc"}
    pair.call("POST", "runs/log-metric", {"run_id": "{run}", **on, **metric("acc", 0.5, step=1)})
    pair.call("POST", "runs/log-batch", {"run_id": "{run}", "metrics": [
        metric("acc", 0.7, step=2, model_id="{model}")]})  # fmt: skip
    pair.call("GET", "runs/get", query={"run_id": "{run}"})
    pair.call("GET", "logged-models/{model}")
    for how in ("metrics.acc > 0.6", "params.depth = '3'", "tags.kind = 'big'", "name = 'net'",
                "name LIKE 'n%'", "name = 'other'", "tags.kind = 'small'"):  # fmt: skip
        pair.call("POST", "logged-models/search",
                  {"experiment_ids": ["{experiment}"], "filter": how})  # fmt: skip
    pair.call("POST", "runs/search", {"experiment_ids": ["{experiment}"],
                                      "filter": "dataset.name = 'mnist'"})  # fmt: skip
    pair.call("DELETE", "logged-models/{model}")
    pair.call("GET", "logged-models/{model}", status=404)


def test_deleted_experiments_take_their_runs_along_and_bring_them_back(pair: Pair) -> None:
    pair.call("POST", "experiments/create", {"name": "gone"}, keep={"gone": "experiment_id"})
    pair.call("POST", "runs/create", {"experiment_id": "{gone}", "start_time": 1},
              keep={"lost": "run.info.run_id"})  # fmt: skip
    pair.call("POST", "experiments/delete", {"experiment_id": "{gone}"})
    pair.call("GET", "experiments/get", query={"experiment_id": "{gone}"})
    pair.call("GET", "experiments/get-by-name", query={"experiment_name": "gone"})
    pair.call("GET", "runs/get", query={"run_id": "{lost}"})
    pair.call("POST", "experiments/delete", {"experiment_id": "{gone}"}, status=404)
    pair.call("POST", "experiments/create", {"name": "gone"}, status=400)
    pair.call("POST", "runs/create", {"experiment_id": "{gone}"}, status=400)
    pair.call("POST", "experiments/update", {"experiment_id": "{gone}", "new_name": "x"})
    pair.call("POST", "experiments/set-experiment-tag",
              {"experiment_id": "{gone}", "key": "a", "value": "b"}, status=400)  # fmt: skip
    gone = {"max_results": 9, "view_type": "DELETED_ONLY", "filter": "name = 'gone'"}
    pair.call("POST", "experiments/search", gone)
    pair.call("POST", "experiments/restore", {"experiment_id": "{gone}"})
    pair.call("GET", "runs/get", query={"run_id": "{lost}"})


def test_every_endpoint_was_compared(pair: Pair) -> None:
    """Runs last: the file's other tests are what it looks at."""
    pair.call("GET", "/health")
    seen = {(method, path) for method, path in pair.checked}
    templates = {
        (method, path.replace("{model}", "{model_id}").replace("tags/b", "tags/{key}"))
        for method, path in seen
    }
    missing = set(TRACKING) - templates - set(ELSEWHERE)
    if len(pair.checked) > 20:  # not where one test was picked
        assert not missing - {("POST", "/api/2.0/mlflow/runs/search")}
