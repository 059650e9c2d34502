"""What people type in place of a command: a script, a notebook, a line for the shell."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windlass.core.errors import InvalidInput

PYTHONS = ("python", "python3")
SHELLS = ("sh", "bash", "zsh", "dash", "ksh")
_FOR_A_SHELL = re.compile(r"[|&;<>`*?()\n]|\$(?!\{[A-Za-z_]\w*\})|^[A-Za-z_]\w*=")
_OF_A_CELL = ("time", "timeit", "capture", "prun")
"""Cell magics whose cell is plain Python all the same."""


class Typed(NamedTuple):
    words: list[str]
    notices: tuple[str, ...] = ()
    script: str = ""
    """The text of a script that is to be sent beside the notebook it was made of; its path is the
    notebook's with `.py` behind."""


def read(words: Sequence[str], standing: Path) -> Typed:
    """The command that is meant, run in the folder `standing`. Raises InvalidInput."""
    first = words[0]
    if len(words) == 1 and " " in first.strip() and not (standing / first).is_file():
        if _FOR_A_SHELL.search(first):
            return Typed(["sh", "-c", first], (f"run by a shell: sh -c {shlex.quote(first)}",))
        return read(_split(first), standing)
    if first.endswith(".py"):
        return Typed(["python", *words])
    if first.endswith(".sh"):
        return _shell_script(words, standing)
    at = 1 if os.path.basename(first) in PYTHONS and len(words) > 1 else 0
    if words[at].endswith(".ipynb"):
        return _notebook(words, at, standing)
    return Typed(list(words))


def in_a_shell(command: Sequence[str]) -> list[str]:
    """Of a line for a shell, the command of the script in it; any other as it is."""
    if len(command) < 3 or command[0] not in SHELLS or command[1] != "-c":
        return list(command)
    try:
        inner = shlex.split(command[2])
    except ValueError:
        return list(command)
    script = next((word for word in inner if word.endswith(".py")), None)
    return ["python", script] if script else list(command)


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as err:
        raise InvalidInput(f"run: {line!r} cannot be split into words: {err}") from None


def _shell_script(words: Sequence[str], standing: Path) -> Typed:
    """One that the system would not start: not below PATH, not executable, or without `#!`."""
    file = standing / words[0]
    try:
        with file.open("rb") as opened:
            first = opened.readline(200).decode("utf-8", "replace").strip()
    except OSError:
        return Typed(list(words))
    named = first.removeprefix("#!").split() if first.startswith("#!") else []
    if named and "/" in words[0] and os.access(file, os.X_OK):
        return Typed(list(words))
    if named:
        return Typed([*(named[1:] if named[0].endswith("/env") else named), *words])
    return Typed(["bash", *words], (f"{words[0]} has no #! line: it is run by bash",))


# -- notebooks ------------------------------------------------------------------------------


def _notebook(words: Sequence[str], at: int, standing: Path) -> Typed:
    name = words[at]
    try:
        found = json.loads((standing / name).read_text(encoding="utf-8"))
    except OSError as err:
        raise InvalidInput(f"no such file: {name} (in {standing})") from err
    except ValueError as err:
        raise InvalidInput(f"{name} is no notebook: {err}") from err
    script, told = script_of(found, name)
    before = list(words[:at]) or ["python"]
    notices = [f"{name} runs as a script, its code cells in order: {name}.py"]
    if told:
        notices.append(f"{name}: not run: {'; '.join(told[:5])}" + " …" * (len(told) > 5))
    return Typed([*before, name + ".py", *words[at + 1 :]], tuple(notices), script)


def script_of(notebook: Any, name: str = "the notebook") -> tuple[str, list[str]]:
    """The code cells as one script, and what of them only a notebook understands, which stands in
    it as a comment. Raises InvalidInput."""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise InvalidInput(
            f"{name}: a notebook of an older format, or none",
            hint="open and save it in Jupyter, or: jupyter nbconvert --to script " + name,
        )
    about = notebook.get("metadata") or {}
    language = (about.get("kernelspec") or {}).get("language") or "python"
    if language != "python":
        raise InvalidInput(f"{name} is a notebook of {language}: only Python's are run")
    parts = [f"# made of {name}\ntry:\n    display\nexcept NameError:\n    display = print\n"]
    told: list[str] = []
    for number, cell in enumerate(cells, start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source") or ""
        text = source if isinstance(source, str) else "".join(map(str, source))
        parts.append(f"# cell {number}\n{_plain(text, number, name, told)}\n")
    return "\n".join(parts), told


def _plain(text: str, number: int, name: str, told: list[str]) -> str:
    """A cell without what is not Python."""
    if _parses(text):
        return text
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith("%%"):
        if first[2:].split()[:1] and first[2:].split()[0] in _OF_A_CELL:
            return _plain(rest, number, name, told)
        told.append(f"cell {number}, {first.strip()}")
        return "\n".join("# " + line for line in text.splitlines())
    lines = [_plain_line(line, number, told) for line in text.splitlines()]
    plain = "\n".join(lines)
    if not _parses(plain):
        raise InvalidInput(
            f"{name}: cell {number} is not Python that a script can run: {first.strip()[:80]}",
            hint="mend the cell, or take it out of a copy of the notebook",
        )
    return plain


def _plain_line(line: str, number: int, told: list[str]) -> str:
    stripped = line.lstrip()
    indent = line[: len(line) - len(stripped)]
    timed = re.match(r"%(time|timeit)\s+(?!-)(.+)", stripped)
    if timed:
        return indent + timed[2]
    asks = stripped.startswith("?") or re.fullmatch(r"[\w.]+\?{1,2}", stripped.rstrip())
    if stripped.startswith(("%", "!")) or asks or re.match(r"[\w, ]+=\s*[!%]", stripped):
        told.append(f"cell {number}, {stripped.strip()}")
        return f"{indent}pass  # {stripped}"
    return line


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
