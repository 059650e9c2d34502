"""Names, versions and rows of the registry in MLflow's words."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from windlass.core.errors import NotFound
from windlass.core.modelrefs import name_problem
from windlass.core.models import Stage
from windlass.server.access.calls import spend
from windlass.server.http import exchange
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import MlflowError, absent, invalid, missing, of_type, wrong
from windlass.server.models import service

Row = dict[str, Any]
MAX_KEY = 250
MAX_VALUE = 100_000
_TAG_KEY = re.compile(r"[/\w.\- :]*")
_STAGES = {stage.lower(): stage for stage in Stage}


def text(fields: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    """A field that is a text; "" where there is none."""
    value = fields.get(name)
    if value is None or value == "":
        if required:
            raise missing(name)
        return ""
    if not isinstance(value, str):
        raise of_type(name, value)
    if "\0" in value:
        raise invalid(f"Invalid value for parameter '{name}': text without NUL is needed.")
    return value


def model_name(fields: Mapping[str, Any], field: str = "name") -> str:
    """As MLflow has it: without / and :, and no path that means another. And without what
    `NAME@ALIAS` could not be read with."""
    name = text(fields, field, required=True)
    if not name.strip():
        raise invalid(f"Missing value for required parameter '{field}'.")
    if "/" in name or ":" in name:
        raise invalid(f"Invalid model name '{name}'. Names cannot contain '/' or ':'.")
    if posixpath.normpath(name) != name or name in (".", ".."):
        raise invalid(
            wrong(
                "name", name,
                "Names may be treated as files in certain cases, and must not resolve to other "
                f"names when treated as such. This name would resolve to "
                f"{posixpath.normpath(name)!r}",
            )
        )  # fmt: skip
    if problem := name_problem(name):
        raise invalid(f"Invalid model name '{name}'. {problem[0].upper()}{problem[1:]} is needed.")
    return name


def version_number(fields: Mapping[str, Any]) -> int:
    value = text(fields, "version", required=True)
    try:
        number = int(value)
    except ValueError:
        raise invalid(f"Parameter 'version' must be an integer, got '{value}'.") from None
    return number if -(2**31) <= number < 2**31 else -1


def alias_name(fields: Mapping[str, Any], *, fresh: bool = False) -> str:
    alias = text(fields, "alias", required=True)
    if not re.fullmatch(r"[\w\-]*", alias):
        raise invalid(
            f"Invalid alias name: '{alias}'. Names may only contain alphanumerics, underscores "
            "(_), and dashes (-)."
        )
    if len(alias) > 255:
        raise invalid("'Registered model alias name' exceeds the maximum length of 255 characters")
    if fresh and alias.lower() == "latest":
        raise invalid("'latest' alias name (case insensitive) is reserved.")
    if fresh and re.fullmatch(r"[vV]?\d+", alias):
        raise invalid(f"Version alias name '{alias}' is reserved.")
    return alias


def stage_of(word: str) -> Stage:
    if word.lower() not in _STAGES:
        listed = ", ".join(Stage)
        raise invalid(f"Invalid Model Version stage: {word}. Value must be one of {listed}.")
    return _STAGES[word.lower()]


def tag_key(fields: Mapping[str, Any]) -> str:
    key = text(fields, "key", required=True)
    if not _TAG_KEY.fullmatch(key):
        raise invalid(
            wrong(
                "key", key,
                "Names may only contain alphanumerics, underscores (_), dashes (-), periods (.),"
                " spaces ( ), colon(:) and slashes (/).",
            )
        )  # fmt: skip
    if posixpath.normpath(key) != key or key.startswith(("/", "..")):
        raise invalid(
            wrong(
                "key", key,
                "Names may be treated as files in certain cases, and must not resolve to other "
                f"names when treated as such. This name would resolve to "
                f"{posixpath.normpath(key)!r}",
            )
        )  # fmt: skip
    if len(key) > MAX_KEY:
        raise invalid(f"'key' exceeds the maximum length of {MAX_KEY} characters")
    return key


def tag_value(fields: Mapping[str, Any]) -> str:
    value = text(fields, "value")
    if len(value) > MAX_VALUE:
        raise invalid(f"'value' exceeds the maximum length of {MAX_VALUE} characters")
    return value


def tags_of(fields: Mapping[str, Any]) -> dict[str, str]:
    listed = fields.get("tags") or []
    if not isinstance(listed, list) or not all(isinstance(tag, dict) for tag in listed):
        raise of_type("tags", fields.get("tags"))
    return {tag_key(tag): tag_value(tag) for tag in listed}


def find_model(conn: Connection, asked: Asked, name: str, *, change: bool = False) -> Row:
    try:
        return service.find(conn, asked.project_id, name, change=change)
    except NotFound:
        raise absent(f"Registered Model with name={name} not found") from None


def find_version(
    conn: Connection, asked: Asked, name: str, number: int, *, change: bool = False
) -> tuple[Row, Row]:
    """The model and the version."""
    try:
        model = service.find(conn, asked.project_id, name, change=change)
        if number < 1:
            raise NotFound("numbers begin with 1")
        return model, service.find_version(conn, model, str(number))
    except NotFound:
        raise absent(f"Model Version (name={name}, version={number}) not found") from None


def told(conn: Connection, asked: Asked, action: str, about: str, **details: Any) -> None:
    """What changes the registry stands in the audit log, as when it is done by our own API."""
    call = exchange.of(asked.request.scope).call
    if call is not None:
        spend(conn, call, about=about, action=action, **details)


def taken(name: str) -> MlflowError:
    return MlflowError(
        "RESOURCE_ALREADY_EXISTS", f"Registered Model (name={name}) already exists."
    )


def version_wire(name: str, row: Mapping[str, Any], aliases: Sequence[str] = ()) -> Row:
    wire: Row = {
        "name": name, "version": str(row["number"]), "creation_timestamp": row["created_ms"],
        "last_updated_timestamp": row["changed_ms"], "description": row["description"],
        "current_stage": row["stage"], "source": row["source"], "status": "READY",
        "run_link": row["run_link"],
    }  # fmt: skip
    if row["run_id"] is not None:
        wire["run_id"] = row["run_id"]
    if row["tags"]:
        wire["tags"] = _tags(row["tags"])
    if aliases:
        wire["aliases"] = list(aliases)
    return wire


def model_wire(
    row: Mapping[str, Any], latest: Sequence[Mapping[str, Any]], aliases: Mapping[str, int]
) -> Row:
    wire: Row = {
        "name": row["name"], "creation_timestamp": row["created_ms"],
        "last_updated_timestamp": row["changed_ms"],
    }  # fmt: skip
    if row["description"]:
        wire["description"] = row["description"]
    if latest:
        wire["latest_versions"] = [version_wire(row["name"], each) for each in latest]
    if row["tags"]:
        wire["tags"] = _tags(row["tags"])
    if aliases:
        wire["aliases"] = [
            {"alias": alias, "version": str(number)} for alias, number in aliases.items()
        ]
    return wire


def latest_of(versions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest version of each stage, in the order in which stages were first used."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in sorted(versions, key=lambda row: row["number"]):
        found[row["stage"]] = row
    return list(found.values())


def _tags(tags: Mapping[str, str]) -> list[Row]:
    return [{"key": key, "value": value} for key, value in sorted(tags.items())]
