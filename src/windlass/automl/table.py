"""A table of rows to learn from: read, judged and cut into columns. Standard library only."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
FEW = 20
"""At most so many different whole numbers are classes, when they come often enough."""
CLASSIFICATION, REGRESSION = "classification", "regression"


class Unfit(ValueError):
    """The table cannot be learnt from; says why."""


@dataclass(frozen=True)
class Table:
    names: tuple[str, ...]
    rows: list[list[str]]

    def column(self, name: str) -> list[str]:
        at = self.names.index(name)
        return [row[at] for row in self.rows]


def read(path: Path) -> Table:
    """A CSV file with a head; commas, semicolons or tabs. Raises Unfit."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            sign = max(",;\t", key=first.count)
            lines = csv.reader(file, delimiter=sign)
            head = [name.strip() for name in next(lines, [])]
            rows = []
            for line in lines:
                if not line:
                    continue
                if len(line) != len(head):
                    raise Unfit(
                        f"{path.name}, line {lines.line_num}: {len(line)} cells where the head "
                        f"has {len(head)}"
                    )
                rows.append([cell.strip() for cell in line])
    except UnicodeDecodeError as err:
        raise Unfit(f"{path.name} is not text in UTF-8") from err
    except (OSError, csv.Error) as err:
        raise Unfit(f"{path.name} cannot be read: {err}") from err
    if not any(head):
        raise Unfit(f"{path.name} is empty")
    twice = sorted({name for name in head if head.count(name) > 1})
    if twice:
        raise Unfit(f"{path.name}: the column {twice[0]!r} stands twice")
    if not rows:
        raise Unfit(f"{path.name} has a head and no rows")
    return Table(tuple(head), rows)


def is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def number(cell: str) -> float:
    """NaN for what is missing or no finite number."""
    if is_missing(cell):
        return math.nan
    try:
        found = float(cell)
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan


def is_numeric(cells: Iterable[str]) -> bool:
    """Whether all that is there are finite numbers; nothing at all is none."""
    present = [cell for cell in cells if not is_missing(cell)]
    return bool(present) and not any(math.isnan(number(cell)) for cell in present)


@dataclass(frozen=True)
class Problem:
    """What is to be learnt, and from which columns."""

    target: str
    task: str
    why: str
    """Why this task."""
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    """What was left out."""

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.numbers, *self.categories)


def judge(table: Table, target: str, task: str = "") -> tuple[Table, Problem]:
    """The rows whose target is known, and what to do with them. Raises Unfit."""
    if target not in table.names:
        raise Unfit(f"no column {target!r}: there are {', '.join(table.names)}")
    cells = table.column(target)
    rows = [row for row, cell in zip(table.rows, cells, strict=True) if not is_missing(cell)]
    notes = []
    if len(rows) < len(cells):
        notes.append(f"{len(cells) - len(rows)} rows without {target} are left out")
    kept = Table(table.names, rows)
    values = kept.column(target)
    if len(rows) < 10:
        raise Unfit(f"{len(rows)} rows with a value of {target}: at least 10 are needed")
    task, why = _task(values, target, task)
    numbers, categories, out = _columns(kept, target)
    notes += out
    if not numbers and not categories:
        raise Unfit(f"no column to learn {target} from: {'; '.join(out) or 'it is alone'}")
    classes: tuple[str, ...] = ()
    if task == CLASSIFICATION:
        classes = _classes(values)
        if len(classes) < 2:
            raise Unfit(f"{target} is always {classes[0]!r}: there is nothing to tell apart")
    elif len(set(values)) < 2:
        raise Unfit(f"{target} is always {values[0]}: there is nothing to predict")
    return kept, Problem(target, task, why, numbers, categories, classes, tuple(notes))


def _task(values: Sequence[str], target: str, asked: str) -> tuple[str, str]:
    numeric = is_numeric(values)
    if asked == REGRESSION and not numeric:
        strange = next(cell for cell in values if math.isnan(number(cell)))
        raise Unfit(f"{target} is not a number everywhere (such as {strange!r}): no regression")
    if asked:
        return asked, "as asked"
    if not numeric:
        return CLASSIFICATION, f"{target} is not a number everywhere"
    different = {number(cell) for cell in values}
    whole = all(each.is_integer() for each in different)
    if whole and len(different) <= FEW and len(values) >= 5 * len(different):
        return CLASSIFICATION, f"{target} has {len(different)} different whole numbers"
    return REGRESSION, f"{target} has {len(different)} different numbers"


def _columns(table: Table, target: str) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    numbers, categories, out = [], [], []
    for name in table.names:
        if name == target:
            continue
        cells = table.column(name)
        different = {cell for cell in cells if not is_missing(cell)}
        if len(different) < 2 and not (different and any(map(is_missing, cells))):
            out.append(f"{name} is always the same and left out")
        elif is_numeric(cells):
            numbers.append(name)
        elif len(different) > max(50, len(cells) // 2):
            out.append(f"{name} is another text in nearly every row and left out")
        else:
            categories.append(name)
    return tuple(numbers), tuple(categories), out


def _classes(values: Sequence[str]) -> tuple[str, ...]:
    different = set(values)
    if is_numeric(different):
        return tuple(sorted(different, key=lambda cell: (number(cell), cell)))
    return tuple(sorted(different))


def features(problem: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Rows, by column, as a pipeline takes them: numbers first (NaN: missing), then texts. A
    column that a row lacks is missing there."""
    found: list[list[Any]] = []
    for row in rows:
        line: list[Any] = [number(_text(row.get(name))) for name in problem["numbers"]]
        texts = [_text(row.get(name)) for name in problem["categories"]]
        found.append(line + ["" if is_missing(text) else text for text in texts])
    return found


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell).strip()


def by_name(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.names, row, strict=True)) for row in table.rows]
