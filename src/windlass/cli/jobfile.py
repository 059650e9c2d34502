"""Job files: read with the strict YAML of `client.documents`, checked field by field."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from windlass.client import documents
from windlass.core.errors import InvalidInput


def read(path: str, kinds: Sequence[str] = ("job",)) -> list[dict[str, Any]]:
    """The documents of a file (`-`: stdin), unchecked but for their form and kind."""
    return parse(text_of(path), path, kinds)


def text_of(path: str) -> str:
    """What `-f` names: a file, or `-` for stdin. Raises InvalidInput."""
    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as err:
        why = getattr(err, "strerror", None) or str(err)
        raise InvalidInput(f"-f: {path} cannot be read: {why}") from err


def parse(
    text: str, path: str = "the file", kinds: Sequence[str] = ("job",)
) -> list[dict[str, Any]]:
    found = documents.load(text, path)
    for document in found:
        if not isinstance(document, dict):
            raise InvalidInput(f"{path}: a job is a mapping of fields, not {document!r:.60}")
        if document.get("kind", "job") not in kinds:
            known = ", ".join(kinds)
            raise InvalidInput(f"{path}: kind: {document['kind']!r} is not known; known: {known}")
    if not found:
        raise InvalidInput(f"{path} is empty", hint="`windlass init` writes an example")
    return found


def check(document: Mapping[str, Any], path: str = "the file") -> None:
    """Raises InvalidInput that names the field, what was found and what is known."""
    from pydantic import ValidationError

    from windlass.core.jobs import JobSpec

    try:
        JobSpec.model_validate(document)
    except ValidationError as err:
        lines = [explain(error, document) for error in err.errors()]
        raise InvalidInput(f"{path}: " + "; ".join(dict.fromkeys(lines))) from None


def explain(error: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    from windlass.core.jobs import JobSpec

    location = error["loc"]
    where = ".".join(str(part) for part in location) or "job"
    if error["type"] == "extra_forbidden":
        known = _fields(JobSpec, location[:-1])
        near = get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{where}: no such field; {hint}known: {', '.join(known)}"
    found = error.get("input")
    shown = "" if isinstance(found, dict | list | tuple) else f" (found {found!r:.80})"
    return f"{where}: {error['msg'][:1].lower()}{error['msg'][1:]}{shown}"


def _fields(model: Any, location: tuple[Any, ...]) -> list[str]:
    """The fields known at a place of a spec, following the types."""
    for part in location:
        fields = getattr(model, "model_fields", None)
        if fields is not None:
            model = fields[part].annotation if part in fields else None
        elif get_args(model):
            model = get_args(model)[-1]  # dict[Name, RoleSpec]: the key is any name
    return list(getattr(model, "model_fields", {}))
