"""The OpenAPI document is complete and hangs together: clients are generated from it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))  # `docs` is part of the checkout, not of the package

from docs.writers.api import PAGES, application, routes  # noqa: E402

from windlass.core.access import Right  # noqa: E402

DOCUMENT: dict[str, Any] = application().openapi()
ROUTES = [
    (method, path.replace(":path}", "}"), mark)
    for method, path, mark in routes()
    if not path.startswith("/mlflow/")  # MLflow's own form: its clients know it
    and path != PAGES
]


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


EVERY = [pytest.param(*each, id=f"{each[0]} {each[1]}") for each in operations()]


def test_it_names_every_route_and_no_other():
    described = {(method.upper(), path) for method, path, _ in operations()}
    assert described == {(method, path) for method, path, _ in ROUTES}


def test_it_says_what_it_is():
    assert DOCUMENT["openapi"].startswith("3.1")
    assert DOCUMENT["info"]["title"] and DOCUMENT["info"]["version"]
    assert DOCUMENT["info"]["description"]


def test_names_for_clients_are_unique_and_plain():
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names), names


def test_every_reference_leads_somewhere():
    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from walk(each)

    schemas = DOCUMENT["components"]["schemas"]
    used = {ref.removeprefix("#/components/schemas/") for ref in walk(DOCUMENT)}
    assert used <= set(schemas), used - set(schemas)
    assert set(schemas) <= used, f"nobody uses {set(schemas) - used}"


@pytest.mark.parametrize(("method", "path", "operation"), EVERY)
def test_an_operation_is_complete(method: str, path: str, operation: dict[str, Any]):
    assert operation["description"] and operation["tags"]
    inside = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
    assert inside == set(re.findall(r"{(\w+)}", path))
    assert all(each.get("schema") for each in operation.get("parameters", ()))
    assert ("requestBody" in operation) == (method in ("post", "put"))
    well = {code: each for code, each in operation["responses"].items() if code != "default"}
    assert well and "422" not in well
    for code, answer in well.items():
        assert answer["description"]
        assert ("content" in answer) == (code != "204"), f"{code} does not say what it answers"
    error = operation["responses"]["default"]["content"]["application/json"]["schema"]
    assert error == {"$ref": "#/components/schemas/Error"}


@pytest.mark.parametrize(("method", "path", "operation"), EVERY)
def test_an_operation_says_who_may_call_it(method: str, path: str, operation: dict[str, Any]):
    mark = next(m for a, b, m in ROUTES if (a.lower(), b) == (method, path))
    wanted = {
        Right.PUBLIC: [], Right.WORKER: [{"token": []}], Right.RUN: [{"token": []}],
    }.get(mark, [{"signature": []}, {"token": []}])  # fmt: skip
    assert operation["security"] == wanted
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert all(name in schemes for each in wanted for name in each)


def kinds(method: str, path: str, code: str = "200") -> set[str]:
    return set(DOCUMENT["paths"][path][method]["responses"][code]["content"])


def test_streams_are_told_from_json():
    for path in ("/api/v1/feed", "/api/v1/jobs/{ref}/stream"):
        assert kinds("get", path) == {"text/event-stream"}
    assert kinds("get", "/api/v1/jobs/{ref}/logs") == {"text/plain", "application/x-ndjson"}
    assert kinds("get", "/api/v1/worker/blobs/{digest}") == {"application/octet-stream"}
    blob = DOCUMENT["paths"]["/api/v1/blobs/{digest}"]["put"]["requestBody"]["content"]
    assert set(blob) == {"application/octet-stream"}


def test_a_dry_run_answers_otherwise_than_a_submit():
    answers = DOCUMENT["paths"]["/api/v1/jobs"]["post"]["responses"]
    refs = {
        code: answers[code]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for code in ("200", "201")
    }
    assert refs == {"200": "DryRun", "201": "JobView"}
