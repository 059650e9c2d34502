"""Fair share alone: who is next, by dominant share.

`fill` is dominant resource fairness for tasks that cannot be divided: whoever has the lowest
dominant share (its largest part of any one resource, by weight) gets one task more, until nothing
fits. The scheduler's loop does the same a job at a time; this is the rule without quota, topology
and gangs, so that its promises can be tested against the exact solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace
from math import lcm


def fill(
    capacity: Mapping[str, int],
    demands: Mapping[str, Mapping[str, int]],
    weights: Mapping[str, int] | None = None,
    limit: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """How many tasks each tenant gets. `demands`: what one task of it needs; `limit`: the most
    tasks it has use for (absent: any number); `weights`: 1 where absent.

    Equal shares go by the tenant's name. Raises ValueError for a weight below 1, a negative
    amount, or a tenant that needs nothing and has no limit.
    """
    weights, limit = weights or {}, limit or {}
    free = dict(capacity)
    tasks = dict.fromkeys(demands, 0)
    common = lcm(*[_weight(tenant, weights) for tenant in demands])
    whole = lcm(*[amount for amount in capacity.values() if amount > 0])
    waiting: list[tuple[int, str, int]] = []
    for tenant, needs in demands.items():
        # What one task adds to its share, in units so small that all shares are whole numbers.
        step = 0
        for name, amount in needs.items():
            if amount < 0:
                raise ValueError(f"{tenant} needs {amount} of {name}")
            if 0 < amount <= free.get(name, 0):
                step = max(step, amount * (whole // free[name]))
            elif amount:
                break  # not even its first task fits
        else:
            if not step and tenant not in limit:
                raise ValueError(f"{tenant} needs nothing, and has no limit")
            waiting.append((0, tenant, step * (common // weights.get(tenant, 1))))
    heapify(waiting)
    while waiting:
        share, tenant, more = waiting[0]
        needs = demands[tenant]
        if tasks[tenant] >= limit.get(tenant, tasks[tenant] + 1) or any(
            amount > free[name] for name, amount in needs.items() if amount
        ):
            heappop(waiting)  # what is free only shrinks: it will not fit later either
            continue
        for name, amount in needs.items():
            if amount:
                free[name] -= amount
        tasks[tenant] += 1
        heapreplace(waiting, (share + more, tenant, more))
    return tasks


def _weight(tenant: str, weights: Mapping[str, int]) -> int:
    weight = weights.get(tenant, 1)
    if weight < 1:
        raise ValueError(f"the weight of {tenant} is {weight}: 1 is the least")
    return weight
