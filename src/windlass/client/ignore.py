"""What of a directory is not code: the rules of `.gitignore`, read by ourselves.

Supported as git documents them: `#`, `!`, a trailing or leading slash, `*`, `?`, `[…]`, `**`;
files in sub-directories too. The last rule that matches wins; inside a directory that is left
out nothing is brought back (it is not even walked).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ALWAYS = (
    ".git/", ".hg/", ".svn/", ".venv/", "venv/", "__pycache__/", "*.pyc", "node_modules/",
    ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".ipynb_checkpoints/", ".tox/", ".nox/",
    ".idea/", ".vscode/", ".DS_Store", "*.egg-info/", "windlass-runs/", "wandb/", "mlruns/",
    "lightning_logs/",
)  # fmt: skip
FILES = (".gitignore", ".windlassignore")


@dataclass(frozen=True)
class Rule:
    pattern: re.Pattern[str]
    keep: bool
    only_directories: bool


def rules(lines: Iterable[str], base: str = "") -> list[Rule]:
    """The rules of one file that lies in `base` (relative to the root, without a slash)."""
    found = []
    for line in lines:
        text = line.rstrip("\r\n")
        if not text.endswith("\\ "):
            text = text.rstrip(" ")
        if not text or text.startswith("#"):
            continue
        keep = text.startswith("!")
        text = text[1:] if keep or text.startswith("\\") else text
        only_directories = text.endswith("/")
        text = text.rstrip("/")
        anchored = "/" in text
        prefix = re.escape(base + "/") if base else ""
        text = text.lstrip("/") if anchored else "**/" + text
        try:
            pattern = re.compile(prefix + _expression(text))
        except re.error:
            continue  # git, too, lets a broken pattern match nothing
        found.append(Rule(pattern, keep, only_directories))
    return found


def ignored(path: str, directory: bool, known: Sequence[Rule]) -> bool:
    """`path` is relative, with slashes, on every system."""
    return verdict(path, directory, known) is True


def verdict(path: str, directory: bool, known: Sequence[Rule]) -> bool | None:
    """True: left out; False: kept, by a rule that says so; None: no rule speaks of it."""
    for rule in reversed(known):
        if rule.only_directories and not directory:
            continue
        if rule.pattern.fullmatch(path):
            return not rule.keep
    return None


class Included:
    """Patterns of what is wanted whatever the ignore files say: a file, or all of a folder."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [each.strip("/") for each in patterns if each.strip("/")]
        self._rules = rules([each if "/" not in each else "/" + each for each in self._patterns])

    def __bool__(self) -> bool:
        return bool(self._rules)

    def wants(self, path: str) -> bool:
        parts = path.split("/")
        above = ("/".join(parts[: at + 1]) for at in range(len(parts)))
        return any(verdict(each, True, self._rules) is not None for each in above)

    def may_be_below(self, folder: str) -> bool:
        """Whether something wanted may lie in a folder that is itself left out."""
        return any(
            each.startswith(folder + "/") or each.startswith("**/") for each in self._patterns
        )


def _expression(glob: str) -> str:
    """`**/` at the beginning of a name parts it: what stands between two is taken where it first
    fits. Elsewhere two stars are one."""
    first, *others = re.split(r"(?:^|(?<=/))\*\*/", glob)
    out = _part(first)
    for at, part in enumerate(others):
        last = at == len(others) - 1
        out += f"(?:.*/)?{_part(part)}" if last else f"(?>(?:.*?/)??{_part(part)})"
    return out


def _part(glob: str) -> str:
    """Without `**/`. A star reaches as far as the next slash."""
    pieces, at = [""], 0
    while at < len(glob):
        rest = glob[at:]
        if rest == "/**":
            pieces[-1] += "/.*"
            at += 3
        elif rest.startswith("*"):
            pieces.append("")
            at += len(rest) - len(rest.lstrip("*"))
        elif rest.startswith("?"):
            pieces[-1] += "[^/]"
            at += 1
        elif rest.startswith("[") and "]" in rest[2:]:
            end = rest.index("]", 2)
            inside = rest[1:end].replace("\\", "\\\\")
            inside = "^" + inside[1:] if inside.startswith("!") else inside
            pieces[-1] += f"(?!/)[{inside}]"
            at += end + 1
        else:
            skip = 1 if rest.startswith("\\") and len(rest) > 1 else 0
            pieces[-1] += re.escape(rest[skip])
            at += 1 + skip
    first, *starred = pieces
    passed = "".join(f"(?>[^/]*?{piece})" for piece in starred[:-1])
    return first + passed + "".join(f"[^/]*{piece}" for piece in starred[-1:])
