"""The ways to cut a graph of blocks in two: its downsets.

A downset is a set of blocks with everything that they need; a pipeline is a growing row of them,
and a stage is what one has more than the one before. In a chain they are its prefixes; in a graph
with branches there are more, and a branch may lie on either side of a cut:

        ┌─ b ─┐          {} {a} {ab} {ac} {abc} {abcd}: a cut through {ab} sends what a and b
    a ──┤     ├── d      give, because c and d still need them. Each producer counts once,
        └─ c ─┘          however many blocks beyond the cut use it.

Sums over a stage are differences of sums over downsets, so planning needs a few numbers for each.
A graph of many long branches has more downsets than anyone can try. Beyond `most` of them, the
parts that are widest keep those downsets that a few orders of execution go through; `exact` is
False then, unless all those could be tried beside which no other is faster (`costless.py`). Very
long chains keep the cheapest cut of each stretch of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.train.planning.costless import contracted, costless, whole
from windlass.train.planning.profile import Profile

MOST = 1200
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class States:
    """Downsets by size, from nothing to everything, with sums over each."""

    members: NDArray[np.bool_]
    """[state, block]."""
    exact: bool
    forward_ms: Floats
    time_ms: Floats
    parameter_bytes: Floats
    saved_bytes: Floats
    cut_bytes: Floats
    """What crosses to the rest, one way."""
    within: NDArray[np.bool_]
    """[i, j]: state i is a part of state j, and not all of it."""

    @property
    def count(self) -> int:
        return len(self.members)

    def between(self, of: Floats) -> Floats:
        """[i, j]: the sum over what j has more than i. Zero where that has no meaning."""
        return np.where(self.within, np.maximum(of[None, :] - of[:, None], 0.0), 0.0)

    def again(self, profile: Profile) -> States:
        """The same states of the same blocks at another batch."""
        return _summed(self.members, self.exact, profile)

    def blocks(self, start: int, end: int) -> list[int]:
        return [int(at) for at in np.flatnonzero(self.members[end] & ~self.members[start])]


def states_of(profile: Profile, most: int = MOST, *, in_order: bool = False) -> States:
    """At most `most` of them. `in_order`: prefixes only, so that stages are stretches of blocks in
    the order in which the model executes them, which is what a pipeline of a model can be."""
    count = len(profile.blocks)
    if in_order:
        masks, exact = [(1 << at) - 1 for at in range(count + 1)], True
    else:
        weights = [block.activation_bytes for block in profile.blocks]
        masks, exact = _downsets(count, profile.edges, weights, most)
        if not exact:
            masks, exact = _with_closed(masks, profile, most)
    if len(masks) > most:
        masks, exact = _thinned([(1 << at) - 1 for at in range(count + 1)], profile, most), False
    members = np.zeros((len(masks), count), bool)
    for at, mask in enumerate(masks):
        bits = np.frombuffer(mask.to_bytes((count + 7) // 8, "little"), np.uint8)
        members[at] = np.unpackbits(bits, count=count, bitorder="little")
    return _summed(members, exact, profile)


def _summed(members: NDArray[np.bool_], exact: bool, profile: Profile) -> States:
    blocks = profile.blocks
    inside = members.astype(np.float64)
    users: list[list[int]] = [[] for _ in blocks]
    for start, end in profile.edges:
        users[start].append(end)
    cut = np.zeros(len(members))
    for at, using in enumerate(users):
        if using:
            cut += blocks[at].activation_bytes * (members[:, at] & ~members[:, using].all(axis=1))
    single = inside.astype(np.float32)
    within = (single @ (1 - single).T) == 0
    np.fill_diagonal(within, False)

    def total(values: Iterable[float]) -> Floats:
        return np.asarray(inside @ np.array(list(values), np.float64))

    return States(
        members, exact,
        total(b.forward_ms for b in blocks), total(b.time_ms for b in blocks),
        total(b.parameter_bytes for b in blocks), total(b.saved_bytes for b in blocks),
        cut, within,
    )  # fmt: skip


# -- which downsets ---------------------------------------------------------------------------


def _downsets(
    count: int, edges: Sequence[tuple[int, int]], weights: Sequence[int], most: int
) -> tuple[list[int], bool]:
    """As bit masks, by size; and whether these are all."""
    parts = _parts(count, edges, most)
    exact = True
    while _too_many(parts, most):
        widest = max(
            (part for part in parts if not part.thin), key=lambda p: len(p.masks), default=None
        )
        if widest is None or len(widest.masks) <= widest.high - widest.low:
            break
        widest.masks, widest.thin, exact = _orders(widest, edges, weights), True, False
    return _by_size(_joined(parts)), exact


def _parts(count: int, edges: Sequence[tuple[int, int]], most: int) -> list[_Part]:
    needs = [0] * count
    for start, end in edges:
        needs[end] |= 1 << start
    return [
        _Part(low, high, needs, _within_part(low, high, needs, most))
        for low, high in _between_waists(count, needs)
    ]


def _too_many(parts: Sequence[_Part], most: int) -> bool:
    return sum(len(part.masks) for part in parts) > most


def _joined(parts: Sequence[_Part]) -> set[int]:
    found = {0}
    for part in parts:
        below = (1 << part.low) - 1
        found |= {below | mask for mask in part.masks}
    return found


def _by_size(masks: Iterable[int]) -> list[int]:
    return sorted(masks, key=lambda mask: (mask.bit_count(), mask))


def _with_closed(masks: Sequence[int], profile: Profile, most: int) -> tuple[list[int], bool]:
    """These, and all that take along what costs nothing, where there are not too many of them."""
    free = costless(profile)
    kept, edges, above = contracted(len(profile.blocks), profile.edges, free)
    parts = _parts(len(kept), edges, most)
    if not free or _too_many(parts, most):
        return list(masks), False
    closed = {whole(mask, kept, free, above) for mask in _joined(parts)}
    return next(
        ((_by_size(found), True) for found in (closed | set(masks), closed) if len(found) <= most),
        (list(masks), False),
    )


@dataclass
class _Part:
    """Blocks low … high-1: each needs all below `low`, is needed by all from `high` on."""

    low: int
    high: int
    needs: Sequence[int]
    masks: set[int]
    thin: bool = False


def _between_waists(count: int, needs: Sequence[int]) -> list[tuple[int, int]]:
    """Where the graph has a waist its downsets are one after the other, not combinations."""
    above = [0] * count  # everything that a block needs, however indirectly
    for at in range(count):
        rest = needs[at]
        while rest:
            start = rest.bit_length() - 1
            above[at] |= above[start] | (1 << start)
            rest &= ~above[at]
    waists, all_need = [count], -1
    for at in range(count - 1, -1, -1):
        all_need &= above[at]
        below = (1 << at) - 1
        if at == 0 or all_need & below == below:
            waists.append(at)
    edges = waists[::-1]
    return list(zip(edges, edges[1:], strict=False))


def _within_part(low: int, high: int, needs: Sequence[int], most: int) -> set[int]:
    """All downsets of a part, or a few more than `most` of them."""
    below = (1 << low) - 1
    found: set[int] = set()
    heap = [0]
    while heap and len(found) <= most:
        have = heap.pop()
        for at in range(low, high):
            more = have | (1 << at)
            if more != have and more not in found and not needs[at] & ~(have | below):
                found.add(more)
                heap.append(more)
    return found


def _orders(part: _Part, edges: Sequence[tuple[int, int]], weights: Sequence[int]) -> set[int]:
    """The downsets that some orders of execution go through: as given, branch after branch from
    either side, and always the block that leaves least to send."""
    users = [0] * len(weights)
    for start, end in edges:
        users[start] |= 1 << end

    def alive(have: int) -> int:
        return sum(w for at, w in enumerate(weights) if have >> at & 1 and users[at] & ~have)

    below = (1 << part.low) - 1
    rules: list[Callable[[int, int, int], float]] = [
        lambda at, last, have: at,
        lambda at, last, have: at if users[last] >> at & 1 else 1e9 + at,
        lambda at, last, have: -at if users[last] >> at & 1 else 1e9 - at,
    ]
    if part.high - part.low <= 300:
        rules.append(lambda at, last, have: alive(have | (1 << at)))
    found: set[int] = set()
    for rule in rules:
        have, last = below, max(part.low - 1, 0)
        ready = {at for at in range(part.low, part.high) if not part.needs[at] & ~have}
        while ready:
            last = min(ready, key=lambda at: (rule(at, last, have), at))
            have |= 1 << last
            found.add(have & ~below)
            ready.remove(last)
            after = users[last]
            while after:
                at = after.bit_length() - 1
                after ^= 1 << at
                if at < part.high and not part.needs[at] & ~have:
                    ready.add(at)
    return found


def _thinned(masks: Sequence[int], profile: Profile, most: int) -> list[int]:
    """Of a row of prefixes: the cheapest cut of each stretch of time, and both ends."""
    last_user = list(range(len(profile.blocks)))
    for start, end in profile.edges:
        last_user[start] = max(last_user[start], end)
    change = np.zeros(len(masks) + 1)
    for at, user in enumerate(last_user):
        if user > at:
            change[at + 1] += profile.blocks[at].activation_bytes
            change[user + 1] -= profile.blocks[at].activation_bytes
    cut = np.cumsum(change)
    times = np.cumsum([0.0, *(block.time_ms for block in profile.blocks)])
    # A share by position beside the share by time: where times are 0 there are cuts as well.
    share = times / max(float(times[-1]), 1e-12) + np.arange(len(masks)) / len(masks)
    stretch = np.minimum(share / 2 * (most - 2), most - 3).astype(int)
    best: dict[int, int] = {}
    for at in range(1, len(masks) - 1):
        kept = best.get(int(stretch[at]))
        if kept is None or cut[at] < cut[kept]:
            best[int(stretch[at])] = at
    return [masks[0], *(masks[at] for at in sorted(best.values())), masks[-1]]
