"""What differs between the code of two jobs, as people read it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Literal

from windlass.core.errors import NotFound
from windlass.core.strict import Strict

MOST_FILES = 500
"""Whose text is compared; of the others it is only told that they differ."""
MOST_BYTES = 512 * 1024
MOST_LINES = 5000
MOST_TEXT = 2 * 2**20
"""Of one answer."""
_CONTEXT = 3

File = Mapping[str, Any]
Reader = Callable[[str], bytes]
"""A blob by its digest."""


class FileChange(Strict):
    path: str
    change: Literal["added", "removed", "changed"]
    diff: str | None
    """As `diff -u` writes it; None: it is no text, or too long."""


def changes(
    before: list[dict[str, Any]], after: list[dict[str, Any]], read: Reader
) -> list[FileChange]:
    """In order of path. Reads files: call it in a thread."""
    old = {file["path"]: file for file in before}
    new = {file["path"]: file for file in after}
    found: list[FileChange] = []
    written = 0
    for path in sorted(old.keys() | new.keys()):
        one, other = old.get(path), new.get(path)
        if one and other and one["digest"] == other["digest"]:
            continue
        diff = None
        if len(found) < MOST_FILES and written < MOST_TEXT:
            diff = _diff(path, one, other, read)
            written += len(diff or "")
        change: Literal["added", "removed", "changed"]
        change = "added" if one is None else "removed" if other is None else "changed"
        found.append(FileChange(path=path, change=change, diff=diff))
    return found


def _diff(path: str, one: File | None, other: File | None, read: Reader) -> str | None:
    before, after = _lines(one, read), _lines(other, read)
    if before is None or after is None:
        return None
    names = (f"a/{path}" if one else "/dev/null", f"b/{path}" if other else "/dev/null")
    lines = difflib.unified_diff(before, after, *names, n=_CONTEXT, lineterm="")
    return "\n".join(lines)


def _lines(file: File | None, read: Reader) -> list[str] | None:
    if file is None:
        return []
    if file["size"] > MOST_BYTES:
        return None
    try:
        text = read(file["digest"]).decode("utf-8")
    except (OSError, NotFound, UnicodeDecodeError):
        return None
    lines = text.split("\n")
    return None if "\0" in text or len(lines) > MOST_LINES else lines
