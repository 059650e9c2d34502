"""What a gang holds, from when to when, on which line of the ledger, and at what cost. Pure.

    created ──────── last checkpoint ──────── told to end ──────── over
    │      run       │          run           │        run          │   by itself, cancelled …
    │      run       │          lost          │        grace        │   preempted, resized

Under preemption neither lost work nor grace is charged to the victim. What had been written as
`run` before that was known is taken back by a `refund` of the same time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

HOUR_MS = 3_600_000
MIB = 1 << 20
Row = Mapping[str, Any]
Places = Mapping[str, tuple[str, str]]
"""By node: its pool, and the model of its GPUs."""


@dataclass(frozen=True)
class Part:
    """What the members of a gang in one pool, with one model of GPU, hold together."""

    pool: str
    gpu_model: str
    nodes: tuple[str, ...]
    members: int
    cpus_milli: int
    memory_mib: int
    gpu_milli: int


def parts(roles: Mapping[str, Row], placement: Sequence[Row], places: Places) -> list[Part]:
    """`roles` as they stand in a job's spec. Memory counts in whole MiB for each member. A node
    with members of two parts tells what it uses to the one with GPUs."""
    found: dict[tuple[str, str], Part] = {}
    told: set[str] = set()
    for placed in sorted(placement, key=lambda placed: -_gpu_milli(roles[placed["role"]])):
        role, node = roles[placed["role"]], placed["node"]
        pool, model = places.get(node, ("", ""))
        gpus = _gpu_milli(role)
        key = (pool, model if gpus else "")
        old = found.get(key) or Part(*key, (), 0, 0, 0, 0)
        found[key] = replace(
            old,
            nodes=old.nodes if node in told else (*old.nodes, node),
            members=old.members + 1,
            cpus_milli=old.cpus_milli + round((role.get("cpus") or 0) * 1000),
            memory_mib=old.memory_mib + -(-(role.get("memory") or 0) // MIB),
            gpu_milli=old.gpu_milli + gpus,
        )
        told.add(node)
    return list(found.values())


def _gpu_milli(role: Row) -> int:
    return (role.get("gpus") or 0) * 1000 + round((role.get("gpu_share") or 0) * 1000)


class Span(NamedTuple):
    kind: str
    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class Preempted:
    """An attempt that others ended for their sake."""

    saved_ms: int
    """Its last checkpoint, or its beginning."""
    ending_ms: int


def spans(from_ms: int, to_ms: int, preempted: Preempted | None = None) -> Iterator[Span]:
    """The lines of what is not on the ledger yet."""
    if preempted is None:
        yield from _span("run", from_ms, to_ms)
        return
    ending = min(max(preempted.ending_ms, from_ms), to_ms)
    saved = min(max(preempted.saved_ms, from_ms), ending)
    yield from _span("run", from_ms, saved)
    yield from _span("lost", saved, ending)
    yield from _span("grace", ending, to_ms)


def _span(kind: str, from_ms: int, to_ms: int) -> Iterator[Span]:
    if to_ms > from_ms:
        yield Span(kind, from_ms, to_ms)


def pieces(span: Span, bounds: Sequence[int]) -> Iterator[Span]:
    """The span cut at every full hour, and at each of `bounds` (sorted): an entry lies in one
    hour, so in one day, and has one price."""
    at = span.from_ms
    while at < span.to_ms:
        end = min(span.to_ms, at - at % HOUR_MS + HOUR_MS)
        following = bisect_right(bounds, at)
        if following < len(bounds):
            end = min(end, bounds[following])
        yield Span(span.kind, at, end)
        at = end


class Price(NamedTuple):
    """Micro-units for an hour of one CPU, one GiB, one GPU."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0


_HOUR_OF_ALL = 1000 * 1024 * HOUR_MS
_MOST = 1 << 60
"""No price keeps an attempt from ending: the database takes no larger number."""


def cost(price: Price, cpu: int, memory: int, gpu: int) -> int:
    """Of milli-CPU x ms, MiB x ms and milli-GPU x ms; rounded once, half away from zero, so that
    what is taken back is what was charged."""
    exact = (cpu * price.cpu + gpu * price.gpu) * 1024 + memory * price.memory * 1000
    rounded = min((abs(exact) + _HOUR_OF_ALL // 2) // _HOUR_OF_ALL, _MOST)
    return rounded if exact >= 0 else -rounded
