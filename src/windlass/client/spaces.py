"""Spaces that a file of the user's describes: run by the user's Python, never by the server."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass.client import space_program
from windlass.core.errors import InvalidInput

SECONDS = 120


def of_function(function: Callable[[Any], Any]) -> dict[str, Any]:
    """The space that a function of a trial describes. Raises InvalidInput in words."""
    try:
        return space_program.explore(function)
    except space_program.NoSpace as err:
        name = getattr(function, "__name__", "the function")
        raise InvalidInput(f"space: {name}: {err}") from err


def of_file(where: str, python: str, folder: Path | None = None) -> dict[str, Any]:
    """The space of `FILE:FUNCTION`. Raises InvalidInput in words."""
    path, _, name = where.rpartition(":")
    if not path or not name.isidentifier():
        raise InvalidInput(
            f"space: {where!r} is not FILE:FUNCTION", hint="such as search.py:space"
        )
    program = Path(space_program.__file__)
    found: dict[str, Any] = described("space", program, (folder or Path()) / path, name, python)
    return found


def described(option: str, program: Path, path: Path, name: str, python: str) -> Any:
    """What one of our programs wrote down of a user's file, in the user's Python."""
    where = f"{path}:{name}" if name else str(path)
    if not path.is_file():
        raise InvalidInput(f"{option}: no such file: {path}", hint="such as search.py:space")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "space.json"
        words = [python, str(program), str(path), name, str(out)]
        try:
            ran = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise InvalidInput(f"{option}: {path} did not end within {SECONDS} s") from None
        if ran.returncode or not out.is_file():
            last = (ran.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            raise InvalidInput(f"{option}: {where}: {last}")
        return json.loads(out.read_text(encoding="utf-8"))
