"""PipeDream's published text form of a profile: a line for each node, then the edges.

    node2 -- Conv2d(3, 64) -- forward_compute_time=22.3, backward_compute_time=24.6,
             activation_size=1644167168.000, parameter_size=7168.000            (in one line)
        node2 -- node3

Nodes come in any order. Sources that are called `Input` are dropped: every member reads its own
data, so they cost a pipeline nothing. Times are in milliseconds; `activation_size` may be a list,
`[4; 8]`, of what a node gives; `-- stage_id=1` at a line's end is what their optimiser adds.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Mapping, Sequence

from windlass.core.errors import InvalidInput
from windlass.core.strict import MAX_INT
from windlass.train.planning.profile import MOST_BLOCKS, BlockCost, Profile, unconnected

BATCH = 64
"""What times are of where nobody says it: the form has no place for it."""
OPTIMISER_FACTOR = 1.0
"""SGD with momentum, as theirs."""
FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_EXAMPLE = f"node1 -- Linear(8, 8) -- {', '.join(f'{name}=0.000' for name in FIELDS)}"
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")


def parse(text: str, path: str = "profile", *, batch: int | None = None) -> Profile:
    """Raises InvalidInput that names the line, the field and what was found."""
    nodes: dict[str, BlockCost] = {}
    edges: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        parts = [part.strip() for part in line.strip().split(" -- ")]
        if len(parts) == 2 and "=" not in parts[1]:
            edges.setdefault((parts[0], parts[1]), number)
        else:
            name, block = _node(parts, where)
            if name in nodes:
                raise InvalidInput(f"{where}: {name} is there twice")
            nodes[name] = block
            if len(nodes) > MOST_BLOCKS:
                raise InvalidInput(f"{where}: more than {MOST_BLOCKS:,} nodes")
    for (start, end), number in edges.items():
        for name in (start, end):
            if name not in nodes:
                raise InvalidInput(f"{path}: line {number}: there is no node {name!r}")
    if not nodes:
        raise InvalidInput(f"{path}: it has no node", hint=f"a line is like: {_EXAMPLE}")
    names = _in_order(list(nodes), list(edges), path)
    return _profile(names, nodes, list(edges), path, batch)


def _node(parts: Sequence[str], where: str) -> tuple[str, BlockCost]:
    at = next((k for k, part in enumerate(parts) if part.startswith(f"{FIELDS[0]}=")), None)
    if at is None or at < 2 or not parts[0]:
        missing = f"{FIELDS[0]} is missing" if at is None else "its id or its layer is missing"
        raise InvalidInput(
            f"{where}: neither a node nor an edge: {missing}", hint=f"a line is like: {_EXAMPLE}"
        )
    for rest in parts[at + 1 :]:
        if not re.fullmatch(r"stage_id=-?[0-9]+", rest):
            raise InvalidInput(
                f"{where}: stage_id=N or nothing after the numbers (found {rest!r})"
            )
    values: dict[str, float] = {}
    for item in parts[at].split(","):
        name, _, value = item.strip().partition("=")
        if name not in FIELDS:
            raise InvalidInput(f"{where}: {name!r}: one of {', '.join(FIELDS)}")
        if name in values:
            raise InvalidInput(f"{where}: {name} is there twice")
        values[name] = _value(value.strip(), f"{where}: {name}", name)
    for name in FIELDS:
        if name not in values:
            raise InvalidInput(f"{where}: {name} is missing")
    forward, backward, activation, parameters = (values[name] for name in FIELDS)
    layer = " -- ".join(parts[1:at])
    block = BlockCost(
        f"{parts[0]} {layer}", forward, backward, round(activation), round(parameters),
        round(activation),
    )  # fmt: skip
    return parts[0], block


def _value(text: str, where: str, name: str) -> float:
    several = re.fullmatch(r"\[(.*)\]", text) if name == "activation_size" else None
    words = [word.strip() for word in several[1].split(";")] if several else [text]
    total = 0.0
    for word in words:
        number = float(word) if _NUMBER.fullmatch(word) else math.nan
        if not 0 <= number <= (MAX_INT if name.endswith("size") else 1e12):
            raise InvalidInput(f"{where}: a number, 0 or more (found {word!r})")
        total += number
    return total


def _in_order(names: Sequence[str], edges: Sequence[tuple[str, str]], path: str) -> list[str]:
    """An order of execution: the lowest number first of those that can be next."""
    waits = dict.fromkeys(names, 0)
    after: dict[str, list[str]] = {name: [] for name in names}
    for start, end in edges:
        waits[end] += 1
        after[start].append(end)
    heap = [(_natural(name), name) for name in names if not waits[name]]
    heapq.heapify(heap)
    found = []
    while heap:
        _, name = heapq.heappop(heap)
        found.append(name)
        for each in after[name]:
            waits[each] -= 1
            if not waits[each]:
                heapq.heappush(heap, (_natural(each), each))
    if len(found) < len(names):
        around = " → ".join(_cycle(after, {name for name in names if waits[name]}))
        raise InvalidInput(f"{path}: the graph has a cycle: {around}")
    return found


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """node9 before node10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def _cycle(after: Mapping[str, Sequence[str]], left: set[str]) -> list[str]:
    """One of them, in a graph of which only nodes on or behind cycles are left."""
    before = {end: start for start in sorted(left) for end in after[start] if end in left}
    at, seen = next(iter(sorted(left & set(before)))), []
    while at not in seen:
        seen.append(at)
        at = before[at]
    found = [*seen[seen.index(at) :], at]
    return found[::-1]


def _profile(
    names: Sequence[str],
    nodes: Mapping[str, BlockCost],
    edges: Sequence[tuple[str, str]],
    path: str,
    batch: int | None,
) -> Profile:
    place = {name: at for at, name in enumerate(names)}
    apart = unconnected(len(names), [(place[a], place[b]) for a, b in edges])
    if apart is not None:
        raise InvalidInput(
            f"{path}: no edge leads from {names[0]} to {names[apart]}, over any others: "
            "these are two models"
        )
    targets = {end for _, end in edges}
    inputs = [
        name
        for name in names
        if name not in targets and nodes[name].name.split(" ", 1)[1].startswith("Input")
    ]
    kept = [name for name in names if name not in inputs]
    if not kept:
        raise InvalidInput(f"{path}: there is no node beside {', '.join(inputs)}")
    place = {name: at for at, name in enumerate(kept)}
    return Profile(
        batch=batch or BATCH,
        blocks=tuple(nodes[name] for name in kept),
        edges=tuple(sorted((place[a], place[b]) for a, b in edges if a in place and b in place)),
        optimiser_factor=OPTIMISER_FACTOR,
        input_bytes=sum(nodes[name].activation_bytes for name in inputs),
    )
