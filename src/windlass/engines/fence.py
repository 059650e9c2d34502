"""How an attempt ends on a node where nobody can look, or clean up: the node is silent, or takes
no work. What a cluster gave up may still run there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from windlass.engines.base import NodeLaunch, Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.spawn import reap

LEASE_SECONDS = 60.0
_MARGIN_SECONDS = 5.0
_REAP_SECONDS = 20.0


async def end_by_fence(
    place: Directory, why: str, lease_seconds: float, command: Sequence[str]
) -> Seen:
    """A worker that still reaches its files finds the fence and ends; one that does not reach the
    server ends when its lease has run out. Before it has said so, or the time for both is over,
    its end is not said. To be called again until it is."""
    waited = await asyncio.to_thread(place.fenced_seconds)
    bound = lease_seconds + await asyncio.to_thread(_grace_of, place) + _MARGIN_SECONDS
    if waited < bound:
        return Seen(
            place.attempt_id, place.node, Sight.DEAD, None,
            f"{why}; what ran there ends itself within {bound - waited:.0f} s",
        )  # fmt: skip
    place.put_aside_broken_record()
    await asyncio.to_thread(reap, command, place, _REAP_SECONDS)
    record = place.record()
    if record is None:
        return Seen(place.attempt_id, place.node, Sight.DEAD, None, "no record can be written")
    return Seen(place.attempt_id, place.node, Sight.ENDED, record)


def is_shared(worker: NodeLaunch) -> bool:
    """Whether jobs of several people run beside each other here (`server/jobs/reconcile.py`)."""
    return bool((worker.launch.get("isolation") or {}).get("shared"))


def _grace_of(place: Directory) -> float:
    """What its worker gives its ranks after the lease, in seconds."""
    try:
        launch = json.loads((place.path / "launch.json").read_text())
        return float(launch.get("grace_ms") or 0) / 1000
    except (OSError, ValueError, AttributeError):
        return 0.0
