"""What of a job would start now, when all of it would wait: fewer members, or fewer GPUs each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windlass.core.jobs import JobSpec
from windlass.core.strict import Strict


class Smaller(Strict):
    role: str
    count: int
    gpus: int


def smaller(spec: JobSpec, starts: Callable[[JobSpec], bool]) -> Iterator[Smaller]:
    """For a gang of one role, the most members that would start, and the most GPUs of each; not
    below the role's `min`. Each takes a few questions, however large the gang is."""
    if len(spec.roles) != 1:
        return
    ((name, role),) = spec.roles.items()

    def changed(**values: Any) -> JobSpec:
        other = role.model_copy(update=values)
        return spec.model_copy(update={"roles": {name: other}, "workers": None})

    count = _most(role.min or 1, role.count - 1, lambda n: starts(changed(count=n)))
    if count is not None:
        yield Smaller(role=name, count=count, gpus=role.gpus)
    gpus = _most(1, role.gpus - 1, lambda n: starts(changed(gpus=n)))
    if gpus is not None:
        yield Smaller(role=name, count=role.count, gpus=gpus)


def _most(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The largest number for which it holds, where it holds for all below it."""
    best = None
    while low <= high:
        middle = (low + high) // 2
        if holds(middle):
            best, low = middle, middle + 1
        else:
            high = middle - 1
    return best
