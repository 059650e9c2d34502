"""CSV files read with care: every cell that is wrong is named with its file, line and column.

Plain or gzip, UTF-8 with or without a byte order mark, blank lines skipped. A column that nobody
knows is refused (a misspelt one would otherwise become a default in silence).
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from windlass.core.errors import InvalidInput

MOST_SECONDS = 10_000_000_000
MOST_COUNT = 10_000_000


class Table:
    """One file: its header, and its rows with the line each stands on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.line = 1
        lines = io.StringIO(_text(path), newline="")
        self._reader = csv.reader(lines, strict=True)
        self.header = self._head()

    def _head(self) -> list[str]:
        for cells in self._next():
            if not any(cell.strip() for cell in cells):
                continue
            names = [cell.strip().lower() for cell in cells]
            for name in names:
                if names.count(name) > 1:
                    raise InvalidInput(
                        f"{self.path} line {self.line}: the column {name!r} is there twice"
                    )
            return names
        raise InvalidInput(f"{self.path} is empty: not even a header is there")

    def _next(self) -> Iterator[list[str]]:
        while True:
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as err:
                line = self._reader.line_num
                raise InvalidInput(f"{self.path} line {line} is not CSV: {err}") from err
            self.line = self._reader.line_num
            yield cells

    def know(self, columns: Sequence[str], needed: Sequence[str] = ()) -> None:
        """Refuse a header with other columns than these, or without the needed ones."""
        strange = [name for name in self.header if name not in columns]
        if strange:
            raise InvalidInput(
                f"{self.path} line {self.line}: unknown column {strange[0]!r}; "
                f"known: {', '.join(columns)}",
                hint="take the column out, or give it the name it should have",
            )
        for name in needed:
            if name not in self.header:
                raise InvalidInput(f"{self.path}: the column {name!r} is missing")

    def rows(self) -> Iterator[list[str]]:
        width = len(self.header)
        for cells in self._next():
            if len(cells) != width:
                if not any(cell.strip() for cell in cells):
                    continue
                raise InvalidInput(
                    f"{self.path} line {self.line} has {len(cells)} cells, the header has {width}"
                )
            if not any(cells) or (width == 1 and not cells[0].strip()):
                continue
            yield cells

    def wrong(self, column: str, value: str, allowed: str) -> NoReturn:
        shown = value if len(value) <= 60 else value[:57] + "…"
        raise InvalidInput(
            f"{self.path} line {self.line}, column {column}: {shown!r} is not {allowed}"
        )

    def reader(self, columns: dict[str, Callable[[str], int | None]]) -> Cells:
        return Cells(self, columns)


class Cells:
    """The converters of a table's columns, each with what it answered before: the cells of a
    column repeat, and half a million rows should be read in seconds."""

    def __init__(self, table: Table, columns: dict[str, Callable[[str], int | None]]) -> None:
        self._table = table
        self._at = {name: at for at, name in enumerate(table.header)}
        self._convert = columns
        self._known: dict[str, dict[str, int | None]] = {name: {} for name in columns}

    def get(self, cells: list[str], column: str) -> int | None:
        """The number in a column; None when it is empty or there is no such column."""
        at = self._at.get(column)
        if at is None:
            return None
        cell = cells[at]
        known = self._known[column]
        if cell in known:
            return known[cell]
        try:
            value = self._convert[column](cell.strip()) if cell.strip() else None
        except ValueError as err:
            self._table.wrong(column, cell.strip(), str(err))
        if len(known) < 100_000:
            known[cell] = value
        return value

    def text(self, cells: list[str], column: str, default: str = "") -> str:
        at = self._at.get(column)
        if at is None:
            return default
        return cells[at].strip() or default


def whole(least: int, most: int = MOST_COUNT) -> Callable[[str], int]:
    """A whole number from `least` to `most`; 3.0 is one, too."""

    def convert(text: str) -> int:
        value = _number(text, f"a whole number from {least:,} to {most:,}")
        if value != int(value) or not least <= value <= most:
            raise ValueError(f"a whole number from {least:,} to {most:,}")
        return int(value)

    return convert


def scaled(
    unit: int, least: float = 0, most: float = MOST_COUNT, above: bool = False
) -> Callable[[str], int]:
    """A number, decimals allowed, in units of 1/`unit`: seconds as milliseconds, and so on."""
    allowed = f"a number {'above' if above else 'from'} {least:,} {'up ' * above}to {most:,}"

    def convert(text: str) -> int:
        value = _number(text, allowed)
        if not least <= value <= most or (above and value <= least):
            raise ValueError(allowed)
        return max(round(value * unit), 1) if above else round(value * unit)

    return convert


def seconds(above: bool = False) -> Callable[[str], int]:
    return scaled(1000, 0, MOST_SECONDS, above)


def _number(text: str, allowed: str) -> float:
    try:
        # Python's own forms that no spreadsheet writes (1_000, inf, nan) are not numbers here.
        if "_" in text:
            raise ValueError
        value = float(text)
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError
    except ValueError:
        raise ValueError(allowed) from None
    return value


def _text(path: str) -> str:
    try:
        data = Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except OSError as err:
        why = err.strerror or str(err)
        raise InvalidInput(f"{path} cannot be read: {why}") from err
    except zlib.error as err:
        raise InvalidInput(f"{path} cannot be read: the gzip file is damaged") from err
    except EOFError as err:
        raise InvalidInput(f"{path} cannot be read: the gzip file is cut off") from err
    if not data.strip():
        raise InvalidInput(f"{path} is empty: not even a header is there")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = data[: err.start].count(b"\n") + 1
        raise InvalidInput(f"{path} line {line} is not UTF-8 text") from err
