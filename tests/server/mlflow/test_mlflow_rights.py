"""Whose runs are whose: projects do not see each other, an attempt's token writes its own job."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from windlass.server.mlflow.about import SPEAKS
from windlass.testing.mlflow_server import VERSION
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

API = "/api/2.0/mlflow/"
Wire = Callable[..., httpx.Client]
TELLS = (
    "import os, time; print(os.environ['MLFLOW_TRACKING_TOKEN'], os.environ['MLFLOW_RUN_ID'],"
    " os.environ['MLFLOW_TRACKING_URI'], flush=True); time.sleep(900)"
)


@pytest.fixture(scope="module")
def town(people: People) -> dict[str, Caller]:
    """Two projects, each with a member; in the first a viewer too. All with tokens."""
    made = {}
    for project in ("north", "south"):
        people.project(project)
        who = people.user(f"{project}-member", project=project, role="member")
        made[project] = people.token(who, "write", name="wire")
    viewer = people.user("north-viewer", project="north", role="viewer")
    made["viewer"] = people.token(viewer, "write", name="wire")
    return made


@pytest.fixture
def north(wire_of: Wire, town: dict[str, Caller]) -> httpx.Client:
    return wire_of(town["north"], "north")


@pytest.fixture
def south(wire_of: Wire, town: dict[str, Caller]) -> httpx.Client:
    return wire_of(town["south"], "south")


@pytest.fixture(scope="module")
def job(ours: Platform, people: People) -> Iterator[tuple[str, str]]:
    """(token, run id) of a job that runs in the project `default`."""
    spec = {"run": [sys.executable, "-c", TELLS], "name": "tells"}
    made = people.owner.inside("default").ok("POST", "/jobs", {"spec": spec})["id"]
    asked = people.owner.inside("default")

    def told() -> list[str]:
        return str(asked.call("GET", f"/jobs/{made}/logs").text).split()

    token, run_id, uri = wait_for(lambda: (found := told())[:3] if len(told()) >= 3 else None,
                                  60, "the script tells its token")  # fmt: skip
    assert run_id == made and uri == f"{ours.url}/mlflow/default"
    yield token, run_id
    ours.client.jobs.stop(made, now=True)
    ours.wait(made)


def post(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post(API + path, json=body)


def new_run(client: httpx.Client, experiment_id: str = "0") -> str:
    made = post(client, "runs/create", experiment_id=experiment_id, start_time=1).json()
    return str(made["run"]["info"]["run_id"])


def test_the_wire_is_that_of_the_version_it_names(wire: httpx.Client) -> None:
    assert SPEAKS == VERSION
    assert wire.get("/version").text == SPEAKS
    assert wire.get("/api/3.0/mlflow/server-info").json()["store_type"] == "SqlStore"


def test_what_is_not_in_the_table_is_not_there(wire: httpx.Client) -> None:
    for method, path in (
        ("GET", API + "traces"), ("POST", "/api/3.0/mlflow/traces/search"), ("GET", "/"),
        ("POST", "/api/2.0/mlflow/gateway-proxy"), ("GET", "/graphql"), ("PUT", API + "runs/get"),
        ("POST", "/ajax-api/2.0/mlflow/runs/create"),
    ):  # fmt: skip
        answer = wire.request(method, path)
        assert answer.status_code == 404, path
        assert answer.json()["error_code"] == "ENDPOINT_NOT_FOUND"


def test_another_projects_things_are_not_there(north: httpx.Client, south: httpx.Client) -> None:
    mine = post(north, "experiments/create", name="ours alone").json()["experiment_id"]
    run = new_run(north, mine)
    model = post(north, "logged-models", experiment_id=mine, name="m", source_run_id=run).json()
    model_id = model["model"]["info"]["model_id"]
    for method, path, fields in (
        ("GET", "experiments/get", {"experiment_id": mine}),
        ("GET", "experiments/get-by-name", {"experiment_name": "ours alone"}),
        ("POST", "experiments/update", {"experiment_id": mine, "new_name": "x"}),
        ("POST", "experiments/delete", {"experiment_id": mine}),
        ("POST", "experiments/set-experiment-tag", {"experiment_id": mine, "key": "a"}),
        ("POST", "runs/create", {"experiment_id": mine}),
        ("GET", "runs/get", {"run_id": run}),
        ("POST", "runs/update", {"run_id": run, "status": "FAILED"}),
        ("POST", "runs/delete", {"run_id": run}),
        ("POST", "runs/restore", {"run_id": run}),
        ("POST", "runs/log-metric", {"run_id": run, "key": "a", "value": 1, "timestamp": 1}),
        ("POST", "runs/log-batch", {"run_id": run, "metrics": []}),
        ("POST", "runs/log-parameter", {"run_id": run, "key": "a", "value": "b"}),
        ("POST", "runs/set-tag", {"run_id": run, "key": "a", "value": "b"}),
        ("POST", "runs/delete-tag", {"run_id": run, "key": "mlflow.runName"}),
        ("POST", "runs/log-inputs", {"run_id": run}),
        ("POST", "runs/outputs", {"run_id": run, "models": [{"model_id": model_id}]}),
        ("GET", "metrics/get-history", {"run_id": run, "metric_key": "a"}),
        ("GET", f"logged-models/{model_id}", {}),
        ("PATCH", f"logged-models/{model_id}", {"status": "LOGGED_MODEL_READY"}),
        ("PATCH", f"logged-models/{model_id}/tags", {"tags": [{"key": "a", "value": "b"}]}),
        ("DELETE", f"logged-models/{model_id}", {}),
        ("POST", "logged-models", {"experiment_id": "0", "name": "m", "source_run_id": run}),
    ):  # fmt: skip
        more: dict[str, Any] = {"params": fields} if method == "GET" else {"json": fields}
        answer = south.request(method, API + path, **more)
        assert answer.status_code == 404, (path, answer.text)
        assert answer.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST", path
    found = post(south, "runs/search", experiment_ids=[mine, "0"]).json()
    assert run not in str(found)
    assert post(south, "logged-models/search", experiment_ids=[mine]).json() == {}
    assert "ours alone" not in post(south, "experiments/search", max_results=1000).text
    kept = north.get(API + "runs/get", params={"run_id": run}).json()["run"]
    assert kept["info"]["status"] == "RUNNING" and kept["info"]["lifecycle_stage"] == "active"
    # Both have an experiment of that name, and a Default.
    assert post(south, "experiments/create", name="ours alone").status_code == 200


def test_a_project_that_one_is_not_in_is_not_there(wire_of: Wire, town: dict[str, Caller]) -> None:
    for project in ("south", "nowhere", "NORTH", "a%2Fb"):
        answer = wire_of(town["north"], project).get(API + "experiments/get?experiment_id=0")
        assert answer.status_code == 404 and "error_code" in answer.json(), project


def test_viewers_look_and_do_not_touch(
    wire_of: Wire, town: dict[str, Caller], north: httpx.Client
) -> None:
    run, viewer = new_run(north), wire_of(town["viewer"], "north")
    assert viewer.get(API + "runs/get", params={"run_id": run}).status_code == 200
    answer = post(viewer, "runs/set-tag", run_id=run, key="a", value="b")
    assert answer.status_code == 403 and answer.json()["error_code"] == "PERMISSION_DENIED"


def test_strangers_are_told_nothing(ours: Platform, token: str) -> None:
    address = f"{ours.url}/mlflow/default{API}experiments/get?experiment_id=0"
    good = base64.b64encode(b"anybody:" + token.encode()).decode()
    with httpx.Client(trust_env=False, timeout=60) as client:
        for given in (None, "Bearer wl_no", "Bearer wlr_no", "Basic !", "Basic YTpi", "Other x"):
            headers = {} if given is None else {"Authorization": given}
            answer = client.get(address, headers=headers)
            assert answer.status_code == 401, given
            assert answer.json()["error_code"] == "UNAUTHENTICATED"
        assert client.get(address, headers={"Authorization": f"Basic {good}"}).status_code == 200


def test_an_attempts_token_writes_its_own_jobs_runs_and_reads_the_others(
    job: tuple[str, str], wire: httpx.Client, wire_of: Wire, ours: Platform
) -> None:
    token, own = job
    inside = wire_of(Caller(ours, "job", token=token))
    other = new_run(wire)
    assert inside.get(API + "runs/get", params={"run_id": other}).status_code == 200
    for path, fields in (
        ("runs/log-metric", {"key": "a", "value": 1, "timestamp": 1}),
        ("runs/log-batch", {"metrics": [{"key": "a", "value": 1, "timestamp": 1}]}),
        ("runs/set-tag", {"key": "a", "value": "b"}), ("runs/delete", {}),
        ("runs/update", {"status": "FAILED"}),
    ):  # fmt: skip
        answer = post(inside, path, run_id=other, **fields)
        assert answer.status_code == 403, (path, answer.text)
        assert answer.json()["error_code"] == "PERMISSION_DENIED"
    assert (
        post(inside, "runs/log-metric", run_id=own, key="a", value=2, timestamp=1).status_code
        == 200
    )
    made = new_run(inside)
    assert post(inside, "runs/set-tag", run_id=made, key="a", value="b").status_code == 200
    assert wire_of(Caller(ours, "job", token=token), "north").get("/health").status_code == 404
    run = wire.get(API + "runs/get", params={"run_id": own}).json()["run"]
    assert run["info"]["status"] == "RUNNING" and run["info"]["user_id"] == "owner"
    assert run["data"]["metrics"][0]["value"] == 2.0


def test_a_jobs_run_moves_to_the_experiment_it_sets_until_it_is_begun(
    job: tuple[str, str], wire: httpx.Client, wire_of: Wire, ours: Platform
) -> None:
    token, own = job
    inside = wire_of(Caller(ours, "job", token=token))

    def home() -> str:
        run = wire.get(API + "runs/get", params={"run_id": own}).json()["run"]
        return str(run["info"]["experiment_id"])

    assert home() == "0"
    made = post(inside, "experiments/create", name="of the job").json()["experiment_id"]
    assert home() == made
    inside.get(API + "experiments/get-by-name", params={"experiment_name": "Default"})
    assert home() == "0"
    inside.get(API + "experiments/get-by-name", params={"experiment_name": "of the job"})
    assert post(inside, "runs/update", run_id=own, status="RUNNING").status_code == 200
    inside.get(API + "experiments/get-by-name", params={"experiment_name": "Default"})
    assert home() == made
    # A user who looks moves nothing.
    wire.get(API + "experiments/get-by-name", params={"experiment_name": "Default"})
    assert home() == made


@pytest.mark.parametrize(("code", "status"), [(0, "FINISHED"), (3, "FAILED")])
def test_a_run_ends_with_its_job_and_its_token_too(
    code: int, status: str, ours: Platform, wire: httpx.Client, wire_of: Wire
) -> None:
    text = f"import os, sys; print(os.environ['MLFLOW_TRACKING_TOKEN']); sys.exit({code})"
    job = ours.submit([sys.executable, "-c", text], environment={
        "vars": {"MLFLOW_EXPERIMENT_NAME": f"named {code}"}})  # fmt: skip
    ours.wait(job)

    def closed() -> dict[str, Any] | None:
        run = wire.get(API + "runs/get", params={"run_id": job.id}).json()["run"]
        return run["info"] if run["info"]["status"] != "RUNNING" else None

    info = wait_for(closed, 60, "the run is closed")
    assert info["status"] == status and info["end_time"] >= info["start_time"] > 0
    named = {"experiment_name": f"named {code}"}
    home = wire.get(API + "experiments/get-by-name", params=named).json()["experiment"]
    assert info["experiment_id"] == home["experiment_id"] and info["run_name"] == job.name
    token = ours.call("GET", f"/jobs/{job.id}/logs").text.split()[0]
    late = wire_of(Caller(ours, "late", token=token))

    def refused() -> bool:  # what was known of the token is believed for a few seconds
        told = post(late, "runs/log-metric", run_id=job.id, key="a", value=1, timestamp=1)
        return told.status_code >= 400

    wait_for(refused, 60, "the token of an attempt that is over is refused")


def test_a_job_that_tracks_elsewhere_is_left_alone(ours: Platform) -> None:
    text = "import os; print(sorted(k for k in os.environ if k.startswith('MLFLOW_')))"
    job = ours.submit([sys.executable, "-c", text], environment={
        "vars": {"MLFLOW_TRACKING_URI": "http://other"}})  # fmt: skip
    ours.wait(job)
    assert ours.call("GET", f"/jobs/{job.id}/logs").text.strip() == "['MLFLOW_TRACKING_URI']"


def test_bodies_that_are_no_objects_are_refused(wire: httpx.Client) -> None:
    for body in (b"{", b"[]", b"5", b'"x"', b"\xff", b'{"run_id": "\\u0000"}', b"[" * 5000):
        answer = wire.post(API + "runs/create", content=body,
                           headers={"Content-Type": "application/json"})  # fmt: skip
        assert answer.status_code == 400, body[:20]
        assert answer.json()["error_code"] in ("BAD_REQUEST", "INVALID_PARAMETER_VALUE")
