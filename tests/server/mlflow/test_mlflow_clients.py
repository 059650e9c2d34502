"""Real clients, the newest and one of the major version before, against ours: unchanged scripts,
from a laptop and inside a job."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from windlass.testing.platform import Platform, wait_for

LAPTOP = textwrap.dedent(
    """
    import json, math, sys
    import mlflow
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    mlflow.set_experiment(sys.argv[1] if len(sys.argv) > 1 else EXPERIMENT)
    with mlflow.start_run(run_name="mine", tags={"team": "blue"}) as run:
        mlflow.log_param("lr", 0.1)
        mlflow.log_params({"layers": 3, "net": "small"})
        for step in range(5):
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
        mlflow.log_metrics({"acc": 0.5, "odd": math.nan}, step=4)
        mlflow.set_tags({"a": "b"})
        with mlflow.start_run(nested=True) as inner:
            mlflow.log_metric("loss", 7)
    client = MlflowClient()
    kept = client.get_run(run.info.run_id)
    try:
        client.log_param(run.info.run_id, "lr", 5)
        raise SystemExit("a parameter was changed")
    except MlflowException as error:
        refused = error.error_code
    try:
        client.get_run("0" * 32)
        raise SystemExit("a run that nobody made was found")
    except MlflowException as error:
        absent = error.error_code
    chosen = "metrics.loss < 1 and params.net = 'small'"
    found = client.search_runs([run.info.experiment_id], chosen)
    named = client.get_experiment_by_name(EXPERIMENT)
    print(json.dumps({
        "status": kept.info.status, "name": kept.info.run_name, "params": kept.data.params,
        "loss": kept.data.metrics["loss"], "nan": str(kept.data.metrics["odd"]),
        "tags": {k: v for k, v in kept.data.tags.items() if not k.startswith("mlflow.")},
        "history": [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, "loss")],
        "found": [r.info.run_id for r in found] == [run.info.run_id],
        "parent": client.get_run(inner.info.run_id).data.tags["mlflow.parentRunId"]
                  == run.info.run_id,
        "refused": refused, "absent": absent,
        "same": named.experiment_id == run.info.experiment_id,
        "listed": EXPERIMENT in [e.name for e in client.search_experiments()],
        "run": run.info.run_id,
    }))
    """
)
WANTED: dict[str, Any] = {
    "status": "FINISHED", "name": "mine", "loss": 0.2, "nan": "nan",
    "params": {"lr": "0.1", "layers": "3", "net": "small"}, "tags": {"team": "blue", "a": "b"},
    "history": [[0, 1.0], [1, 0.5], [2, 1 / 3], [3, 0.25], [4, 0.2]],
    "found": True, "parent": True, "refused": "INVALID_PARAMETER_VALUE",
    "absent": "RESOURCE_DOES_NOT_EXIST", "same": True, "listed": True,
}  # fmt: skip

IN_A_JOB = textwrap.dedent(
    """
    import mlflow

    mlflow.set_experiment("in a job")
    with mlflow.start_run() as run:
        mlflow.log_params({"lr": 0.1})
        for step in range(3):
            mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
        mlflow.set_tag("from", "inside")
    mlflow.get_experiment_by_name("Default")  # a look elsewhere moves nothing any more
    with mlflow.start_run(run_name="second") as second:
        mlflow.log_metric("loss", 5)
    others = mlflow.search_runs(search_all_experiments=True, output_format="list")
    print("RUN", run.info.run_id, run.info.experiment_id, second.info.run_id, len(others) >= 2)
    """
)


@pytest.mark.parametrize("which", ["newest", "older"])
def test_a_script_tracks_from_a_laptop(
    which: str, request: pytest.FixtureRequest, script: Callable[..., str]
) -> None:
    python = request.getfixturevalue(which)
    said = script(python, f"EXPERIMENT = 'laptop {which}'\n" + LAPTOP)
    told = json.loads(said.splitlines()[-1])
    assert {key: value for key, value in told.items() if key != "run"} == WANTED


def test_basic_with_the_token_as_password_is_as_good(
    newest: Path, token: str, script: Callable[..., str]
) -> None:
    text = "import mlflow; print([e.name for e in mlflow.search_experiments()])"
    said = script(
        newest, text, MLFLOW_TRACKING_TOKEN="", MLFLOW_TRACKING_USERNAME="me",
        MLFLOW_TRACKING_PASSWORD=token,
    )  # fmt: skip
    assert "Default" in said


def test_a_script_in_a_job_tracks_into_the_jobs_run(
    newest: Path, ours: Platform, wire: httpx.Client, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(IN_A_JOB)
    env = {**ours.env, "VIRTUAL_ENV": str(newest.parents[1])}
    done = ours.cli("run", "train.py", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [each for each in done.stdout.splitlines() if "RUN " in each]
    _, run_id, experiment_id, second, seen = line[line.index("RUN ") :].split()
    (job,) = [job for job in ours.client.jobs.list() if job.id == run_id]
    assert job.state == "succeeded" and seen == "True"
    api = "/api/2.0/mlflow/"

    def closed() -> dict[str, Any] | None:
        run = wire.get(api + "runs/get", params={"run_id": run_id}).json()["run"]
        return run if run["info"]["status"] == "FINISHED" and "end_time" in run["info"] else None

    run = wait_for(closed, 60, "the job's run is closed")
    home = wire.get(api + "experiments/get-by-name", params={"experiment_name": "in a job"}).json()
    assert run["info"]["experiment_id"] == experiment_id == home["experiment"]["experiment_id"]
    assert run["data"]["metrics"][0]["value"] == pytest.approx(1 / 3)
    assert {"key": "lr", "value": "0.1"} in run["data"]["params"]
    other = wire.get(api + "runs/get", params={"run_id": second}).json()["run"]
    assert other["info"]["experiment_id"] == experiment_id
    (series,) = [
        each
        for each in ours.call("GET", f"/jobs/{run_id}/metrics?key=loss").json()["series"]
        if each["rank"] == 0
    ]
    assert [point[0] for point in series["points"]] == [0, 1, 2]
    ours.client.jobs.delete(run_id)
    assert wire.get(api + "runs/get", params={"run_id": run_id}).status_code == 404
    assert wire.get(api + "runs/get", params={"run_id": second}).status_code == 404
