"""Jobs beside each other: which parameters differ, whose metrics are better. Pure: facts in, a
table out; and its forms for papers and notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.core.goals import Direction, direction_of

MISSING = ""


@dataclass(frozen=True)
class Side:
    """One job of a comparison."""

    id: str
    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, Mapping[str, Any]]
    goal: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    text: str
    change: str = ""
    """From the baseline."""
    better: bool | None = None
    """Than the baseline; None: the same, or nobody can tell."""
    best: bool = False
    """Of all jobs."""
    exact: str = ""
    """The whole number, for programs."""


@dataclass(frozen=True)
class Row:
    kind: str
    """fact, param, metric."""
    name: str
    cells: tuple[Cell, ...]


def compare(sides: Sequence[Side], *, everything: bool = False) -> list[Row]:
    """Parameters that differ (all of them with `everything`), then metrics: the last value, and
    the best where the way that is better is known. The first job is the baseline."""
    rows = [_plain("fact", name, [side.facts.get(name, MISSING) for side in sides])
            for name in dict.fromkeys(name for side in sides for name in side.facts)]  # fmt: skip
    rows += [_plain("param", name, [side.params.get(name, MISSING) for side in sides])
             for name in _names([side.params for side in sides])]  # fmt: skip
    rows = [row for row in rows if everything or row.name == "state" or _differ(row)]
    goal = next((side.goal for side in sides if side.goal), None)
    for key in _names([side.metrics for side in sides]):
        told = [side.metrics.get(key) or {} for side in sides]
        direction = direction_of(key, goal)
        last = _numbers(key, [each.get("last") for each in told], direction)
        if direction is None:
            rows.append(last)
            continue
        best = _numbers(f"{key} ({direction})", [each.get(direction) for each in told], direction)
        same = [cell.text for cell in last.cells] == [cell.text for cell in best.cells]
        rows += [best] if same else [last, best]
    return rows


def _names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({name for each in found for name in each})


def _differ(row: Row) -> bool:
    return len({cell.text for cell in row.cells}) > 1


def _plain(kind: str, name: str, values: Sequence[str]) -> Row:
    return Row(kind, name, tuple(Cell(value, exact=value) for value in values))


def _numbers(name: str, values: Sequence[Any], direction: Direction | None) -> Row:
    numbers = [None if value is None else float(value) for value in values]
    good = [value for value in numbers if value is not None and value == value]
    best = None
    if direction and len(good) > 1 and len(set(good)) > 1:
        best = min(good) if direction == "min" else max(good)
    base = numbers[0]
    cells = []
    for at, value in enumerate(numbers):
        if value is None:
            cells.append(Cell(MISSING))
            continue
        change, better = ("", None) if not at else _change(base, value, direction)
        cells.append(Cell(shown(value), change, better, value == best, repr(value)))
    return Row("metric", name, tuple(cells))


def _change(
    base: float | None, value: float, direction: Direction | None
) -> tuple[str, bool | None]:
    if base is None or not math.isfinite(base) or not math.isfinite(value):
        return "", None
    difference = value - base
    if not difference:
        return "±0", None
    text = f"{difference / abs(base):+.1%}" if base else f"{difference:+.3g}"
    if text in ("+0.0%", "-0.0%"):
        text = f"{difference:+.3g}"
    return text, None if direction is None else (difference < 0) == (direction == "min")


def shown(value: float) -> str:
    if math.isfinite(value):
        return f"{value:.5g}"
    return "NaN" if value != value else f"{value:+}".replace("inf", "Infinity").lstrip("+")


# Forms


def grid(sides: Sequence[Side], rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of a table. Few jobs stand beside each other; of many each has a line."""
    if len(sides) <= 6:
        head = ["", *(side.name for side in sides)]
        return head, [[row.name, *(_said(cell) for cell in row.cells)] for row in rows]
    head = ["job", *(row.name for row in rows)]
    return head, [
        [side.name, *(row.cells[at].text for row in rows)] for at, side in enumerate(sides)
    ]


def _said(cell: Cell) -> str:
    return cell.text + (f" ({cell.change})" if cell.change else "")


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        escaped = (cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
        return "| " + " | ".join(escaped) + " |"

    rule = "| " + " | ".join(["---", *("---:" for _ in head[1:])]) + " |"
    return [row(head), rule, *(row(line) for line in lines)]


_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "%": r"\%", "&": r"\&",
    "#": r"\#", "$": r"\$", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "±": r"$\pm$",
}  # fmt: skip


def latex(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A tabular for a paper, with booktabs' rules."""

    def row(cells: Sequence[str]) -> str:
        escaped = ("".join(_TEX.get(char, char) for char in cell) for cell in cells)
        return "  " + " & ".join(escaped) + r" \\"

    return [
        r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}",
        r"  \toprule",
        row(head),
        r"  \midrule",
        *(row(line) for line in lines),
        r"  \bottomrule",
        r"\end{tabular}",
    ]
