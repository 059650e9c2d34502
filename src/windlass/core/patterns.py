"""Which patterns are looked for in what a job prints (`metrics.parse`, rules `log:…` of `retry`,
`logs --grep`): those that take time in proportion to the text. `windlass.patterns` looks."""

from __future__ import annotations

import re
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MOST_STEPS = 500
"""A part in `{9}` counts nine times."""
_NOT_HERE = {
    "ASSERT": "lookahead and lookbehind", "ASSERT_NOT": "lookahead and lookbehind",
    "FAILURE": "lookahead and lookbehind",
    "GROUPREF": "a reference to a group", "GROUPREF_EXISTS": "a condition on a group",
    "ATOMIC_GROUP": "an atomic group", "POSSESSIVE_REPEAT": "a possessive repeat",
}  # fmt: skip


def names_of(pattern: str) -> set[str]:
    """The groups that it names. Raises ValueError: why it is not looked for."""
    try:
        re.compile(pattern)
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as err:
        raise ValueError(f"{pattern!r} is no regular expression: {err}") from err
    steps = _steps(pattern, tree) + 1
    if steps > MOST_STEPS:
        raise ValueError(
            f"{pattern!r} has {steps} parts, where {MOST_STEPS} are the most: + and * in place of "
            "large counts"
        )
    return set(tree.state.groupdict)


def _steps(pattern: str, tree: Any) -> int:
    """How many steps are made of it."""
    total = 0
    for operation, value in tree:
        kind = str(operation)
        if kind in _NOT_HERE:
            raise ValueError(
                f"{pattern!r}: {_NOT_HERE[kind]} cannot be looked for in bounded time; spell out "
                "what stands around it instead"
            )
        if kind == "SUBPATTERN":
            total += 2 + _steps(pattern, value[3])
        elif kind == "BRANCH":
            total += sum(2 + _steps(pattern, way) for way in value[1])
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = value
            times = least + 1 if most == parser.MAXREPEAT else most
            total += (_steps(pattern, inner) + 2) * int(times)
        else:
            total += 1
    return total
