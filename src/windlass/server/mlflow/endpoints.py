"""Which of MLflow's endpoints there are, and the right that each needs. Nothing else of its wire
is answered: its other 150 routes are where others were broken into.

A handler is named, not imported: a server that no MLflow client ever calls does not load them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from windlass.core.access import Right

Handler = Callable[[Any], Awaitable[Any]]
"""`async def handler(asked: Asked) -> dict | Response`."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_READ, _WRITE = Right.TRACK_READ, Right.TRACK_WRITE
_CHANGES = (Right.MODEL_WRITE, Right.MODEL_REMOVE)
_REMOVALS = ("experiments/delete", "experiments/restore", "runs/delete", "runs/restore")


@dataclass(frozen=True, slots=True)
class Endpoint:
    right: Right
    handler: str
    """`module:function`, the module below `windlass.server.mlflow` unless it is a whole name."""
    stream: bool = False
    """The handler reads the body itself, piece by piece."""
    audited: bool = False
    """What it changes stands in the audit log: its handler writes the row, and spends the
    signature of a signed call with it. Of the others (metrics, parameters, tags: they come in
    streams) the signature is spent at the door."""


def _api(*rows: tuple[str, str, Right, str]) -> dict[tuple[str, str], Endpoint]:
    return {
        (method, "/api/2.0/mlflow/" + path): Endpoint(
            right, handler, audited=right in _CHANGES or path in _REMOVALS
        )
        for method, path, right, handler in rows
    }


TRACKING: dict[tuple[str, str], Endpoint] = {
    ("GET", "/health"): Endpoint(_READ, "about:health"),
    ("GET", "/version"): Endpoint(_READ, "about:version"),
    ("GET", "/api/3.0/mlflow/server-info"): Endpoint(_READ, "about:server_info"),
    **_api(
        ("POST", "experiments/create", _WRITE, "experiments:create"),
        ("GET", "experiments/get", _READ, "experiments:get"),
        ("GET", "experiments/get-by-name", _READ, "experiments:get_by_name"),
        ("POST", "experiments/search", _READ, "experiments:search"),
        ("GET", "experiments/search", _READ, "experiments:search"),
        ("POST", "experiments/update", _WRITE, "experiments:update_"),
        ("POST", "experiments/delete", _WRITE, "experiments:delete_"),
        ("POST", "experiments/restore", _WRITE, "experiments:restore"),
        ("POST", "experiments/set-experiment-tag", _WRITE, "experiments:set_tag"),
        ("POST", "experiments/delete-experiment-tag", _WRITE, "experiments:delete_tag"),
        ("POST", "runs/create", _WRITE, "runs:create"),
        ("GET", "runs/get", _READ, "runs:get"),
        ("POST", "runs/update", _WRITE, "runs:update_"),
        ("POST", "runs/search", _READ, "runs:search"),
        ("POST", "runs/delete", _WRITE, "runs:delete_"),
        ("POST", "runs/restore", _WRITE, "runs:restore"),
        ("POST", "runs/log-metric", _WRITE, "log:log_metric"),
        ("POST", "runs/log-parameter", _WRITE, "log:log_parameter"),
        ("POST", "runs/log-batch", _WRITE, "log:log_batch"),
        ("POST", "runs/set-tag", _WRITE, "log:set_tag"),
        ("POST", "runs/delete-tag", _WRITE, "log:delete_tag"),
        ("POST", "runs/log-inputs", _WRITE, "inputs:log_inputs"),
        ("POST", "runs/outputs", _WRITE, "inputs:log_outputs"),
        ("GET", "metrics/get-history", _READ, "runs:metric_history"),
        ("POST", "logged-models", _WRITE, "logged_models:create"),
        ("POST", "logged-models/search", _READ, "logged_models:search"),
        ("GET", "logged-models/{model_id}", _READ, "logged_models:get"),
        ("PATCH", "logged-models/{model_id}", _WRITE, "logged_models:finish"),
        ("DELETE", "logged-models/{model_id}", _WRITE, "logged_models:delete_"),
        ("PATCH", "logged-models/{model_id}/tags", _WRITE, "logged_models:set_tags"),
        ("DELETE", "logged-models/{model_id}/tags/{key}", _WRITE, "logged_models:delete_tag"),
        ("POST", "logged-models/{model_id}/params", _WRITE, "logged_models:add_params"),
    ),
}

_SEE, _REGISTER, _REMOVE = Right.MODEL_READ, Right.MODEL_WRITE, Right.MODEL_REMOVE
_FILES = "/api/2.0/mlflow-artifacts/artifacts"
_PARTS = "/api/2.0/mlflow-artifacts/mpu"

REGISTRY: dict[tuple[str, str], Endpoint] = {
    **_api(
        ("POST", "registered-models/create", _REGISTER, "registry:create"),
        ("GET", "registered-models/get", _SEE, "registry:get"),
        ("PATCH", "registered-models/update", _REGISTER, "registry:update"),
        ("POST", "registered-models/rename", _REGISTER, "registry:rename"),
        ("DELETE", "registered-models/delete", _REMOVE, "registry:delete"),
        ("GET", "registered-models/search", _SEE, "registry:search"),
        ("POST", "registered-models/get-latest-versions", _SEE, "registry:latest_versions"),
        ("GET", "registered-models/get-latest-versions", _SEE, "registry:latest_versions"),
        ("POST", "registered-models/set-tag", _REGISTER, "registry:set_tag"),
        ("DELETE", "registered-models/delete-tag", _REGISTER, "registry:delete_tag"),
        ("POST", "registered-models/alias", _REGISTER, "registry:set_alias"),
        ("GET", "registered-models/alias", _SEE, "registry:get_by_alias"),
        ("DELETE", "registered-models/alias", _REGISTER, "registry:delete_alias"),
        ("POST", "model-versions/create", _REGISTER, "model_versions:create"),
        ("GET", "model-versions/get", _SEE, "model_versions:get"),
        ("PATCH", "model-versions/update", _REGISTER, "model_versions:update"),
        ("DELETE", "model-versions/delete", _REMOVE, "model_versions:delete"),
        ("GET", "model-versions/search", _SEE, "model_versions:search"),
        ("GET", "model-versions/get-download-uri", _SEE, "model_versions:download_uri"),
        ("POST", "model-versions/transition-stage", _REGISTER, "model_versions:transition"),
        ("POST", "model-versions/set-tag", _REGISTER, "model_versions:set_tag"),
        ("DELETE", "model-versions/delete-tag", _REGISTER, "model_versions:delete_tag"),
        ("GET", "artifacts/list", _READ, "artifacts:of_run"),
    ),
    ("GET", _FILES): Endpoint(_READ, "artifacts:listing"),
    ("GET", _FILES + "/{file:path}"): Endpoint(_READ, "artifacts:get"),
    ("PUT", _FILES + "/{file:path}"): Endpoint(_WRITE, "artifacts:put", stream=True),
    ("DELETE", _FILES + "/{file:path}"): Endpoint(_WRITE, "artifacts:delete", audited=True),
    ("POST", _PARTS + "/create/{file:path}"): Endpoint(_WRITE, "artifacts:in_parts"),
    ("POST", _PARTS + "/complete/{file:path}"): Endpoint(_WRITE, "artifacts:in_parts"),
    ("POST", _PARTS + "/abort/{file:path}"): Endpoint(_WRITE, "artifacts:in_parts"),
}
"""Models, versions, aliases and files."""

ENDPOINTS = {**TRACKING, **REGISTRY}


def find(method: str, path: str) -> tuple[Endpoint, dict[str, str]] | None:
    """The endpoint of a path below `/mlflow/<project>`, and what its template names in it."""
    found = ENDPOINTS.get((method, path))
    if found is not None:
        return found, {}
    for asked, pattern, endpoint in _templates():
        if asked == method and (match := pattern.fullmatch(path)):
            return endpoint, match.groupdict()
    return None


@cache
def handler_of(endpoint: Endpoint) -> Handler:
    module, _, name = endpoint.handler.partition(":")
    if "." not in module:
        module = f"windlass.server.mlflow.{module}"
    handler: Handler = getattr(importlib.import_module(module), name)
    return handler


@cache
def _templates() -> list[tuple[str, re.Pattern[str], Endpoint]]:
    return [
        (method, _pattern(template), endpoint)
        for (method, template), endpoint in ENDPOINTS.items()
        if "{" in template
    ]


def _pattern(template: str) -> re.Pattern[str]:
    text = re.escape(template).replace(r"\{", "{").replace(r"\}", "}")
    text = re.sub(r"\{(\w+):path\}", r"(?P<\1>.+)", text)
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", text), re.DOTALL)
