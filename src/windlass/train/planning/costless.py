"""Blocks that cost nothing, and with which no cut sends more than without them.

What a profile's tracing leaves beside the layers: `__getitem__` of a layer that gives several
values (used or not), `Add`, `View`, a state that nobody computes. Each takes no time, has no
parameters, and gives no more bytes than those that only it needs:

    LSTM ──┬── [0] ── Add ── …        [0] and [1] belong to whoever has the LSTM: a cut between
           └── [1]                    them sends no fewer bytes and spares nobody any time

So of the ways to cut a graph those are enough that take each of them along as soon as all that
it needs is there: no other is faster. A graph with more ways than can be tried often has few of
these. Left out are plans in which a worker has nothing but such blocks, and some that a limit of
memory would have spared a few bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from windlass.train.planning.profile import Profile


def costless(profile: Profile) -> frozenset[int]:
    needs: list[list[int]] = [[] for _ in profile.blocks]
    users = [0] * len(profile.blocks)
    for start, end in profile.edges:
        needs[end].append(start)
        users[start] += 1

    def spares(at: int) -> int:
        own = (start for start in needs[at] if users[start] == 1)
        return sum(profile.blocks[start].activation_bytes for start in own)

    return frozenset(
        at
        for at, block in enumerate(profile.blocks)
        if block.time_ms == 0
        and block.parameter_bytes == 0
        and (not users[at] or block.activation_bytes <= spares(at))
    )


def contracted(
    count: int, edges: Sequence[tuple[int, int]], free: Collection[int]
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """The graph without the `free` ones: places of the others in the whole, edges between these,
    by their new places, and of every block of the whole a mask of the others that it needs,
    directly or over free ones."""
    kept = [at for at in range(count) if at not in free]
    place = {at: number for number, at in enumerate(kept)}
    above = [0] * count
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        above[end] |= above[start] if start in free else 1 << place[start]
    between = [(start, place[at]) for at in kept for start in _bits(above[at])]
    return kept, between, above


def whole(mask: int, kept: Sequence[int], free: Collection[int], above: Sequence[int]) -> int:
    """The mask of a set of the others as one of the whole, with the free ones that it feeds."""
    if not mask:
        return 0
    found = sum(1 << kept[number] for number in _bits(mask))
    return found | sum(1 << at for at in free if not above[at] & ~mask)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        at = mask.bit_length() - 1
        mask ^= 1 << at
        yield at
