"""Which nodes a gang gets: the smallest domain that holds it, there the fewest nodes, the fullest.

    host ⊂ rack ⊂ block ⊂ pool      a node without a known rack shares one with all such nodes of
                                    its block, and so on up; a gang never spans two pools, because
                                    one engine starts it

One kind of member is placed exactly: if a domain has the room, the gang fits. Several kinds are
placed one after the other on a what-if of the domain, the larger members first; that may miss an
arrangement that a search over all would find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.columns import PLENTY, Columns, Ints, Shape
from windlass.scheduler.rooms import FULL, emptiness

LEVELS = ("host", "rack", "block", "pool")

_PICK_BY_PICK = 12  # for so few nodes, finding the best again and again is quicker than sorting
_HOSTS_TRIED = 64

Part = tuple[Shape, int]
"""A shape and how many members of it."""
Share = tuple[int, int]
"""A node and how many members it gets."""
Free = tuple[int, int, int]
"""How empty a node is, the node, and the members that it has room for."""
Chosen = list[tuple[int, list[tuple[int, ...]]]]
"""Of one part: nodes, and the devices of every member there."""


class Domains:
    """The nodes of each domain of one level, as runs of one permutation."""

    __slots__ = ("codes", "count", "ends", "of", "order", "starts")

    def __init__(self, codes: Ints) -> None:
        self.codes = codes
        self.order: Ints = np.argsort(codes, kind="stable")
        in_order = codes[self.order]
        first = np.ones(len(codes), dtype=np.bool_)
        first[1:] = in_order[1:] != in_order[:-1]
        self.starts: Ints = np.flatnonzero(first)
        self.ends: Ints = np.append(self.starts[1:], len(codes))
        self.count = len(self.starts)
        self.of: Ints = np.zeros(len(codes), dtype=np.int64)
        """The domain of each node."""
        self.of[self.order] = np.repeat(np.arange(self.count), self.ends - self.starts)

    def sums(self, values: Ints) -> Ints:
        """The sum of a column over each domain."""
        return np.add.reduceat(values[self.order], self.starts, dtype=np.int64)

    def nodes(self, domain: int) -> Ints:
        """The nodes of one domain, in their order."""
        return self.order[self.starts[domain] : self.ends[domain]]


def gang(
    room: Ints, key: Ints, members: int, levels: Sequence[Domains], highest: str = ""
) -> list[Share] | None:
    """How many of the members each node gets, or None if no domain up to `highest` holds them.

    `levels`: the domains of rack, block and pool."""
    roomy = room >= members
    host = int(np.where(roomy, key, FULL).argmin())
    if roomy[host]:
        return [(host, members)]
    if highest == "host":
        return None
    for at, domains in enumerate(levels):
        last = LEVELS[at + 1] == highest
        if not last and at < 2 and levels[at + 1].count == domains.count:
            continue  # the level above has the same domains
        if domains.count == 1:
            if int(room.sum(dtype=np.int64)) >= members:
                return fill(room, key, members)
        else:
            sums = domains.sums(room)
            tight = int(np.where(sums >= members, sums, FULL).argmin())
            if sums[tight] >= members:
                nodes = domains.nodes(tight)
                chosen = fill(room[nodes], key[nodes], members)
                return [(int(nodes[node]), count) for node, count in chosen]
        if last:
            return None
    return None


def gang_among(
    free: Sequence[Free], members: int, levels: Sequence[Domains], highest: str = ""
) -> list[Share] | None:
    """`gang` where only these few nodes have room, so that no column of all is made. They are in
    order."""
    roomy = [one for one in free if one[2] >= members]
    if roomy:
        return [(min(roomy)[1], members)]
    if highest == "host" or sum(one[2] for one in free) < members:
        return None
    for at, domains in enumerate(levels):
        last = LEVELS[at + 1] == highest
        if not last and at < 2 and levels[at + 1].count == domains.count:
            continue  # the level above has the same domains
        if domains.count == 1:
            return _fill_among(free, members)
        inside: dict[int, list[Free]] = {}
        for one in free:
            inside.setdefault(domains.of.item(one[1]), []).append(one)
        sums = [(sum(one[2] for one in some), domain) for domain, some in inside.items()]
        tight = min((one for one in sums if one[0] >= members), default=None)
        if tight is not None:
            return _fill_among(inside[tight[1]], members)
        if last:
            return None
    return None


def _fill_among(free: Sequence[Free], members: int) -> list[Share]:
    """`fill` of these."""
    if members > max(one[2] for one in free) * _PICK_BY_PICK:
        nodes = [one[1] for one in free]
        room = np.array([one[2] for one in free], dtype=np.int64)
        key = np.array([one[0] for one in free], dtype=np.int64)
        return [(nodes[node], most) for node, most in _fill_sorted(room, key, members)]
    chosen = []
    left = list(free)
    while members:
        most = min(max(one[2] for one in left), members)
        best = min(one for one in left if one[2] >= most)
        chosen.append((best[1], most))
        left.remove(best)
        members -= most
    return chosen


def fill(room: Ints, key: Ints, members: int) -> list[Share]:
    """Give the members to the fewest nodes: the roomiest first, of equals the fullest, and for
    those that are left the fullest node that still holds them. There must be room in all."""
    roomiest = int(room.max())
    if members > roomiest * _PICK_BY_PICK:
        return _fill_sorted(room, key, members)
    room = room.copy()
    chosen = []
    while members:
        most = min(int(room.max()), members)
        node = int(np.where(room >= most, key, FULL).argmin())
        chosen.append((node, most))
        room[node] = 0
        members -= most
    return chosen


def _fill_sorted(room: Ints, key: Ints, members: int) -> list[Share]:
    candidates = np.flatnonzero(room)
    room = room[candidates]
    order = np.lexsort((key[candidates], -room))
    candidates = candidates[order]
    room = room[order]
    before = np.cumsum(room, dtype=np.int64) - room
    whole = int(np.argmax(room >= members - before))  # from here on, one node holds the rest
    rest = members - int(before[whole])
    end = whole + int((room[whole:] >= rest).sum())
    enough = np.sort(candidates[whole:end])
    last = int(enough[key[enough].argmin()])
    chosen = list(zip(candidates[:whole].tolist(), room[:whole].tolist(), strict=True))
    chosen.append((last, rest))
    return chosen


def several(
    columns: Columns,
    parts: Sequence[Part],
    masks: Sequence[Ints],
    limit: Ints | None,
    devices: Ints,
    levels: Sequence[Domains],
    highest: str = "",
) -> list[Chosen] | None:
    """Nodes and devices for members of several shapes, all in the smallest domain where they go.

    `masks`: for each part, 1 where its members may run and 0 elsewhere. `limit`: the most members
    of the whole gang on each node."""
    rooms = [columns.room(shape) * mask for (shape, _), mask in zip(parts, masks, strict=True)]
    if limit is not None:
        rooms = [np.minimum(room, limit) for room in rooms]
    if any(int(room.sum()) < count for room, (_, count) in zip(rooms, parts, strict=True)):
        return None
    for nodes in _domains(columns, parts, rooms, limit, devices, levels, highest):
        part_masks = [mask[nodes] for mask in masks]
        part_limit = None if limit is None else limit[nodes]
        chosen = _within(columns.subset(nodes), parts, part_masks, part_limit, devices[nodes])
        if chosen is not None:
            return [[(int(nodes[node]), seats) for node, seats in part] for part in chosen]
    return None


def _domains(
    columns: Columns,
    parts: Sequence[Part],
    rooms: Sequence[Ints],
    limit: Ints | None,
    devices: Ints,
    levels: Sequence[Domains],
    highest: str,
) -> Iterator[Ints]:
    """The domains where the parts may go, the smallest first, of one level the tightest first."""
    together = np.ones(columns.nodes, dtype=np.bool_)
    for resource in range(4):
        wish = sum(shape.amounts[resource] * count for shape, count in parts)
        if wish:
            together &= columns.amounts[resource] >= wish
    for room, (_, count) in zip(rooms, parts, strict=True):
        together &= room >= count
    if limit is not None:
        together &= limit >= sum(count for _, count in parts)
    hosts = np.flatnonzero(together)
    order = np.argsort(emptiness(columns, devices)[hosts], kind="stable")
    for host in hosts[order[:_HOSTS_TRIED]]:
        yield np.array([host])
    if highest == "host":
        return
    for at, domains in enumerate(levels):
        last = LEVELS[at + 1] == highest
        if not last and at < 2 and levels[at + 1].count == domains.count:
            continue
        enough = np.ones(domains.count, dtype=np.bool_)
        spare = np.zeros(domains.count, dtype=np.int64)
        for room, (_, count) in zip(rooms, parts, strict=True):
            sums = domains.sums(room)
            enough &= sums >= count
            spare += np.minimum(sums, PLENTY)
        candidates = np.flatnonzero(enough)
        for domain in candidates[np.argsort(spare[candidates], kind="stable")]:
            yield domains.nodes(int(domain))
        if last:
            return


def _within(
    columns: Columns,
    parts: Sequence[Part],
    masks: Sequence[Ints],
    limit: Ints | None,
    devices: Ints,
) -> list[Chosen] | None:
    """All parts on these nodes, the larger members first; else the other way round; else None.
    `columns` is used up."""
    order = sorted(range(len(parts)), key=lambda at: (parts[at][0].size(), -at), reverse=True)
    spare = columns.copy()
    return _in_order(columns, order, parts, masks, limit, devices) or _in_order(
        spare, order[::-1], parts, masks, limit, devices
    )


def _in_order(
    columns: Columns,
    order: Sequence[int],
    parts: Sequence[Part],
    masks: Sequence[Ints],
    limit: Ints | None,
    devices: Ints,
) -> list[Chosen] | None:
    chosen: list[Chosen] = [[] for _ in parts]
    left = None if limit is None else limit.copy()
    for at in order:
        shape, members = parts[at]
        room = columns.room(shape) * masks[at]
        if left is not None:
            np.minimum(room, left, out=room)
        if int(room.sum()) < members:
            return None
        for node, count in fill(room, emptiness(columns, devices), members):
            seats = columns.devices(node, shape, count)
            columns.occupy(node, shape, seats)
            if left is not None:
                left[node] -= count
            chosen[at].append((node, seats))
    return chosen


def extend(
    room: Ints, key: Ints, held: Ints, extra: int, levels: Sequence[Domains], highest: str = ""
) -> list[Share]:
    """Up to `extra` more members as near as possible to the nodes that are held: on these, then
    in their racks, blocks, pools; never outside the domain of level `highest` they share."""
    farthest = LEVELS.index(highest) if highest else 3  # 3: the pool it is in
    seen = np.zeros(len(room), dtype=np.bool_)
    chosen: list[Share] = []
    left = extra
    for distance in range(farthest + 1):
        near = held
        if distance:
            domains = levels[distance - 1]
            own = sorted(set(domains.of[held].tolist()))
            near = domains.nodes(own[0])
            if len(own) > 1:
                near = np.sort(np.concatenate([domains.nodes(domain) for domain in own]))
        near = near[(room[near] > 0) & ~seen[near]]
        if not len(near):
            continue
        seen[near] = True
        most = np.minimum(room[near], extra)
        if left <= _PICK_BY_PICK:
            picked = _pick(near, most, key[near], left)
        else:
            picked = near[np.lexsort((key[near], -most))].tolist()
        for node in picked:
            count = min(int(room[node]), left)
            chosen.append((node, count))
            left -= count
            if not left:
                return chosen
    return chosen


def _pick(nodes: Ints, most: Ints, key: Ints, members: int) -> Iterator[int]:
    """So many of these nodes as hold the members, the roomiest first, of equals the fullest."""
    most = most.copy()
    while members > 0 and (roomiest := int(most.max())):
        at = int(np.where(most == roomiest, key, FULL).argmin())
        most[at] = 0
        members -= roomiest
        yield int(nodes[at])


def extend_among(
    free: Sequence[Free], held: Iterable[int], extra: int, levels: Sequence[Domains],
    highest: str = "",
) -> list[Share]:  # fmt: skip
    """`extend` where only these few nodes have room."""
    farthest = LEVELS.index(highest) if highest else 3
    chosen: list[Share] = []
    far, left = list(free), extra
    nodes = set(held)
    for distance in range(farthest + 1):
        of = levels[distance - 1].of.item if distance else int
        own = {of(node) for node in nodes}
        near = [one for one in far if of(one[1]) in own]
        if not near:
            continue
        far = [one for one in far if of(one[1]) not in own]
        near.sort(key=lambda one: (-min(one[2], extra), one[0], one[1]))
        for _, node, most in near:
            count = min(most, left)
            chosen.append((node, count))
            left -= count
            if not left:
                return chosen
    return chosen


def may_run(models: NDArray[np.bool_], model: Ints, up: NDArray[np.bool_]) -> Ints:
    """1 for the nodes that are up and of an allowed model, 0 for the others."""
    return (models[model] & up).astype(np.int64)
