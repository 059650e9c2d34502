"""Whatever a caller who has a key sends, the server answers with an answer: never a 5xx, and
always in the form that the OpenAPI document promises.

Requests are made from the document itself, valid ones and broken ones, signed and sent to a real
server; a worker's and a script's routes get the tokens of a real attempt.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from windlass.core.signing import sign
from windlass.testing.platform import Platform, wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of schemathesis's own imports
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", 12))
ENDLESS = ("/stream", "/feed")


class Target:
    """A server with something in it, and the credentials of everyone who may call."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        finished = platform.submit("echo hello", name="finished")
        platform.wait(finished)
        self.finished = finished.id
        hold = [sys.executable, "-c", "import os, time; print(os.environ['WINDLASS_TOKEN'],"
                " flush=True); time.sleep(600)"]  # fmt: skip
        running = platform.submit(hold, name="running")
        platform.wait_state(running, "running")
        wait_for(lambda: platform.logs(running).strip(), 10, "the script tells its token")
        self.run_token = platform.logs(running).strip()
        self.worker_token = (platform.attempts(running)[0] / "token").read_text().strip()
        self.session = requests.Session()
        self.session.trust_env = False
        self.document: dict[str, Any] = self.session.get(
            platform.url + "/api/v1/openapi.json", timeout=60
        ).json()

    def send(self, case: Any) -> requests.Response | None:
        """Sign and send a case; None when it cannot even be written as HTTP."""
        words = case.as_transport_kwargs(base_url=self.platform.url)
        for name in ("wait", "seconds"):  # waiting is tested elsewhere
            if isinstance(words.get("params"), dict) and name in words["params"]:
                words["params"][name] = 0
        if isinstance(words.get("json"), dict) and "seconds" in words["json"]:
            words["json"]["seconds"] = 1
        try:
            request = requests.Request(
                **{name: words.get(name) for name in _PARTS if name in words}
            ).prepare()
        except (requests.RequestException, UnicodeError, ValueError):
            return None
        self.credit(request, case.operation.path)
        try:
            response = self.session.send(request, timeout=60, stream=True)
        except (requests.exceptions.InvalidHeader, UnicodeError):
            return None
        if response.headers.get("Content-Type", "").startswith("text/event-stream"):
            response._content = b""
            response.close()
        else:
            _ = response.content
        return response

    def credit(self, request: requests.PreparedRequest, path: str) -> None:
        headers = request.headers
        if path.startswith("/api/v1/worker"):
            headers["Authorization"] = f"Bearer {self.worker_token}"
        elif path.startswith("/api/v1/run/"):
            headers["Authorization"] = f"Bearer {self.run_token}"
        else:
            key = self.platform.credentials()
            headers["Host"] = self.platform.url.partition("//")[2]
            body = request.body or b""
            whole = {
                _text(name): _text(value)
                for name, value in headers.items()
                if _text(name).lower() in ("host", "content-type", "idempotency-key")
                or _text(name).lower().startswith("x-wl-")
            }
            headers.update(
                sign(
                    str(request.method), str(request.url), whole,
                    body if isinstance(body, bytes) else str(body).encode(),
                    key["access_key"], key["secret_key"], int(time.time() * 1000),
                )
            )  # fmt: skip


_PARTS = ("method", "url", "headers", "params", "json", "data", "cookies")


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Platform(tmp_path_factory.mktemp("fuzz") / "home") as platform:
        found = Target(platform)
        yield found
        found.session.close()


def _operations() -> list[tuple[str, str]]:
    """(method, path) of all routes, those that end the attempt's own story last."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from docs.writers.api import PAGES, routes

    # MLflow's wire has a form of its own, and a test of its own: test_fuzz_wire.py.
    every = [(method.lower(), path) for method, path, _ in routes()]
    found = [
        (method, path.replace(":path}", "}"))
        for method, path in every
        if not path.startswith("/mlflow/") and path != PAGES
    ]
    return sorted(found, key=lambda each: ("worker" in each[1], "ended" in each[1], each[1]))


@pytest.mark.parametrize(("method", "path"), _operations(), ids=lambda each: str(each))
def test_no_request_to_a_route_gives_a_server_error(target: Target, method: str, path: str):
    schema = schemathesis.openapi.from_dict(target.document)
    operation = schema[path][method]
    modes = [schemathesis.GenerationMode.POSITIVE]
    if list(operation.iter_parameters()) or operation.body:
        modes.append(schemathesis.GenerationMode.NEGATIVE)
    real = {"ref": target.finished} if "{ref}" in path and method != "delete" else None
    cases = [
        operation.as_strategy(generation_mode=mode, path_parameters=given)
        for mode in modes
        for given in ([None, real] if real else [None])
    ]

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=some.one_of(cases))
    def send(case: Any) -> None:
        response = target.send(case)
        seen.append(0 if response is None else response.status_code)
        if response is None:
            return
        assert response.status_code < 500, (response.status_code, response.text, case)
        if path.endswith(ENDLESS) and response.ok:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            return
        if response.text == "Invalid HTTP request received.":
            return  # it was not HTTP, and never reached us
        if not response.ok:
            error = response.json()["error"]
            assert error["code"] and error["message"], error
        elif response.status_code != 204:
            case.validate_response(response, checks=CHECKS)

    seen: list[int] = []
    send()
    if not path.startswith("/api/v1/login"):  # where a wrong password is refused so
        assert 401 not in seen, "what is refused at the door tests nothing"


_odd = some.one_of(
    some.none(), some.booleans(), some.integers(), some.floats(allow_nan=False), some.text(),
    some.lists(some.text(max_size=8), max_size=3),
    some.dictionaries(some.text(max_size=8), some.integers() | some.text(max_size=8), max_size=3),
)  # fmt: skip
_role = some.fixed_dictionaries(
    {},
    optional={
        "count": some.integers(1, 5) | _odd, "gpus": some.integers(0, 2) | _odd,
        "memory": some.sampled_from(["1GiB", "0", "1e3", ""]) | _odd, "run": some.just("x") | _odd,
        "finish": some.sampled_from(["all", "first", "never"]) | _odd, "vars": _odd,
    },
)  # fmt: skip
_spec = some.fixed_dictionaries(
    {"run": some.sampled_from(["true", "echo ${a}", ["python", "x.py"]]) | _odd},
    optional={
        "name": some.sampled_from(["a", "A", "x" * 41]) | _odd, "hold": some.just(True) | _odd,
        "params": some.dictionaries(some.sampled_from("ab"), _odd, max_size=2),
        "roles": some.dictionaries(some.sampled_from(["worker", "ps", "é"]), _role, max_size=3),
        "workers": some.integers(-1, 3) | _odd, "ttl": some.sampled_from(["1s", "9" * 30]) | _odd,
        "limits": some.dictionaries(some.sampled_from(["time", "idle", "grace"]), _odd),
        "retry": some.dictionaries(some.sampled_from(["times", "on", "never", "backoff"]), _odd),
        "environment": some.dictionaries(some.sampled_from(["vars", "python"]), _odd),
        "code": some.dictionaries(some.sampled_from(["bundle", "dir", "ignore"]), _odd),
    },
)  # fmt: skip


def test_no_job_that_can_be_described_gives_a_server_error(target: Target):
    """Nearly right specs come further than those made from the schema."""

    @settings(
        max_examples=EXAMPLES * 10, deadline=None, database=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(spec=_spec)
    def send(spec: dict[str, Any]) -> None:
        answer = target.platform.call("POST", "/jobs", {"spec": spec, "dry_run": True})
        assert answer.status_code in (200, 409, 422), (answer.status_code, answer.text, spec)

    send()


def test_the_server_never_made_a_mistake(target: Target):
    """Runs after the routes above: nothing was answered well that was logged as an error."""
    assert "Traceback" not in target.platform.log()
    assert target.platform.call("GET", "/health").status_code == 200
