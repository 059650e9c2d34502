"""Which server holds which range: a ring, so that few ranges move when a server comes or goes.

    … server 1 … range 4 … server 0 … range 2 … server 2 …
                     └──────> owner     └────────> owner
                                └─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─> its successor holds the second copy

When the owner of a range is lost, the next on the ring is the one that has the copy.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
from collections.abc import Iterable

POINTS = 64  # of each server on the ring: the more, the more even


def owners(key: int, servers: Iterable[str], copies: int) -> list[str]:
    """The first `copies` servers on the ring after this range; fewer where there are fewer."""
    return list(_owners(key, frozenset(servers), copies))


@functools.lru_cache(maxsize=8192)  # asked for each range at each exchange
def _owners(key: int, servers: frozenset[str], copies: int) -> tuple[str, ...]:
    ring = _ring(servers)
    found: list[str] = []
    first = bisect.bisect(ring, (_place(f"range {key}"), ""))
    for step in range(len(ring)):
        name = ring[(first + step) % len(ring)][1]
        if name not in found:
            found.append(name)
            if len(found) == copies:
                break
    return tuple(found)


@functools.lru_cache(maxsize=64)
def _ring(servers: frozenset[str]) -> list[tuple[int, str]]:
    return sorted((_place(f"{name}#{n}"), name) for name in servers for n in range(POINTS))


def _place(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
