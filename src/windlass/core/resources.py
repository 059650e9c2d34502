"""What a member of a gang asks for and what a node offers, in whole numbers.

CPUs are milli-CPUs, so that no float ever decides whether a gang fits. A member that asks for
no CPU shares what is there, but takes one of the node's slots: a node is never asked to hold
an unbounded number of processes.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from windlass.core.strict import MAX_INT, Line, Lines, Strict

Whole = Annotated[int, Field(ge=0, le=MAX_INT)]


class Resources(Strict):
    cpus_milli: Whole = 0
    memory_bytes: Whole = 0
    gpus: Whole = 0
    slots: Whole = 0

    def fits(self, free: Resources) -> bool:
        return not self.missing(free)

    def missing(self, free: Resources) -> dict[str, int]:
        """For each kind that is short: by how much."""
        short = {
            kind: getattr(self, kind) - getattr(free, kind) for kind in Resources.model_fields
        }
        return {kind: amount for kind, amount in short.items() if amount > 0}

    def plus(self, other: Resources) -> Resources:
        return Resources(
            **{kind: getattr(self, kind) + getattr(other, kind) for kind in Resources.model_fields}
        )

    def minus(self, other: Resources) -> Resources:
        return Resources(
            **{kind: getattr(self, kind) - getattr(other, kind) for kind in Resources.model_fields}
        )


class Node(Strict):
    """A place of an engine where members can run; `capacity` is net of the system's reserve."""

    name: str
    engine: str
    capacity: Resources
    reserve: Resources = Resources()
    gpu_ids: Lines = ()
    gpu_model: str = ""
    boot_id: str = ""
    rack: str = ""
    block: str = ""
    """Where it stands: nodes of one rack, and racks of one block, are near each other."""
    pool: str = ""
    labels: Lines = ()
    """What it can do beside amounts: `isolation-1`, `network-none`."""
    isolation: dict[Line, Line] = {}
    """What jobs are kept apart with there, part by part."""


def describe(kind: str, amount: int) -> str:
    """An amount of one kind, for people."""
    if kind == "cpus_milli":
        return f"{amount / 1000:g} CPU"
    if kind == "memory_bytes":
        return f"{amount / 2**30:.1f} GiB memory"
    if kind == "gpus":
        return f"{amount} GPU{'' if amount == 1 else 's'}"
    return f"{amount} slot{'' if amount == 1 else 's'}"
