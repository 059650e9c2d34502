"""Job files: YAML without its traps, checked field by field.

Plain YAML 1.1 reads the key `on` as a truth, `1e-3` as text and `2024-01-01` as a date, and lets
a key stand twice. Here only `true` and `false` are truths, numbers are as in JSON, dates are
text, and a key given twice is an error that names the line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

import yaml

from windlass.core.errors import InvalidInput


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise InvalidInput(f"line {line}: the key {key!r} is not text")
            if key in seen:
                raise InvalidInput(
                    f"line {line}: {key!r} stands twice (first on line {seen[key]})"
                )
            seen[key] = line
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false)$", "tf"),
    ("null", r"^(?:null|~|)$", "n~"),
    ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])


def _number(loader: yaml.SafeLoader, node: yaml.Node) -> int | float:
    """Plain decimal, so that 1e-3 is a number and 017 is seventeen."""
    assert isinstance(node, yaml.ScalarNode)
    text = str(loader.construct_scalar(node))
    return int(text) if node.tag.endswith(":int") else float(text)


_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)


def read(path: str) -> list[dict[str, Any]]:
    """The documents of a file (`-`: stdin), unchecked but for their form."""
    try:
        if path == "-":
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
    except (OSError, UnicodeDecodeError) as err:
        why = getattr(err, "strerror", None) or str(err)
        raise InvalidInput(f"-f: {path} cannot be read: {why}") from err
    return parse(text, path)


def parse(text: str, path: str = "the file") -> list[dict[str, Any]]:
    try:
        found = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except InvalidInput as err:
        raise InvalidInput(f"{path}: {err.message}") from None
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        where = f" line {mark.line + 1}:" if mark else ""
        raise InvalidInput(f"{path}:{where} {getattr(err, 'problem', None) or err}") from err
    for document in found:
        if not isinstance(document, dict):
            raise InvalidInput(f"{path}: a job is a mapping of fields, not {document!r:.60}")
        if document.get("kind", "job") != "job":
            raise InvalidInput(f"{path}: kind: {document['kind']!r} is not known; known: job")
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
