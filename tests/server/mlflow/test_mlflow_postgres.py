"""MLflow's wire on a platform whose database is PostgreSQL: the same calls, the same answers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from windlass.testing.people import People
from windlass.testing.platform import Platform
from windlass.testing.postgres import PostgresServer

API = "/api/2.0/mlflow/"


@pytest.fixture(scope="module")
def platform(
    _postgres: PostgresServer | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    if _postgres is None:
        pytest.skip("PostgreSQL is not installed")
    url = _postgres.fresh()
    with Platform(tmp_path_factory.mktemp("wire") / "home", database=url) as platform:
        yield platform
    _postgres.drop(url)


@pytest.fixture(scope="module")
def people(platform: Platform) -> People:
    return People(platform)


@pytest.fixture(scope="module")
def wire(platform: Platform, people: People) -> Iterator[httpx.Client]:
    token = people.token(people.owner.inside("default"), "write", name="wire").token
    with wire_of(platform, token) as client:
        yield client


def post(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(API + path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def get(client: httpx.Client, path: str, **query: Any) -> dict[str, Any]:
    answer = client.get(API + path, params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def new_run(client: httpx.Client, name: str = "run", **more: Any) -> str:
    made = post(client, "runs/create", **{"experiment_id": "0", "start_time": 5, **more},
                run_name=name)  # fmt: skip
    return str(made["run"]["info"]["run_id"])


def metric(key: str, value: object, at_ms: int = 1000, step: int = 0) -> dict[str, object]:
    return {"key": key, "value": value, "timestamp": at_ms, "step": step}


def names(client: httpx.Client, experiment: str, **more: Any) -> list[str]:
    found = post(client, "runs/search", experiment_ids=[experiment], **more)
    return [run["info"]["run_name"] for run in found.get("runs", [])]


def test_every_number_comes_back_as_it_was_logged(wire: httpx.Client) -> None:
    run = new_run(wire)
    told = ["NaN", "Infinity", "-Infinity", 5e-324, 1.7976931348623157e308, -0.0, 0.1]
    for place, value in enumerate(told):
        post(wire, "runs/log-metric", run_id=run, **metric(f"m{place}", value, 2**62, -(2**63)))
    points = [metric("all", value, at, at) for at, value in enumerate(told)]
    post(wire, "runs/log-batch", run_id=run, metrics=points)
    post(wire, "runs/log-batch", run_id=run, metrics=points + points[:3])  # sent again
    found = get(wire, "runs/get", run_id=run)["run"]["data"]["metrics"]
    last = {each["key"]: each["value"] for each in found}
    assert [last[f"m{place}"] for place in range(len(told))] == told
    history = get(wire, "metrics/get-history", run_id=run, metric_key="all")["metrics"]
    assert [each["value"] for each in history] == told
    paged = get(wire, "metrics/get-history", run_id=run, metric_key="all", max_results=2**63 - 1)
    assert paged["metrics"] == history


def test_runs_are_found_and_ordered_as_on_the_other_database(wire: httpx.Client) -> None:
    where = post(wire, "experiments/create", name="searched")["experiment_id"]
    for place, (name, loss, lr, net) in enumerate((
        ("a", 0.5, "0.1", "ResNet"), ("b", "NaN", "1e-2", "resnet50"), ("c", None, "1e999", "v\\"),
        ("d", "-Infinity", "three", "100%"),
    )):  # fmt: skip
        run = new_run(wire, name, experiment_id=where, start_time=place)
        post(
            wire, "runs/log-batch", run_id=run,
            metrics=[metric("loss", loss)] if loss is not None else [],
            params=[{"key": "lr", "value": lr}], tags=[{"key": "net", "value": net}],
        )  # fmt: skip
    for text, chosen in {
        "metrics.loss < 1": "da", "metrics.loss != 0.5": "db", "tags.net LIKE 'Res%'": "a",
        "tags.net ILIKE 'res%'": "ba", "tags.net LIKE 'v\\'": "c", "tags.net ILIKE 'V\\'": "c",
        "tags.net ILIKE '%\\'": "c", "tags.net LIKE '100%'": "d", "params.lr IS NULL": "",
        "metrics.loss > 0.1 and params.lr = '0.1'": "a", "end_time > 0": "",
        "run_name IN ('a')": None, "datasets.context = 'a\\'": "", "datasets.name LIKE '%\\'": "",
    }.items():  # fmt: skip
        if chosen is not None:
            assert names(wire, where, filter=text) == list(chosen), text
    assert names(wire, where, order_by=["metrics.loss"]) == ["d", "a", "b", "c"]
    assert names(wire, where, order_by=["metrics.loss DESC"]) == ["a", "d", "b", "c"]
    assert names(wire, where, order_by=["attributes.end_time", "params.lr"])[0] == "a"


def test_our_own_table_reads_the_same_rows(wire: httpx.Client, people: People) -> None:
    owner = people.owner.inside("default")
    for place, value in enumerate(("0.5", "1e999", "1e-999", "9" * 400, "\u00a07", "1e-200")):
        run = new_run(wire, f"row-{place}", start_time=2**62 if place else -(2**62))
        post(wire, "runs/log-parameter", run_id=run, key="width", value=value)
        post(wire, "runs/log-metric", run_id=run, **metric("far", place, 2**62))
    for query, count in (
        ("params.width < 1", 2), ("params.width = '1e999'", 1), ("metrics.far >= 0", 6),
        ("name like 'row-%'", 6), ("name ilike 'ROW-%'", 6), ("name like 'ROW-%'", 0),
        ("name ilike 'x\\'", 0), ("name like 'x\\'", 0), ("metrics.far = inf", 0),
    ):  # fmt: skip
        page = owner.call("GET", f"/runs?sort=-params.width&{httpx.QueryParams(filter=query)}")
        assert page.status_code == 200, (query, page.text)
        assert page.json()["total"] == count, query


@pytest.mark.parametrize("call", [
    ("GET", "runs/get", {"run_id": "a\0b"}),
    ("GET", "experiments/get-by-name", {"experiment_name": "\0"}),
    ("GET", "logged-models/m-%00", {}),
    ("GET", "experiments/search", {"max_results": 5, "filter": "name = '\0'"}),
    ("GET", "metrics/get-history", {"run_id": "a", "metric_key": "\0"}),
    ("GET", "model-versions/search", {"filter": "name = '\0'"}),
    ("GET", "model-versions/search", {"filter": "version_number = inf"}),
    ("GET", "registered-models/search", {"filter": "name like '\0'"}),
    ("POST", "runs/search", {"experiment_ids": [str(n) for n in range(70_000)]}),
    ("POST", "logged-models/search", {"experiment_ids": [str(n) for n in range(70_000)]}),
    ("POST", "runs/search", {
        "experiment_ids": ["0"], "filter": "run_id IN ('a'" + ", 'a'" * 70_000 + ")",
    }),
    ("POST", "runs/search", {"experiment_ids": ["0"], "filter": f"metrics.a < {'1' * 300_000}x"}),
    ("POST", "runs/search", {"experiment_ids": ["0"], "order_by": [f"a{' ' * 300_000}b"]}),
    ("POST", "logged-models", {"experiment_id": "0", "model_type": "t" * 501}),
    ("POST", "logged-models", {"experiment_id": "0", "params": [{"key": "k" * 251}]}),
], ids=lambda call: str(call)[:60])  # fmt: skip
def test_what_no_database_takes_is_the_callers_mistake(
    wire: httpx.Client, call: tuple[str, str, dict[str, Any]]
) -> None:
    method, path, fields = call
    given = {"params": fields} if method == "GET" else {"json": fields}
    answer = wire.request(method, API + path, **given)  # type: ignore[arg-type]
    assert 400 <= answer.status_code < 500 or answer.json() == {}, answer.text
    assert answer.elapsed.total_seconds() < 20


def test_writers_of_one_run_lose_nothing_of_each_other(wire: httpx.Client) -> None:
    run = new_run(wire, "shared")

    def log(writer: int) -> None:
        for step in range(10):
            points = [metric(f"k{key}", writer * 100 + step, 1, step) for key in range(5)]
            if writer % 2:  # the rows of a table in the other order
                points.reverse()
            post(wire, "runs/log-batch", run_id=run, metrics=points,
                 tags=[{"key": f"t{step}", "value": str(writer)}])  # fmt: skip

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(log, range(6)))
    for key in range(5):
        found = get(wire, "metrics/get-history", run_id=run, metric_key=f"k{key}")["metrics"]
        assert len(found) == 60
    last = get(wire, "runs/get", run_id=run)["run"]["data"]["metrics"]
    assert {each["key"]: each["value"] for each in last} == {f"k{key}": 509 for key in range(5)}


def test_models_data_and_files_are_kept(wire: httpx.Client) -> None:
    run = new_run(wire, "modelled")
    data = {"name": "d", "digest": "1", "source_type": "local", "source": "{}"}
    post(wire, "runs/log-inputs", run_id=run, datasets=[
        {"dataset": data, "tags": [{"key": "mlflow.data.context", "value": "training"}]}
    ])  # fmt: skip
    assert names(wire, "0", filter="datasets.context = 'training'") == ["modelled"]
    made = post(wire, "logged-models", experiment_id="0", name="net", source_run_id=run,
                params=[{"key": "a", "value": "1"}])["model"]["info"]["model_id"]  # fmt: skip
    post(wire, "runs/outputs", run_id=run, models=[{"model_id": made, "step": 2}])
    post(wire, "runs/log-metric", run_id=run, model_id=made, **metric("acc", "NaN"))
    found = post(wire, "logged-models/search", experiment_ids=["0"], filter="params.a = '1'",
                 order_by=[{"field_name": "metrics.acc"}])["models"]  # fmt: skip
    assert [model["info"]["model_id"] for model in found] == [made]
    place = f"0/models/{made}/artifacts/model.bin"
    files = "/api/2.0/mlflow-artifacts/artifacts/"
    assert wire.put(files + place, content=b"weights").status_code == 200
    assert wire.get(files + place, headers={"Range": "bytes=2-"}).content == b"ights"
    post(wire, "registered-models/create", name="net")
    version = post(wire, "model-versions/create", name="net", source=f"models:/{made}",
                   model_id=made)["model_version"]["version"]  # fmt: skip
    post(wire, "registered-models/alias", name="net", alias="best", version=version)
    assert get(wire, "registered-models/alias", name="net", alias="best")["model_version"]
    assert get(wire, "model-versions/search", filter="name like '%et'")["model_versions"]


def wire_of(platform: Platform, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"{platform.url}/mlflow/default", trust_env=False, timeout=60,
        headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip


def test_a_member_changes_no_run_of_anothers_job(
    platform: Platform, people: People, wire: httpx.Client
) -> None:
    job = people.owner.inside("default").ok("POST", "/jobs", {"spec": {"run": "true"}})["id"]
    platform.wait(job)
    member = people.user("passer-by", project="default", role="member")
    free = new_run(wire, "nobody's job")
    with wire_of(platform, people.token(member, "write", name="wire").token) as theirs:
        for path, fields in (
            ("runs/log-metric", metric("loss", 1)), ("runs/log-batch", {}),
            ("runs/set-tag", {"key": "a", "value": "b"}), ("runs/delete", {}),
            ("runs/update", {"status": "FAILED"}), ("runs/log-inputs", {}),
        ):  # fmt: skip
            answer = theirs.post(API + path, json={"run_id": job, **fields})
            assert answer.status_code == 403, (path, answer.text)
            assert answer.json()["error_code"] == "PERMISSION_DENIED"
        assert get(theirs, "runs/get", run_id=job)["run"]["info"]["status"] == "FINISHED"
        post(theirs, "runs/log-metric", run_id=free, **metric("loss", 1))
    post(wire, "runs/log-metric", run_id=job, **metric("loss", 1))  # the owner may


def test_a_job_is_followed_to_its_end(platform: Platform, people: People) -> None:
    code = "import windlass\nfor n in range(30): windlass.log(loss=1 / (n + 1), step=n)\n"
    spec = {
        "run": [sys.executable, "-c", code], "name": "logs", "params": {"lr": 0.1},
        "environment": {"vars": {"MLFLOW_EXPERIMENT_NAME": "n" * 600}},
    }  # fmt: skip
    owner = people.owner.inside("default")
    made = owner.ok("POST", "/jobs", {"spec": spec})["id"]
    platform.wait(made)
    found = owner.ok("GET", f"/jobs/{made}/metrics")["series"]
    assert [len(each["points"]) for each in found if each["key"] == "loss"] == [30]
    row = owner.ok("GET", f"/runs?id={made}")["items"][0]
    assert row["params"]["lr"]["value"] == "0.1" and row["metrics"]["loss"]["count"] == 30
    assert math.isclose(row["metrics"]["loss"]["min"], 1 / 30)
    owner.ok("DELETE", f"/jobs/{made}")
    assert owner.ok("GET", f"/runs?id={made}")["items"] == []
