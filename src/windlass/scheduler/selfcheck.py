"""Whether the core's books still add up: what is free is what there is less what is held.

The books are kept one change at a time and never rebuilt, so a fault in keeping them would
stay unseen and grow. The driver asks once a minute and, should they not add up, builds the core
anew.
"""

from __future__ import annotations

import numpy as np

from windlass.scheduler.core import Core
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.quota import Amounts


def drift(core: Core) -> str | None:
    """What does not add up, in a sentence; None when all does."""
    truth = core.nodes.capacity.copy()
    for entry in core.running.entries.values():
        truth.take(entry.told.needs, entry.seats + entry.losing)
    now = core.nodes.now
    for kind in ("cpus", "memory", "slots"):
        wrong = np.flatnonzero(getattr(truth, kind) != getattr(now, kind))
        if len(wrong):
            return f"{kind} of {_names(core, wrong)}: the index differs from what is held"
    wrong = np.flatnonzero((truth.gpu != now.gpu).any(axis=1))
    if len(wrong):
        return f"GPUs of {_names(core, wrong)}: the index differs from what is held"
    return _quota(core)


def _quota(core: Core) -> str | None:
    """What every tenant is charged: what its jobs hold that are not leaving, and what is kept for
    those that wait with a promise."""
    used: dict[str, list[int]] = {}
    for entry in core.running.entries.values():
        if entry.stage is not Stage.LEAVING:
            _add(used, entry, entry.charged)
    for kept in core.reservations.all.values():
        _add(used, kept.entry, kept.entry.amounts)
    for tenant in core.tree.tenants():
        charged = list(core.tree.usage(tenant).values())
        if charged != used.get(tenant, [0] * len(charged)):
            return f"the quota of {tenant}: {charged} is charged, {used.get(tenant)} is held"
    return None


def _add(used: dict[str, list[int]], entry: Entry, amounts: Amounts) -> None:
    mine = used.setdefault(entry.told.tenant, [0] * len(amounts))
    for column, amount in enumerate(amounts):
        mine[column] += amount


def _names(core: Core, nodes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    names = [core.nodes.names[at] for at in nodes[:3]]
    return ", ".join(names) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
