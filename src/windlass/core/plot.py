"""Curves in a terminal: a sparkline in one row, a plot in several. Unicode, or plain ASCII.

The plot uses braille characters: each holds 2 x 4 dots, so a curve of 60 x 10 characters has
120 x 40 of them. Pure functions from numbers to lines of text.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*#@"
# The dot of a braille cell at (column, row from the top).
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def unicode_wanted() -> bool:
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    return "utf" in encoding


def thin(values: Sequence[float], count: int) -> list[float]:
    """At most `count` values: the mean of each stretch. What is not finite is left out."""
    good = [value for value in values if math.isfinite(value)]
    if len(good) <= count:
        return good
    edges = [round(at * len(good) / count) for at in range(count + 1)]
    return [sum(good[a:b]) / (b - a) for a, b in zip(edges, edges[1:], strict=False) if b > a]


def sparkline(values: Sequence[float], width: int = 24, *, unicode: bool = True) -> str:
    """One character per value, low to high."""
    few = thin(values, width)
    if not few:
        return ""
    bars = BARS if unicode else ASCII_BARS
    low, high = min(few), max(few)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[round((value - low) * scale)] for value in few)


def curve(
    points: Sequence[tuple[float, float]],
    *,
    width: int = 60,
    height: int = 10,
    title: str = "",
    unicode: bool = True,
) -> list[str]:
    """A plot of (x, y) with its axes' ends written beside it; [] when there is nothing to draw."""
    return curves({"": points}, width=width, height=height, title=title, unicode=unicode)


def curves(
    named: Mapping[str, Sequence[tuple[float, float]]],
    *,
    width: int = 60,
    height: int = 10,
    title: str = "",
    unicode: bool = True,
) -> list[str]:
    """Several in one plot, each with its name to the right of where it ends."""
    good = {
        name: sorted((x, y) for x, y in points if math.isfinite(x) and math.isfinite(y))
        for name, points in named.items()
    }
    xs = [x for points in good.values() for x, _ in points]
    ys = [y for points in good.values() for _, y in points]
    if not xs:
        return []
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    columns, rows = (width * 2, height * 4) if unicode else (width, height)
    dots: set[tuple[int, int]] = set()
    names: dict[int, list[str]] = {}
    for name, points in good.items():
        last: tuple[int, int] | None = None
        for x, y in points:
            at = (_cell(x, left, right, columns), rows - 1 - _cell(y, low, high, rows))
            dots.update(dots_between(last or at, at))
            last = at
        if last is not None and name:
            names.setdefault(last[1] * height // rows, []).append(name)
    label_top, label_bottom = _short(high), _short(low)
    margin = max(len(label_top), len(label_bottom))
    side, corner, floor = ("│", "└", "─") if unicode else ("|", "+", "-")
    lines = [" " * (margin + 2) + title] if title else []
    for row in range(height):
        label = label_top if row == 0 else label_bottom if row == height - 1 else ""
        cells = (
            braille(dots, width, row)
            if unicode
            else "".join("*" if (column, row) in dots else " " for column in range(width))
        )
        end = " " + ", ".join(names.get(row, ()))
        lines.append(f"{label:>{margin}} {side}{cells}{end}".rstrip())
    lines.append(" " * margin + " " + corner + floor * width)
    ends = _short(left), _short(right)
    gap = max(1, width - len(ends[0]) - len(ends[1]))
    lines.append(" " * (margin + 2) + ends[0] + " " * gap + ends[1])
    return lines


def _cell(value: float, low: float, high: float, count: int) -> int:
    share = (value - low) / (high - low) if high > low else 0.5
    return min(count - 1, int(share * count))


def dots_between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """A straight line."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (
            round(start[0] + (end[0] - start[0]) * at / steps),
            round(start[1] + (end[1] - start[1]) * at / steps),
        )
        for at in range(steps + 1)
    ]


def braille(dots: set[tuple[int, int]], width: int, row: int) -> str:
    """One row of characters, each of 2 x 4 dots."""
    cells = []
    for column in range(width):
        bits = 0
        for dx in range(2):
            for dy in range(4):
                if (column * 2 + dx, row * 4 + dy) in dots:
                    bits |= DOTS[dx][dy]
        cells.append(chr(0x2800 + bits) if bits else " ")
    return "".join(cells)


def _short(value: float) -> str:
    return f"{value:.4g}"
