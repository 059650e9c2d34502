"""Models, versions, aliases and files: the same calls to a real MLflow server and to ours."""

from __future__ import annotations

import httpx
import pytest
from comparing import Pair

from windlass.server.mlflow.endpoints import REGISTRY

MODELS, VERSIONS = "registered-models", "model-versions"
FILES = "/api/2.0/mlflow-artifacts/artifacts"
ELSEWHERE = {
    ("GET", f"/api/2.0/mlflow/{VERSIONS}/get-download-uri"):
        "theirs is where the files came from, ours where the version keeps them",
}  # fmt: skip
"""Endpoints that are not compared, and why."""


def put_both(pair: Pair, path: str, content: bytes) -> None:
    for side in (pair.real, pair.ours):
        answer = side.client.put(f"{FILES}/{side.fill(path)}", content=content)
        assert answer.status_code == 200, answer.text
    pair.checked.add(("PUT", FILES + "/{file:path}"))


@pytest.fixture(scope="module")
def filled(pair: Pair) -> Pair:
    """A run {run} with a folder `model` of two files, and the model `net` with a version of it."""
    pair.call("POST", "experiments/create", {"name": "registry"},
              keep={"registry": "experiment_id"})  # fmt: skip
    made = {"experiment_id": "{registry}", "start_time": 1, "run_name": "one"}
    pair.call("POST", "runs/create", made, keep={"origin": "run.info.run_id"})
    root = "{registry}/{origin}/artifacts"
    put_both(pair, f"{root}/model/MLmodel", b"flavors: {}\n")
    put_both(pair, f"{root}/model/data/weights.bin", b"0123456789")
    pair.call("POST", f"{MODELS}/create", {"name": "net", "description": "a net",
              "tags": [{"key": "team", "value": "red"}]})  # fmt: skip
    for number in (1, 2):
        version(pair, "net", description=f"number {number}")
    return pair


def version(pair: Pair, name: str, **more: object) -> None:
    source = "mlflow-artifacts:/{registry}/{origin}/artifacts/model"
    body = {"name": name, "source": source, "run_id": "{origin}", **more}
    pair.call("POST", f"{VERSIONS}/create", body)


def named(name: str, **more: object) -> dict[str, object]:
    return {"name": name, **more}


def test_files_are_listed_and_read_alike(filled: Pair) -> None:
    root = "{registry}/{origin}/artifacts"
    for folder in (root, f"{root}/model", f"{root}/model/data"):
        filled.call("GET", FILES, query={"path": folder})
    for folder in (None, "model", "model/data"):
        query = {"run_id": "{origin}", **({"path": folder} if folder else {})}
        filled.call("GET", "artifacts/list", query=query)
    for side in (filled.real, filled.ours):
        address = f"{FILES}/{side.fill(root)}/model/data/weights.bin"
        assert side.client.get(address).content == b"0123456789"
    filled.checked.add(("GET", FILES + "/{file:path}"))
    put_both(filled, f"{root}/old/x.txt", b"x")
    for side in (filled.real, filled.ours):
        gone = side.client.delete(f"{FILES}/{side.fill(root)}/old/x.txt")
        assert (gone.status_code, gone.json()) == (200, {})
    filled.checked.add(("DELETE", FILES + "/{file:path}"))


def test_uploads_in_parts_are_refused_in_words_that_clients_know(filled: Pair) -> None:
    """They send the whole file then (`test_mlflow_models`)."""
    about = {"path": "big.bin", "num_parts": 2, "upload_id": "x", "parts": []}
    for word in ("create", "complete", "abort"):
        path = f"/api/2.0/mlflow-artifacts/mpu/{word}"
        filled.call("POST", path + "/{registry}/{origin}/artifacts", about, status=501)
        filled.checked.add(("POST", path + "/{file:path}"))


def test_a_model_lives_from_its_name_to_its_end(filled: Pair) -> None:
    pair = filled
    pair.call("POST", f"{MODELS}/create", named("first"))
    pair.call("GET", f"{MODELS}/get", query=named("first"))
    pair.call("PATCH", f"{MODELS}/update", named("first", description="better"))
    pair.call("POST", f"{MODELS}/set-tag", named("first", key="a", value="1"))
    pair.call("POST", f"{MODELS}/set-tag", named("first", key="b", value="2"))
    pair.call("DELETE", f"{MODELS}/delete-tag", named("first", key="b"))
    pair.call("DELETE", f"{MODELS}/delete-tag", named("first", key="nothing"))
    pair.call("POST", f"{MODELS}/rename", named("first", new_name="second"))
    pair.call("GET", f"{MODELS}/get", query=named("first"), status=404)
    pair.call("GET", f"{MODELS}/get", query=named("second"))
    pair.call("POST", f"{MODELS}/rename", named("second", new_name="net"), status=400)
    pair.call("DELETE", f"{MODELS}/delete", named("second"))
    pair.call("GET", f"{MODELS}/get", query=named("second"), status=404)


def test_versions_are_numbered_described_and_deleted_alike(filled: Pair) -> None:
    pair = filled
    pair.call("POST", f"{MODELS}/create", named("many"))
    version(pair, "many", tags=[{"key": "x", "value": "y"}], run_link="there")
    version(pair, "many")
    pair.call("GET", f"{VERSIONS}/get", query=named("many", version="1"))
    pair.call("PATCH", f"{VERSIONS}/update", named("many", version="1", description="best"))
    pair.call("POST", f"{VERSIONS}/set-tag", named("many", version="1", key="k", value="v"))
    pair.call("DELETE", f"{VERSIONS}/delete-tag", named("many", version="1", key="x"))
    pair.call("GET", f"{VERSIONS}/get", query=named("many", version="1"))
    pair.call("DELETE", f"{VERSIONS}/delete", named("many", version="2"))
    pair.call("GET", f"{VERSIONS}/get", query=named("many", version="2"), status=404)
    version(pair, "many")  # the third: numbers are not given again
    pair.call("GET", f"{MODELS}/get", query=named("many"))


def test_aliases_move_and_go_alike(filled: Pair) -> None:
    pair = filled

    def alias(method: str, status: int = 200, **fields: object) -> None:
        body = named("net", **fields)
        where = f"{MODELS}/alias"
        if method == "GET":
            pair.call(method, where, query=body, status=status)
        else:
            pair.call(method, where, body, status=status)

    alias("POST", alias="champion", version="1")
    alias("GET", alias="champion")
    alias("GET", alias="latest")
    alias("POST", alias="champion", version="2")
    alias("POST", alias="other", version="2")
    alias("GET", alias="champion")
    pair.call("GET", f"{MODELS}/get", query=named("net"))
    pair.call("GET", f"{VERSIONS}/get", query=named("net", version="2"))
    alias("DELETE", alias="other")
    alias("DELETE", alias="other")
    alias("GET", 400, alias="other")
    alias("POST", 400, alias="v3", version="1")
    alias("POST", 400, alias="latest", version="1")
    alias("POST", 400, alias="a b", version="1")
    alias("POST", 404, alias="x", version="9")
    alias("POST", 400, alias="x")


def test_stages_are_what_they_were(filled: Pair) -> None:
    pair = filled
    pair.call("POST", f"{MODELS}/create", named("staged"))
    for _ in range(3):
        version(pair, "staged")

    def stage(number: str, word: str, archive: bool | None = None, status: int = 200) -> None:
        more = {} if archive is None else {"archive_existing_versions": archive}
        body = named("staged", version=number, stage=word, **more)
        pair.call("POST", f"{VERSIONS}/transition-stage", body, status=status)

    stage("1", "Production")
    stage("2", "production", False)
    stage("3", "PRODUCTION", True)
    for number in "123":
        pair.call("GET", f"{VERSIONS}/get", query=named("staged", version=number))
    stage("1", "Staging")
    stage("1", "nowhere", status=400)
    stage("9", "Staging", status=404)
    pair.call("POST", f"{MODELS}/get-latest-versions", named("staged"))
    pair.call("POST", f"{MODELS}/get-latest-versions", named("staged", stages=["Production"]))
    pair.call("GET", f"{MODELS}/get-latest-versions", query=named("staged", stages="Staging"))
    pair.call("POST", f"{MODELS}/get-latest-versions", named("staged", stages=["x"]), status=400)
    pair.call("GET", f"{MODELS}/get", query=named("staged"))


@pytest.mark.parametrize("how", [
    {}, {"filter": "name = 'net'"}, {"filter": "name LIKE 'net%'"}, {"filter": "name ILIKE 'N_t'"},
    {"filter": "tags.team = 'red'"}, {"filter": "name = 'nobody'"}, {"max_results": 1},
    {"order_by": "name DESC"}, {"filter": "colour = 'x'"}, {"max_results": 1001},
    {"filter": "name > 'a'"}, {"page_token": "!"},
], ids=str)  # fmt: skip
def test_models_are_found_alike(filled: Pair, how: dict[str, object]) -> None:
    scope = {"filter": "name = 'net'"} if set(how) <= {"max_results", "order_by"} else {}
    filled.call("GET", f"{MODELS}/search", query={**scope, **how})


@pytest.mark.parametrize("how", [
    {"filter": "name = 'net'"}, {"filter": "name = 'net'", "max_results": 1},
    {"filter": "name = 'net'", "order_by": "version_number ASC"},
    {"filter": "run_id = '{origin}' and name = 'net'"}, {"filter": "name = 'nobody'"},
    {"filter": "name IN ('net', 'x')"}, {"filter": "colour = 'x'"},
    {"filter": "name = 'net'", "max_results": 200001},
], ids=str)  # fmt: skip
def test_versions_are_found_alike(filled: Pair, how: dict[str, object]) -> None:
    filled.call("GET", f"{VERSIONS}/search", query=how)


@pytest.mark.parametrize("call", [
    ("POST", f"{MODELS}/create", {}),
    ("POST", f"{MODELS}/create", named("net")),
    ("POST", f"{MODELS}/create", named("a/b")),
    ("POST", f"{MODELS}/create", named("a:b")),
    ("POST", f"{MODELS}/create", named(" ")),
    ("POST", f"{MODELS}/create", named(5)),  # type: ignore[arg-type]
    ("GET", f"{MODELS}/get", named("nobody")),
    ("GET", f"{MODELS}/get", {}),
    ("PATCH", f"{MODELS}/update", named("nobody", description="x")),
    ("POST", f"{MODELS}/rename", named("net")),
    ("DELETE", f"{MODELS}/delete", named("nobody")),
    ("POST", f"{MODELS}/set-tag", named("net")),
    ("POST", f"{MODELS}/set-tag", named("nobody", key="a", value="b")),
    ("POST", f"{MODELS}/set-tag", named("net", key="a?", value="b")),
    ("GET", f"{MODELS}/alias", named("nobody", alias="a")),
    ("GET", f"{VERSIONS}/get", named("net", version="9")),
    ("GET", f"{VERSIONS}/get", named("net", version="x")),
    ("GET", f"{VERSIONS}/get", named("net")),
    ("DELETE", f"{VERSIONS}/delete", named("net", version="9")),
    ("POST", f"{VERSIONS}/set-tag", named("net", version="1", key="a")),
    ("POST", f"{VERSIONS}/create", named("net")),
    ("POST", f"{VERSIONS}/create", named("nobody", run_id="{origin}",
        source="mlflow-artifacts:/{registry}/{origin}/artifacts/model")),
    ("POST", f"{VERSIONS}/create", named("net", source="/etc/passwd")),
    ("POST", f"{VERSIONS}/create", named("net", source="file:///etc", run_id="{origin}")),
    ("POST", f"{VERSIONS}/create", named("net", run_id="{origin}",
        source="mlflow-artifacts:/{registry}/{origin}/artifacts/../../x")),
    ("POST", f"{VERSIONS}/create", named("net",
        source="mlflow-artifacts:/{registry}/{origin}/artifacts/model")),
], ids=lambda call: f"{call[1]} {call[2]}"[:70])  # fmt: skip
def test_mistakes_in_the_registry_are_told_alike(
    filled: Pair, call: tuple[str, str, dict[str, object]]
) -> None:
    method, path, fields = call
    if method == "GET":
        filled.call(method, path, query=fields or {"other": "1"})
    else:
        filled.call(method, path, fields)


SOURCES = [
    "http://127.0.0.1:1/x", "https://evil/x", "s3://bucket/x", "ftp://host/x", "hdfs://h/x",
    "dbfs:/x", "file:///etc/passwd", "/etc/passwd", "../../x", "C:\\x", "\\\\host\\x",
    "mlflow-artifacts://evil/0/{origin}/artifacts", "mlflow-artifacts:/0/{origin}/../x",
    "mlflow-artifacts:/0/{origin}/artifacts/%2e%2e/%2e%2e/x", "mlflow-artifacts:/0/x/artifacts",
    "mlflow-artifacts:/0/{origin}/artifacts/model#/../../x", "runs://evil/{origin}/model",
    "mlflow-artifacts:/0/{origin}/artifacts/model?x=../y", "models://evil/net/1",
    "runs:/{origin}/../x", "runs:/{origin}/..;/x", "mlflow-artifacts:/0//proc/self/root/etc",
    "mlflow-artifacts:/registry/{origin}/1", "models:/net/99", "models:/nobody@x", "file:relative",
    "jar:file:/x!/y", "data:,x", "runs:/" + "0" * 32 + "/model",
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_a_version_is_made_of_nothing_outside_the_project(
    filled: Pair, wire: httpx.Client, source: str
) -> None:
    body = filled.ours.fill(named("net", source=source, run_id="{origin}"))
    answer = wire.post(f"/api/2.0/mlflow/{VERSIONS}/create", json=body)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error_code"] in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST")


def test_every_endpoint_of_the_registry_was_compared(filled: Pair) -> None:
    """Runs last: the file's other tests are what it looks at."""
    if len(filled.checked) > 40:  # not where one test was picked
        assert not set(REGISTRY) - filled.checked - set(ELSEWHERE)
