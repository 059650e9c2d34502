"""The seam to where files lie outside of the server's disk: five verbs on keys.

A key is used once: it is put, read, removed, and never put again. So nothing here needs to be
atomic. A put that was cut leaves bytes that no row names (`tables.py`), and the sweep takes them.

Plain calls: they wait for a disk or a network, so the server makes them in threads. Any number
may run at once. Whatever is wrong with the storage itself is raised as Unavailable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

BLOCK = 8 * 2**20
"""What is moved at once; also the size of a part, where uploads have parts."""


@dataclass(frozen=True)
class Listed:
    key: str
    size: int
    changed_ms: int


class Storage(Protocol):
    url: str
    """As people may read it: without keys."""

    def put(self, key: str, opened: int, size: int) -> None:
        """All `size` bytes of an open file, from its start. Complete when it returns."""

    def read(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, which is not past the end. Raises NotFound."""

    def size(self, key: str) -> int | None:
        """None: it is not there."""

    def remove(self, key: str) -> None:
        """Whether it is there or not."""

    def listing(self) -> Iterator[Listed]:
        """All there is, in no order; what comes or goes meanwhile may be told or not."""
