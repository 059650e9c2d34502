"""Whatever is sent over MLflow's wire, the answer is one of MLflow's: never a 5xx."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from windlass.server.mlflow.endpoints import ENDPOINTS
from windlass.testing.people import People
from windlass.testing.platform import Platform

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", 12))
NOT_DONE = "/mpu/"
"""Uploads in parts: answered 501 on purpose, whereupon clients send the file whole."""
FIELDS = (
    "run_id run_uuid key value timestamp step metrics params tags experiment_id experiment_ids"
    " name filter filter_string order_by max_results page_token status end_time start_time user_id"
    " run_name run_view_type view_type artifact_location model_id model_type source version stage"
    " alias archive_existing_versions description datasets models path new_name source_run_id"
    " metric_key tag inputs outputs experiment_name"
).split()


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A client, and what there is to name: a run, an experiment, a model, a job."""
    with Platform(tmp_path_factory.mktemp("fuzz-wire") / "home") as platform:
        people = People(platform)
        token = people.token(people.owner.inside("default"), "write", name="fuzz").token
        with httpx.Client(
            base_url=platform.url + "/mlflow/default", timeout=60, trust_env=False,
            headers={"Authorization": f"Bearer {token}"},
        ) as client:  # fmt: skip
            api = "/api/2.0/mlflow/"
            run = client.post(api + "runs/create", json={}).json()["run"]["info"]
            client.post(api + "registered-models/create", json={"name": "net"})
            yield {
                "client": client,
                "known": [
                    run["run_id"],
                    run["experiment_id"],
                    "net",
                    "metrics.a > 1",
                    "1",
                    "loss",
                ],
            }


_odd = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=20)
    | some.sampled_from([2**63, -(2**63), 1e308, "NaN", "\0", "x" * 6000, "../..", "%2e%2e/"]),
    lambda inner: some.lists(inner, max_size=3)
    | some.dictionaries(some.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.parametrize(("method", "path"), sorted(ENDPOINTS), ids=lambda each: str(each))
def test_no_call_of_the_wire_gives_a_server_error(
    wire: dict[str, Any], method: str, path: str
) -> None:
    client: httpx.Client = wire["client"]
    known = some.sampled_from(wire["known"])
    bodies = some.dictionaries(some.sampled_from(FIELDS), known | _odd, max_size=6)

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(body=bodies, word=known | some.text(max_size=12), raw=some.none() | some.binary())
    def send(body: dict[str, Any], word: str, raw: bytes | None) -> None:
        where = path
        for name in ("{file:path}", "{path:path}", "{model_id}", "{name}"):
            where = where.replace(name, quote(word))
        told = {"content": raw if raw is not None else json.dumps(body)}
        if method in ("GET", "DELETE") and raw is None:
            told = {"params": {name: _query(value) for name, value in body.items()}}
        try:
            answer = client.request(method, where, **told)
        except (httpx.InvalidURL, UnicodeError):
            return  # it cannot even be written as HTTP
        if NOT_DONE in path and answer.status_code == 501:
            return
        assert answer.status_code < 500, (answer.status_code, answer.text, where, told)
        assert answer.status_code != 401, "what is refused at the door tests nothing"
        if not answer.is_success and answer.text != "Invalid HTTP request received.":
            error = answer.json()
            assert error.get("error_code") or error["error"]["code"], error

    send()


def _query(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
