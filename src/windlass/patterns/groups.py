"""What the named groups of a pattern's first match hold: the same that `re` finds.

Each way is followed until it fails; whoever comes to a step at a place where another was before
would fail again, and is not followed.
"""

from __future__ import annotations

from windlass.patterns.steps import AT, CHAR, SAVE, SPLIT, Program, holds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_CELLS = 1 << 20
"""Places in the pattern times places in the line; of a longer line the beginning is looked at."""


class Pattern:
    """Compiled. Raises ValueError for what it does not know, re.error for what is none."""

    def __init__(self, text: str) -> None:
        program = Program(text)
        self._steps, self._names, self._prefix = program.steps, program.names, program.prefix

    def search(self, line: str) -> dict[str, str | None]:
        """The named groups of the first match; {}: there is none."""
        line = line[: max(1, MOST_CELLS // len(self._steps)) - 1]
        width, seen = len(line) + 1, bytearray(len(self._steps) * (len(line) + 1))
        start = line.find(self._prefix) if self._prefix else 0
        while 0 <= start < width:
            saved = self._from(line, start, width, seen)
            if saved is not None:
                return self._groups(line, saved)
            start = line.find(self._prefix, start + 1) if self._prefix else start + 1
        return {}

    def _from(self, line: str, start: int, width: int, seen: bytearray) -> list[Any] | None:
        """What was saved on the way to a match that begins there, newest first in pairs; None:
        there is no such match."""
        steps = self._steps
        ways: list[tuple[int, int, Any]] = [(0, start, None)]
        while ways:
            at, place, saved = ways.pop()
            while not seen[at * width + place]:
                seen[at * width + place] = 1
                step = steps[at]
                kind = step[0]
                if kind == CHAR:
                    if place + 1 >= width or not holds(step, line[place]):
                        break
                    place += 1
                    at += 1
                elif kind == SPLIT:
                    ways.append((step[2], place, saved))
                    at = step[1]
                elif kind == SAVE:
                    saved = (step[1], place, saved)
                    at += 1
                elif kind == AT:
                    if not step[1](
                        line[place - 1] if place else "\n", (line[place : place + 1] or "\n")
                    ):
                        break
                    at += 1
                else:
                    return [saved]
        return None

    def _groups(self, line: str, found: list[Any]) -> dict[str, str | None]:
        ends: dict[int, int] = {}
        saved = found[0]
        while saved is not None:
            ends.setdefault(saved[0], saved[1])
            saved = saved[2]
        return {
            name: line[ends[2 * group] : ends[2 * group + 1]] if 2 * group + 1 in ends else None
            for name, group in self._names.items()
        }
