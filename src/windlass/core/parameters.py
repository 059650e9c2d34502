"""A parameter of a job's command line, changed for a rerun.

One that the spec declares (`params`) is simply given another value; this is for one that only
stands in the command: `--lr 0.1`, `--lr=0.1` or `lr=0.1`, with `_` and `-` taken alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.errors import InvalidInput


def change_words(words: Sequence[str], name: str, value: Any) -> list[str] | None:
    """The command with one parameter changed, or None when it does not have it."""
    text = str(value)
    spellings = {name, name.replace("_", "-")}
    for at, word in enumerate(words):
        bare, equals, _ = word.partition("=")
        if bare.lstrip("-") not in spellings:
            continue
        if equals:
            return [*words[:at], f"{bare}={text}", *words[at + 1 :]]
        if word.startswith("-") and at + 1 < len(words) and at > 0:
            return [*words[: at + 1], text, *words[at + 2 :]]
    return None


def change_spec(spec: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The parts of a spec that change when a parameter in its command does."""
    changes: dict[str, Any] = {}
    run = change_words(spec.get("run") or (), name, value)
    if run:
        changes["run"] = run
    roles = {role: dict(about) for role, about in (spec.get("roles") or {}).items()}
    touched = False
    for about in roles.values():
        words = change_words(about.get("run") or (), name, value)
        if words:
            about["run"] = words
            touched = True
    if touched:
        changes["roles"] = roles
    if not changes:
        declared = ", ".join(spec.get("params") or {}) or "none"
        raise InvalidInput(
            f"this job has no parameter {name!r}: not among its params ({declared}), "
            f"not in its command as --{name} or {name}=",
            hint="declare it: windlass run --param lr=0.1 -- python train.py --lr '${lr}'",
        )
    return changes
