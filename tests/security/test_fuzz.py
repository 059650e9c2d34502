"""Whatever a caller who has a key sends, the server answers with an answer: never a 5xx, and
always in the form that the OpenAPI document promises.

Requests are made from the document itself, valid ones and broken ones, signed and sent to a real
server; a worker's and a script's routes get the tokens of a real attempt.
"""

from __future__ import annotations

import collections
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
from windlass.testing.platform import Platform, read_json, wait_for

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
METHODS = ("get", "post", "put", "delete")
DOCUMENT_HAS = 33
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
            platform.url + "/api/v1/openapi.json", timeout=10
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
            response = self.session.send(request, timeout=20, stream=True)
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
        elif path.startswith("/api/v1/run"):
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
    from docs.writers.api import routes

    found = [(method.lower(), path) for method, path, _ in routes()]
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
        seen.append(response and response.status_code)
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

    seen: list[int | None] = []
    send()
    print(method, path, sorted(collections.Counter(map(str, seen)).items()))


def test_the_server_never_made_a_mistake(target: Target):
    """Runs after the routes above: nothing was answered well that was logged as an error."""
    assert "Traceback" not in target.platform.log()
    assert target.platform.call("GET", "/health").status_code == 200
    assert read_json(target.platform.note)["pid"] and os.path.exists(target.platform.home)
