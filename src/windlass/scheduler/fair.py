"""Fair share alone: who is next (dominant share), and who used much lately (decayed usage).

`fill` is dominant resource fairness for tasks that cannot be divided: whoever has the lowest
dominant share (its largest part of any one resource, by weight) gets one task more, until nothing
fits. The scheduler's loop does the same a job at a time; this is the rule without quota, topology
and gangs, so that its promises can be tested against the exact solution.

`Decayed` weighs use by its age: what was used one half-life ago counts half. Halving is exact;
between halvings the weight of new use grows by a straight line in place of the exponential:

    weight(k half-lives + r) = 2^k (1 + r / half-life)
    value(now)               = sum of (use x weight when it was used) / weight(now)

so the value does not depend on when it was looked at, and needs no floats.
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


class _Use:
    __slots__ = ("at_ms", "rate", "total")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.rate = 0
        self.total = 0
        """Use by weight, times two half-lives, in units of the weight when `at_ms`' half-life
        began."""


class Decayed:
    """How much each tenant used lately: amount times milliseconds, halved every half-life.

    What runs counts as it runs, from `start` to `stop`. Starting costs `entry_ms` of use at once,
    so that who starts much in one moment does not look unused until it has run for a while.
    """

    def __init__(self, half_life_ms: int, entry_ms: int = 60_000) -> None:
        if half_life_ms < 1:
            raise ValueError(f"half_life_ms: {half_life_ms} is not positive")
        self._half = half_life_ms
        self._entry = entry_ms
        self._uses: dict[str, _Use] = {}

    def start(self, tenant: str, amount: int, now_ms: int) -> None:
        """It uses so much more from now on."""
        self.add(tenant, amount * self._entry, now_ms)
        self._uses[tenant].rate += amount

    def stop(self, tenant: str, amount: int, now_ms: int) -> None:
        use = self._brought(tenant, now_ms)
        assert use.rate >= amount, f"{tenant} stops more than it started"
        use.rate -= amount

    def add(self, tenant: str, amount: int, now_ms: int) -> None:
        """It used so much (amount times milliseconds) at this moment."""
        use = self._brought(tenant, now_ms)
        use.total += 2 * amount * (self._half + use.at_ms % self._half)

    def value(self, tenant: str, now_ms: int) -> int:
        """What it used, by age. Of who runs nothing it only falls, and keeps its order."""
        if tenant not in self._uses:
            return 0
        use = self._brought(tenant, now_ms)
        return use.total // (2 * (self._half + use.at_ms % self._half))

    def _brought(self, tenant: str, now_ms: int) -> _Use:
        """Its use, brought forward to now. A clock that went back is taken to stand still."""
        use = self._uses.get(tenant)
        if use is None:
            use = self._uses[tenant] = _Use(now_ms)
        if now_ms > use.at_ms:
            half, rate, total = self._half, use.rate, use.total
            age, since = divmod(use.at_ms, half)
            new_age, until = divmod(now_ms, half)
            if new_age - age > 256:  # whatever was before is nothing by now
                age, since, total = new_age - 256, 0, 0
            # Twice the area under the line of weights, a half-life at a time.
            while rate and age < new_age:
                total = (total + rate * (half - since) * (3 * half + since)) >> 1
                age, since = age + 1, 0
            if age < new_age:
                total, since = total >> (new_age - age), until
            use.total = total + rate * (until - since) * (2 * half + since + until)
            use.at_ms = now_ms
        return use
