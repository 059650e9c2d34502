"""YAML without its traps, for job files of ours and of others.

Plain YAML 1.1 reads the key `on` as a truth, `1e-3` as text and `2024-01-01` as a date, and lets
a key stand twice. Here only `true` and `false` are truths, numbers are as in JSON, dates are
text, and a key given twice is an error that names the line.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from windlass.core.errors import InvalidInput


class StrictLoader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise InvalidInput(f"line {line}: the key {key!r:.60} is not text")
            if key in seen:
                raise InvalidInput(
                    f"line {line}: {key!r:.60} stands twice (first on line {seen[key]})"
                )
            seen[key] = line
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false)$", "tf"),
    ("null", r"^(?:null|~|)$", "n~"),
    ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
):
    StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first)
    )
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])


def _number(loader: yaml.SafeLoader, node: yaml.Node) -> int | float:
    """Plain decimal, so that 1e-3 is a number and 017 is seventeen."""
    assert isinstance(node, yaml.ScalarNode)
    text = str(loader.construct_scalar(node))
    return int(text) if node.tag.endswith(":int") else float(text)


StrictLoader.add_constructor("tag:yaml.org,2002:float", _number)
StrictLoader.add_constructor("tag:yaml.org,2002:int", _number)


def load(text: str, path: str) -> list[Any]:
    """The documents of a text that are not empty. Raises InvalidInput with the line."""
    try:
        return [document for document in yaml.load_all(text, StrictLoader) if document is not None]
    except InvalidInput as err:
        raise InvalidInput(f"{path}: {err.message}") from None
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        where = f" line {mark.line + 1}:" if mark else ""
        raise InvalidInput(f"{path}:{where} {getattr(err, 'problem', None) or err}") from err
    except RecursionError:
        raise InvalidInput(f"{path}: nested too deeply") from None
    except (ValueError, KeyError, AttributeError, TypeError, OverflowError) as err:
        # What PyYAML's constructors let through for `!!int x`, `!!timestamp x` and the like, and
        # Python for a number of more digits than it reads.
        raise InvalidInput(f"{path}: a value cannot be read: {err!s:.100}") from err
