"""Tables, and the words that stand behind a name in the source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def sentence(text: str | None) -> str:
    """A docstring on one line."""
    return " ".join((text or "").split())


def field_words(kind: type[Any]) -> dict[str, str]:
    """The text that stands below each field of a class, as its author wrote it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for place, following in zip(body, body[1:], strict=False):
        if not isinstance(place, ast.AnnAssign) or not isinstance(place.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[place.target.id] = sentence(str(following.value.value))
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
