"""Which framework a script uses, from what it imports, without running it; and why we think so."""

from __future__ import annotations

import ast
from typing import Iterator, NamedTuple, Optional, Sequence

from windlass.contracts.pytorch import is_launcher

_BY_IMPORT = (("torch", "pytorch"), ("pytorch_lightning", "pytorch"), ("lightning", "pytorch"))


class Guess(NamedTuple):
    framework: str
    why: str


def guess(command: Sequence[str], source: Optional[str] = None) -> Guess:
    """The framework of a command; `source` is the text of the script it runs, where known."""
    if is_launcher(command):
        return Guess("pytorch", "the command is torchrun")
    if source is None:
        return Guess("python", "a plain command")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as err:
        return Guess("python", "the script cannot be parsed: %s" % err)
    imported = set(_imported(tree))
    for module, framework in _BY_IMPORT:
        if module in imported:
            return Guess(framework, "the script imports %s" % module)
    return Guess("python", "the script imports no framework that is known here")


def script_of(command: Sequence[str]) -> Optional[str]:
    """The Python file that a command runs: its first word that is no option and ends in `.py`."""
    for word in command:
        if word.endswith(".py"):
            return word
    return None


def _imported(tree: ast.AST) -> Iterator[str]:
    """The first part of every absolute import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".", 1)[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".", 1)[0]
