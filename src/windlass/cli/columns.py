"""Tables that fit the terminal: 80 columns are enough for any of them.

What cannot be had at once is given up in this order: columns that are empty throughout, the width
of long cells (names, nodes; the last column most), then whole columns, those that were named as
spare. Without a terminal nothing is given up: a program reads it.
"""

from __future__ import annotations

import os
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Sequence

_LEAST = 12
_LEAST_LAST = 28
_WHOLE = frozenset({"ID", "STATE", "#"})
"""Columns whose cells say nothing when they are cut."""


def there() -> int | None:
    """How wide the terminal is; None: there is none, or nobody said."""
    told = os.environ.get("COLUMNS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    if not sys.stdout.isatty():
        return None
    return os.get_terminal_size(sys.stdout.fileno()).columns


def fitted(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    room: int | None,
    spare: Collection[str] = (),
) -> tuple[list[str], list[list[str]]]:
    """The columns and cells that are shown in so much room, two blanks between them."""
    names, cells = list(head), [list(row) for row in rows]
    if room is None:
        return names, cells
    # Of an empty table all columns are shown; the last stays, as it takes what is left.
    keep = [
        at
        for at in range(len(names))
        if not cells or at == len(names) - 1 or any(row[at] for row in cells)
    ]
    widths = _widths(names, cells)
    for name in ("", *spare):
        keep = [at for at in keep if names[at] != name]
        widths = _narrowed(names, _widths(names, cells), keep, room)
        if _total([widths[at] for at in keep]) <= room:
            break
    return (
        [names[at] for at in keep],
        [[cut(row[at], widths[at]) for at in keep] for row in cells],
    )


def _narrowed(names: list[str], widths: list[int], keep: list[int], room: int) -> list[int]:
    """The last column first, then whichever is widest."""
    found = list(widths)
    last = keep[-1]
    while (over := _total([found[at] for at in keep]) - room) > 0:
        if found[last] > max(_LEAST_LAST, width(names[last])):
            found[last] = max(_LEAST_LAST, width(names[last]), found[last] - over)
            continue
        able = [
            at
            for at in keep
            if at != last and names[at] not in _WHOLE and found[at] > max(_LEAST, len(names[at]))
        ]
        if not able:
            break
        found[max(able, key=lambda at: found[at])] -= 1
    return found


def _widths(names: list[str], cells: list[list[str]]) -> list[int]:
    return [max([width(n), *(width(row[at]) for row in cells)]) for at, n in enumerate(names)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, columns: int) -> str:
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for char in text:
        used += width(char)
        if used > columns - 1:
            break
        kept += char
    return kept + "…"


def wrapped(head: str, text: str, room: int | None) -> list[str]:
    """A line with a head, its further lines below the first."""
    if room is None or width(head + text) <= room:
        return [head + text]
    lines = textwrap.wrap(text, max(20, room - len(head)), break_on_hyphens=False)
    return [head + lines[0], *(" " * len(head) + line for line in lines[1:])]
