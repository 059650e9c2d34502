"""A pattern as a list of steps.

    (?P<loss>[0-9.]+)x     0 save  1 [0-9.]  2 split 1 or 3  3 save  4 x  5 match

A line ends at a newline: `^` and `$` hold there too, and `.` is never one.
"""

from __future__ import annotations

import re

try:
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # before Python 3.11
    import sre_parse as parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Step = tuple[Any, ...]
    """(CHAR, what is known of letters, how to find out, the letter where it is but one), (SPLIT,
    this step, else that), (SAVE, number), (AT, holds between two letters), (MATCH,)."""

CHAR, SPLIT, SAVE, AT, MATCH = range(5)
_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": lambda char: char.isdecimal(),
    "CATEGORY_NOT_DIGIT": lambda char: not char.isdecimal(),
    "CATEGORY_SPACE": lambda char: char.isspace(),
    "CATEGORY_NOT_SPACE": lambda char: not char.isspace(),
    "CATEGORY_WORD": lambda char: char.isalnum() or char == "_",
    "CATEGORY_NOT_WORD": lambda char: not (char.isalnum() or char == "_"),
}


class Program:
    """Compiled. Raises ValueError for what it does not know, re.error for what is none."""

    def __init__(self, text: str) -> None:
        tree = parser.parse(text)
        self.steps: list[Step] = []
        self._write(tree, bool(tree.state.flags & re.IGNORECASE))
        self.steps.append((MATCH,))
        self.names: dict[str, int] = dict(tree.state.groupdict)
        self.prefix = self._literal()
        """What every match begins with."""

    def _literal(self) -> str:
        letters = []
        for step in self.steps:
            if step[0] != CHAR or step[3] is None:
                break
            letters.append(step[3])
        return "".join(letters)

    def _write(self, tree: Any, ignore_case: bool) -> None:
        for operation, value in tree:
            self._one(str(operation), value, ignore_case)

    def _one(self, operation: str, value: Any, ignore_case: bool) -> None:
        if operation in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            self.steps.append(_char(operation, value, ignore_case))
        elif operation == "AT":
            self.steps.append((AT, _place(str(value))))
        elif operation == "SUBPATTERN":
            group, added, taken, inner = value
            ignore_case = bool(
                (ignore_case or added & re.IGNORECASE) and not taken & re.IGNORECASE
            )
            if group is not None:
                self.steps.append((SAVE, 2 * group))
            self._write(inner, ignore_case)
            if group is not None:
                self.steps.append((SAVE, 2 * group + 1))
        elif operation == "BRANCH":
            self._branch(value[1], ignore_case)
        elif operation in ("MAX_REPEAT", "MIN_REPEAT"):
            self._repeat(operation == "MAX_REPEAT", value, ignore_case)
        else:
            raise ValueError("%s is not known here" % operation.lower())

    def _branch(self, ways: list[Any], ignore_case: bool) -> None:
        jumps = []
        for place, way in enumerate(ways):
            last = place == len(ways) - 1
            split = len(self.steps)
            if not last:
                self.steps.append((SPLIT, split + 1, 0))
            self._write(way, ignore_case)
            if not last:
                jumps.append(len(self.steps))
                self.steps.append((SPLIT, 0, 0))
                self.steps[split] = (SPLIT, split + 1, len(self.steps))
        for jump in jumps:
            self.steps[jump] = (SPLIT, len(self.steps), len(self.steps))

    def _repeat(self, greedy: bool, value: Any, ignore_case: bool) -> None:
        least, most, inner = value
        for _ in range(least):
            self._write(inner, ignore_case)
        if most == parser.MAXREPEAT:
            split = len(self.steps)
            self.steps.append((SPLIT, 0, 0))
            self._write(inner, ignore_case)
            self.steps.append((SPLIT, split, split))
            self.steps[split] = _either(greedy, split + 1, len(self.steps))
            return
        splits = []
        for _ in range(int(most) - least):
            splits.append(len(self.steps))
            self.steps.append((SPLIT, 0, 0))
            self._write(inner, ignore_case)
        for split in splits:
            self.steps[split] = _either(greedy, split + 1, len(self.steps))


def holds(step: Step, char: str) -> bool:
    """Whether a CHAR takes this letter."""
    known, find_out = step[1], step[2]
    found: bool | None = known.get(char)
    if found is None:
        found = bool(find_out(char))
        if len(known) < 1024:
            known[char] = found
    return found


def is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _either(greedy: bool, inside: int, behind: int) -> Step:
    return (SPLIT, inside, behind) if greedy else (SPLIT, behind, inside)


def _char(operation: str, value: Any, ignore_case: bool) -> Step:
    items = value if operation == "IN" else [(operation, value)]
    negated = operation == "NOT_LITERAL" or (bool(items) and str(items[0][0]) == "NEGATE")

    def one(char: str) -> bool:
        return any(_item(str(kind), value, char) for kind, value in items)

    def find_out(char: str) -> bool:
        found = one(char)
        if ignore_case and not found:
            others = (char.lower(), char.upper())
            found = any(len(other) == 1 and one(other) for other in others)
        return found != negated

    alone = chr(value) if operation == "LITERAL" and not ignore_case else None
    return (CHAR, {}, find_out, alone)


def _item(kind: str, value: Any, char: str) -> bool:
    if kind in ("LITERAL", "NOT_LITERAL"):
        return bool(ord(char) == value)
    if kind == "RANGE":
        return bool(value[0] <= ord(char) <= value[1])
    if kind == "CATEGORY":
        return _CATEGORIES[str(value)](char)
    return kind == "ANY" and char != "\n"


def _place(kind: str) -> Callable[[str, str], bool]:
    """Whether it holds between two letters; at either end of the text the other is a newline."""
    if kind in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        return lambda before, after: before == "\n"
    if kind in ("AT_END", "AT_END_STRING"):
        return lambda before, after: after == "\n"
    if kind in ("AT_BOUNDARY", "AT_NON_BOUNDARY"):
        wanted = kind == "AT_BOUNDARY"
        return lambda before, after: (is_word(before) != is_word(after)) == wanted
    raise ValueError("%s is not known here" % kind.lower())
