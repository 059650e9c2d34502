"""The file of quotas: read and checked, compared with what is there; and the flags' amounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.cli.jobfile import text_of
from windlass.client import documents
from windlass.core.errors import InvalidInput

WORKS = ("train", "notebook", "serve")


def read(path: str) -> dict[str, Any]:
    """The one document of a file (`-`: stdin), checked. Raises InvalidInput."""
    found = documents.load(text_of(path), path)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise InvalidInput(
            f"{path}: one document with `cohorts` is needed",
            hint="`windlass quota ls -o yaml` writes one",
        )
    return _checked(found[0], path)


def plan(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What would change, a line for each quota: `+` made, `~` changed, `-` removed."""
    before, after = _flat(old), _flat(new)
    lines = []
    for name in sorted({*before, *after}):
        if name not in before:
            lines.append(f"+ {name}: {_words(after[name])}")
        elif name not in after:
            lines.append(f"- {name}")
        elif before[name] != after[name]:
            changed = [
                f"{field} {_words(before[name].get(field))} → {_words(after[name].get(field))}"
                for field in after[name]
                if before[name].get(field) != after[name].get(field)
            ]
            lines.append(f"~ {name}: {'; '.join(changed)}")
    return lines


def amount(flag: str, text: str) -> tuple[str, Any]:
    """`gpus=8`, `memory=64GiB`, `gpus:H200=none` → (resource, amount); None takes it out."""
    from pydantic_core import PydanticCustomError

    from windlass.core.quotas import units

    resource, equals, value = text.rpartition("=")
    if not equals or not resource or not value:
        raise InvalidInput(f"{flag}: {text!r} is not RESOURCE=AMOUNT", hint="such as gpus=8")
    given: Any = value
    if resource != "memory" or value.isdigit():
        try:
            given = float(value) if not value.isdigit() else int(value)
        except ValueError:
            given = value
    try:
        units(resource, 0 if value == "none" else given)
    except PydanticCustomError as err:
        raise InvalidInput(f"{flag} {text}: {err.message()}") from None
    return resource, None if value == "none" else given


def with_caps(known: Sequence[Mapping[str, Any]], given: Sequence[str]) -> list[dict[str, Any]]:
    """The caps with changes: `notebook:gpus=2`, `user=ann:gpus=4`, `serve,user=ann:cpus=8`."""
    caps = {(cap.get("kind"), cap.get("user")): dict(cap["limits"]) for cap in known}
    for text in given:
        whom, colon, rest = text.partition(":")
        if not colon:
            raise InvalidInput(
                f"--cap: {text!r} is not WHO:RESOURCE=AMOUNT", hint="such as notebook:gpus=2"
            )
        kind: str | None = None
        user: str | None = None
        for word in whom.split(","):
            if word.startswith("user="):
                user = word.removeprefix("user=")
            elif word in WORKS:
                kind = word
            else:
                raise InvalidInput(
                    f"--cap {text}: {word!r} is neither user=NAME nor one of {', '.join(WORKS)}"
                )
        resource, value = amount("--cap", rest)
        limits = caps.setdefault((kind, user), {})
        limits[resource] = value
        if value is None:
            del limits[resource]
    return [
        {"kind": kind, "user": user, "limits": limits}
        for (kind, user), limits in caps.items()
        if limits
    ]


def _checked(document: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The file as the server would write it down: amounts in one spelling."""
    from pydantic import ValidationError

    from windlass.core.explain import explain
    from windlass.core.quotas import QuotaFile

    try:
        return QuotaFile.model_validate(_filled(document)).model_dump(mode="json")
    except ValidationError as err:
        raise explain(err.errors(), QuotaFile, path) from None


def _filled(value: Mapping[str, Any]) -> dict[str, Any]:
    """`vision:` with nothing behind it is a quota with nothing in it; and the spellings that the
    simulator takes beside ours."""
    return {
        key: {name: _spelled(body) for name, body in inner.items()}
        if key in ("cohorts", "tenants") and isinstance(inner, Mapping)
        else inner
        for key, inner in value.items()
    }


def _spelled(body: Any) -> Any:
    """`reclaim: any` is `reclaim_any: true`, `memory_gb: 64` is `memory: 64GiB`."""
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        return body
    entry = _filled(body)
    if entry.get("reclaim") in ("any", "lower") and "reclaim_any" not in entry:
        entry["reclaim_any"] = entry.pop("reclaim") == "any"
    for field in ("nominal", "borrow", "lend"):
        given = entry.get(field)
        if isinstance(given, Mapping) and "memory_gb" in given and "memory" not in given:
            size = given["memory_gb"]
            if isinstance(size, int | float) and 0 <= size <= 2**30:
                rest = {key: value for key, value in given.items() if key != "memory_gb"}
                entry[field] = {**rest, "memory": round(size * 2**30)}
    return entry


def _flat(file: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    from windlass.core.quotas import QuotaFile, human_amounts

    found = {}
    for entry in QuotaFile.model_validate(dict(file)).entries():
        fields: dict[str, Any] = {
            "cohort": entry.parent,
            **{f: human_amounts(getattr(entry, f)) for f in ("nominal", "borrow", "lend")},
            "weight": entry.weight / 1000,
            "reclaim_any": entry.reclaim_any,
            "caps": [cap.model_dump(mode="json", exclude_none=True) for cap in entry.caps],
        }
        found[entry.name] = fields
    return found


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{key} {_words(item)}" for key, item in value.items() if item not in ({}, [], None)
        )
        return inner or "nothing"
    if isinstance(value, list):
        return "; ".join(map(_words, value)) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
