"""What goes wrong in a simulation, and how often: nothing in a replay, all of it in chaos."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, and how often. Per mille of what could."""

    start_delay_ms: int = 0
    """Each start takes up to so long (drawn evenly)."""
    dispatch_failed: int = 0
    duplicate: int = 0
    """The report of an end comes twice."""
    late: int = 0
    """The report of an end comes up to a minute late, and so after reports of later events."""
    lost: int = 0
    """The report of an end never comes: the lease runs out instead."""
    lease_ms: int = 60_000
    node_days: int = 0
    """Mean days between two losses of one node; 0: never."""
    repair_ms: int = 3_600_000
    spread_cost: int = 0
    """How much slower a gang over several racks is."""


CHAOS = Faults(
    start_delay_ms=20_000,
    dispatch_failed=10,
    duplicate=20,
    late=20,
    lost=5,
    node_days=30,
    spread_cost=100,
)
