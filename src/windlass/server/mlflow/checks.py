"""What a request's fields may be: MLflow's own rules and limits, in its words.

Its server reads JSON into protobuf messages first, which takes numbers in quotes; so do we.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
from typing import Any

from windlass.server.mlflow.errors import MlflowError, invalid, missing, of_type, wrong

MAX_METRICS, MAX_PARAMS, MAX_TAGS, MAX_ENTITIES = 1000, 100, 100, 1000
MAX_KEY = 250
MAX_PARAM = 6000
MAX_TAG = 8000
MAX_NAME = 500
MAX_EXPERIMENT_TAG = 20_000
MAX_RESULTS = 50_000
MAX_EXPERIMENTS = 10_000

_NAME = re.compile(r"[/\w.\- :]*")
_RUN_ID = re.compile(r"[a-zA-Z0-9][\w\-]{0,255}")
_INT64 = 1 << 63
_CHARACTERS = (
    "Names may only contain alphanumerics, underscores (_), dashes (-), periods (.),"
    " spaces ( ), colon(:) and slashes (/)."
)
Fields = dict[str, Any]


def text(fields: Fields, name: str, *, required: bool = False) -> str:
    """A text field; "" where it is left out."""
    value = fields.get(name)
    if value is None or value == "":
        if required:
            raise missing(name)
        return ""
    if not isinstance(value, str):
        raise of_type(name, value)
    return value


def run_id_of(fields: Fields) -> str:
    """The run that is meant; by its older name too."""
    if fields.get("run_id") is None and "run_uuid" in fields:
        fields = {"run_id": fields["run_uuid"]}
    return text(fields, "run_id", required=True)


def whole(fields: Fields, name: str, *, required: bool = False, default: int = 0) -> int:
    """An integer of 64 bits; it may stand in quotes, as protobuf writes it."""
    value = fields.get(name)
    if value is None or value == "":
        if required:
            raise missing(name)
        return default
    number = _integer(value)
    if number is None:
        raise of_type(name, value)
    return number


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, str):
            value = int(value) if len(value) < 21 else None
        elif isinstance(value, float):
            value = int(value) if value.is_integer() else None
    except ValueError:
        return None
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def double(value: Any) -> float | None:
    """A number; NaN and the infinities by their names. None: it is none."""
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | str) and len(str(value)) < 400:
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None


def objects(fields: Fields, name: str, *, required: bool = False) -> list[Fields]:
    """A list of objects; [] where it is left out."""
    value = fields.get(name)
    if value is None:
        if required:
            raise missing(name)
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise of_type(name, value)
    return value


def texts(fields: Fields, name: str) -> list[str]:
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise of_type(name, value)
    return value


def experiment_ids(fields: Fields) -> list[str]:
    """Each once; as many as a statement can name."""
    found = list(dict.fromkeys(texts(fields, "experiment_ids")))
    if len(found) > MAX_EXPERIMENTS:
        raise invalid(f"experiment_ids has at most {MAX_EXPERIMENTS} ids. Got {len(found)}.")
    return found


def check_name(name: str, path: str) -> None:
    """The name of a metric, parameter or tag."""
    if _NAME.fullmatch(name) is None:
        raise invalid(wrong(path, name, _CHARACTERS))
    normal = posixpath.normpath(name)
    if normal != name or normal == "." or normal.startswith(("..", "/")):
        raise invalid(
            wrong(
                path,
                name,
                "Names may be treated as files in certain cases, and must not resolve to other "
                f"names when treated as such. This name would resolve to {normal!r}",
            )
        )


def check_length(what: str, limit: int, value: str) -> None:
    if len(value) > limit:
        raise invalid(f"'{what}' exceeds the maximum length of {limit} characters")


def check_run_id(run_id: str) -> None:
    if _RUN_ID.match(run_id) is None:
        raise invalid(wrong("run_id", run_id))


def metric(fields: Fields, path: str = "") -> tuple[str, float | None, int, int]:
    """(key, value, timestamp, step) of a metric in the words of `log-metric` (path "") or as one
    of a batch. The value is None for NaN, as it is stored."""
    dotted = f"{path}." if path else ""
    if path:
        for name in ("key", "value", "timestamp"):
            if fields.get(name) is None or fields[name] == "":
                raise missing(f"{dotted}{name}")
    key = fields["key"]
    if not isinstance(key, str):
        raise of_type(f"{dotted}key", key)
    value = double(fields["value"])
    if value is None:
        raise of_type(f"{dotted}value", fields["value"])
    at_ms = _integer(fields["timestamp"])
    if at_ms is None:
        raise of_type(f"{dotted}timestamp", fields["timestamp"])
    step = _integer(fields.get("step") or 0)
    if step is None:
        raise of_type(f"{dotted}step", fields["step"])
    check_name(key, f"{dotted}name")
    if at_ms < 0:
        raise invalid(
            wrong(
                f"{dotted}timestamp",
                at_ms,
                f"metric '{key}' (value={value}). "
                "Timestamp must be a nonnegative long (64-bit integer) ",
            )
        )
    check_length("Metric name", MAX_KEY, key)
    return key, None if math.isnan(value) else value, at_ms, step


def param(fields: Fields, path: str = "") -> tuple[str, str]:
    key, value = text(fields, "key"), text(fields, "value")
    check_name(key, f"{path}.key" if path else "key")
    check_length("Param key", MAX_KEY, key)
    return key, value[:MAX_PARAM]


def tag(fields: Fields, path: str = "") -> tuple[str, str]:
    key, value = text(fields, "key"), text(fields, "value")
    name = f"{path}.key" if path else "key"
    check_name(key, name)
    check_length(name, MAX_KEY, key)
    return key, value[:MAX_TAG]


def experiment_tag(fields: Fields) -> tuple[str, str]:
    key, value = text(fields, "key"), text(fields, "value")
    check_name(key, "key")
    check_length("key", MAX_KEY, key)
    check_length("value", MAX_EXPERIMENT_TAG, value)
    return key, value


def check_batch(metrics: int, params: int, tags: int) -> None:
    for what, limit, length in (
        ("metrics", MAX_METRICS, metrics),
        ("params", MAX_PARAMS, params),
        ("tags", MAX_TAGS, tags),
        ("metrics, params, and tags", MAX_ENTITIES, metrics + params + tags),
    ):
        if length > limit:
            raise invalid(
                f"A batch logging request can contain at most {limit} {what}. "
                f"Got {length} {what}. Please split up {what} across multiple"
                " requests and try again."
            )


def results(fields: Fields, default: int, *, strict: bool = False) -> int:
    """How many rows are asked for. `strict`: more than there may be is a wrong type, as theirs
    has it for runs."""
    number = whole(fields, "max_results", default=default)
    if strict and number > MAX_RESULTS:
        raise of_type("max_results", fields["max_results"])
    if number < 1:
        raise invalid(
            f"Invalid value {number} for parameter 'max_results' supplied. It must be "
            "a positive integer"
        )
    if number > MAX_RESULTS:
        raise invalid(
            f"Invalid value {number} for parameter 'max_results' supplied. It must be at "
            f"most {MAX_RESULTS}"
        )
    return number


def changed_params(run_id: str, key: str, old: str, new: str) -> MlflowError:
    return invalid(
        f"Changing param values is not allowed. Param with key='{key}' was already logged with "
        f"value='{old}' for run ID='{run_id}'. Attempted logging new value '{new}'."
    )


def view_of(fields: Fields, name: str) -> tuple[str, ...]:
    """Which of the living and the deleted are asked for."""
    value = fields.get(name) or "ACTIVE_ONLY"
    views = {
        "ACTIVE_ONLY": ("active",), "DELETED_ONLY": ("deleted",), "ALL": ("active", "deleted"),
        1: ("active",), 2: ("deleted",), 3: ("active", "deleted"),
    }  # fmt: skip
    known = _integer(value) if not isinstance(value, str) or value.isdigit() else None
    found = views.get(known if known is not None else json.dumps(value).strip('"'))
    if found is None:
        raise of_type(name, value)
    return found
