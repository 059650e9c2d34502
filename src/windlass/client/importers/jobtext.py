"""An imported job as a job file: commented YAML that reads back as the same job."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import yaml

from windlass.client.documents import StrictLoader
from windlass.client.importers.base import Fate, Imported, show


def render(jobs: Sequence[Imported], source: str) -> str:
    """One document for each job, with what needs a hand as comments."""
    return "---\n".join(_one(job, source) for job in jobs)


def _one(job: Imported, source: str) -> str:
    text = [
        f"# From {show(source)} ({job.kind}). Look it over, then: windlass apply --dry-run -f FILE"
    ]
    text += [_dump({"kind": "job", **_readable(job.spec)}).rstrip("\n")]
    text += [_comment(f"# {comment}") for comment in job.comments]
    for fate, head in ((Fate.BY_HAND, "To do by hand:"), (Fate.DROPPED, "Left out:")):
        notes = job.having(fate)
        if notes:
            text += [f"# {head}"]
            text += [_comment(f"#   {note.field}: {note.value} ({note.what})") for note in notes]
    return "\n".join(text) + "\n"


def _comment(text: str) -> str:
    """One line, whatever was in a foreign file: a comment must not turn into fields."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _readable(spec: dict[str, Any]) -> dict[str, Any]:
    """Commands as one text, as people write them, unless a word has several lines."""
    found = {**spec, "run": _command(spec["run"])} if "run" in spec else dict(spec)
    if "roles" in spec:
        found["roles"] = {
            name: {**role, "run": _command(role["run"])} if "run" in role else role
            for name, role in spec["roles"].items()
        }
    return found


def _command(words: list[str]) -> str | list[str]:
    return shlex.join(words) if all(word.isprintable() for word in words) else words


class _Dumper(yaml.SafeDumper):
    """Quotes what either YAML 1.1 or our strict reader would take for something else than text."""

    # The key `on` is no truth to our reader, and reads better without quotes.
    yaml_implicit_resolvers = {
        first: [
            *(yaml.SafeDumper.yaml_implicit_resolvers.get(first, []) if first != "o" else []),
            *StrictLoader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in {
            *yaml.SafeDumper.yaml_implicit_resolvers,
            *StrictLoader.yaml_implicit_resolvers,
        }
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.strip("\n") else None
    if not text.replace("\n", "").isprintable():
        style = '"'  # only there is everything escaped
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    block = any(isinstance(item, str) and "\n" in item for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=not block)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def _dump(value: dict[str, Any]) -> str:
    """Mappings of plain values on one line, as in `windlass init`."""
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000,
        default_flow_style=None,
    )  # fmt: skip
