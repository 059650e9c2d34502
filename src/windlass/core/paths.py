"""What the path of a file may be: of code (`wrong_code_path`), of a run or of a model.

A path here is a name in a table and never part of a place on the server's disk. It is still
checked, because whoever downloads joins it to a folder, and because other programs decode twice,
cut at `#` or read a backslash as a separator.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from windlass.core.errors import InvalidInput

MAX_PATH_BYTES = 1024
MAX_DEPTH = 64
_DRIVE = re.compile(r"[A-Za-z]:")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


MAX_PART_BYTES = 255
"""Of one name: no file system has longer ones."""


def wrong_code_path(path: str) -> str:
    """Why a file of code cannot be sent under this path; "": it can. One rule for whoever sends,
    keeps and lays out; a worker, which imports none of this, takes all that it lets through."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "its name is not text"
    parts = path.split("/")
    if size > MAX_PATH_BYTES:
        return f"its path is longer than {MAX_PATH_BYTES} bytes"
    if any(part in ("", ".", "..") for part in parts):
        return "its path is not a plain one below the folder"
    if len(parts) > MAX_DEPTH:
        return f"it lies more than {MAX_DEPTH} folders deep"
    if not path.isprintable():
        return "its name holds a control character or an unusual space"
    if "\\" in path or _DRIVE.match(path):
        return "its name is a path of another kind on Windows"
    if any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        return f"a name in its path is longer than {MAX_PART_BYTES} bytes"
    return ""


def plain_path(path: str, field: str = "path") -> str:
    """The path as it is, if every program reads it as the same place below a folder; raises
    InvalidInput. One that decodes to something else is looked at in that form too."""
    seen = path
    for _turn in range(8):
        if reason := _wrong(seen):
            raise InvalidInput(f"{field}: {reason} (found {ascii(path)[:200]})")
        decoded = unquote(seen)
        if decoded == seen:
            return path
        seen = decoded
    raise InvalidInput(f"{field}: a plain relative path (found {ascii(path)[:200]})")


def _wrong(path: str) -> str:
    if not path:
        return "a path is needed"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "a path is text"
    if size > MAX_PATH_BYTES:
        return f"a path has at most {MAX_PATH_BYTES} bytes"
    if not path.isprintable() or "\ufffd" in path:
        return "a path without control characters"
    if path.startswith("/") or "\\" in path or _DRIVE.match(path) or _SCHEME.match(path):
        return "a path below the folder, with / between its parts"
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        return f"a path of at most {MAX_DEPTH} parts"
    for part in parts:
        if part.partition(";")[0].strip(" .") == "":
            return "no part of a path is empty, . or .."
    return ""
