"""The auditor's own quotas: the slow and obvious version, computed from nothing each time.

    stays home(c)  what a child does not lend
    quota(n)       its own nominal + what its children lend
    use(n)         what its own jobs use + what its children draw beyond what stays home with them
    lawful         use(root) <= quota(root); below it use(n) <= quota(n) + borrow(n)

So nobody uses what stays home with another, and nobody uses more than it owns without a lender.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.scheduler.audit.ground import admission, gpu_milli
from windlass.scheduler.events import Cap, Need, Quota, Rules, Submit

Amounts = dict[str, int]


def asked(need: Need, members: int, model: str = "") -> Amounts:
    """What so many members of a role use, in the resources that quotas speak of."""
    amounts = {
        "cpus": need.cpus_milli * members,
        "memory": need.memory_bytes * members,
        "gpus": gpu_milli(need) * members,
    }
    if model and amounts["gpus"]:
        amounts[f"gpus:{model}"] = amounts["gpus"]
    return {name: amount for name, amount in amounts.items() if amount}


def smallest(job: Submit) -> Amounts:
    """What the gang uses at the size it starts at; of no model in particular."""
    total: Amounts = {}
    for need in job.needs:
        add(total, asked(need, admission(need)))
    return total


def add(total: Amounts, more: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + sign * amount


class Tenants:
    """Who uses what (counted), and what the rules say of it (computed anew for each question)."""

    def __init__(self) -> None:
        self.used: dict[tuple[str, str, str], Amounts] = {}
        """By tenant, kind and user."""
        self.rules(Rules())

    def rules(self, rules: Rules) -> None:
        self.quotas: dict[str, Quota] = {quota.name: quota for quota in rules.quotas}
        for quota in rules.quotas:
            if quota.parent and quota.parent not in self.quotas:
                self.quotas[quota.parent] = Quota(quota.parent)
        self.caps: dict[str, list[Cap]] = {}
        for cap in rules.caps:
            self.caps.setdefault(cap.tenant, []).append(cap)
        self._children: dict[str, list[Quota]] = {}
        for quota in self.quotas.values():
            if quota.parent:
                self._children.setdefault(quota.parent, []).append(quota)
        self._metered: dict[str, set[str]] = {}
        for quota in self.quotas.values():
            named = self._metered.setdefault(self.root(quota.name), set())
            named.update(quota.nominal, quota.borrow, quota.lend)
        self._by_tenant: dict[str, Amounts] = {}
        for (tenant, _, _), amounts in self.used.items():
            add(self._by_tenant.setdefault(tenant, {}), amounts)

    def charge(self, job: Submit, amounts: Mapping[str, int], sign: int = 1) -> None:
        add(self.used.setdefault((job.tenant, job.kind, job.user), {}), amounts, sign)
        add(self._by_tenant.setdefault(job.tenant, {}), amounts, sign)

    def of(self, tenant: str) -> Amounts:
        return self._by_tenant.get(tenant, {})

    def root(self, name: str) -> str:
        while self.quotas[name].parent:
            name = self.quotas[name].parent
        return name

    def same_cohort(self, one: str, other: str) -> bool:
        known = one in self.quotas and other in self.quotas
        return known and self.root(one) == self.root(other)

    def metered(self, tenant: str) -> set[str]:
        """The resources that are metered where this tenant is."""
        return self._metered[self.root(tenant)] if tenant in self.quotas else set()

    def over(self, tenant: str, resource: str, less: int = 0) -> int:
        """How much more than its nominal the tenant uses (negative: less)."""
        nominal = self.quotas[tenant].nominal.get(resource, 0)
        return self.of(tenant).get(resource, 0) - less - nominal

    def within_nominal(self, job: Submit, less: Mapping[str, int] | None = None) -> bool:
        """Whether with this job (not charged yet) its tenant still uses no more than it owns."""
        if job.tenant not in self.quotas:
            return False
        return all(
            self.over(job.tenant, name, (less or {}).get(name, 0)) + amount <= 0
            for name, amount in smallest(job).items()
            if name in self.metered(job.tenant)
        )

    def excess(self, roots: Iterable[str] | None = None) -> dict[tuple[str, str], int]:
        """Every (tenant or cohort, resource) that uses more than is lawful, and by how much."""
        found: dict[tuple[str, str], int] = {}
        for root in self._metered if roots is None else roots:
            for resource in self._metered.get(root, ()):
                self._walk(self.quotas[root], resource, found)
        return found

    def over_caps(self, tenants: Iterable[str] | None = None) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for tenant in self.caps if tenants is None else tenants:
            for cap in self.caps.get(tenant, ()):
                for resource, most in cap.limits.items():
                    beyond = self._capped(cap, resource) - most
                    if beyond > 0:
                        found[f"{tenant}/{cap.kind}/{cap.user}", resource] = beyond
        return found

    def passes(self, job: Submit, models: set[str], less: Mapping[str, int] | None = None) -> bool:
        """Whether quota and caps let the gang start at its smallest, on any of these GPU models
        (all of them in one); `less`: what its tenant would use less."""
        ways = [self._passes(job, model, less or {}) for model in sorted(models) or [""]]
        return any(ways)

    def surely_passes(self, job: Submit, models: set[str]) -> bool:
        """Whichever of these models it gets."""
        return all(self._passes(job, model, {}) for model in sorted(models) or [""])

    def never_passes(self, job: Submit, models: set[str]) -> bool:
        """Whether quota and caps forbid it even when nobody uses anything."""
        kept = self.used, self._by_tenant
        self.used, self._by_tenant = {}, {}
        try:
            return not self.passes(job, models)
        finally:
            self.used, self._by_tenant = kept

    def _passes(self, job: Submit, model: str, less: Mapping[str, int]) -> bool:
        amounts: Amounts = {}
        for need in job.needs:
            add(amounts, asked(need, admission(need), model))
        tree = [self.root(job.tenant)] if job.tenant in self.quotas else []
        self.charge(job, less, -1)
        before = {**self.excess(tree), **self.over_caps([job.tenant])}
        self.charge(job, amounts)
        after = {**self.excess(tree), **self.over_caps([job.tenant])}
        self.charge(job, amounts, -1)
        self.charge(job, less)
        return all(beyond <= before.get(where, 0) for where, beyond in after.items())

    def _walk(
        self, quota: Quota, resource: str, found: dict[tuple[str, str], int]
    ) -> tuple[int, int]:
        """(what it lends, what it draws) of the node; excess on the way is put into `found`."""
        total = quota.nominal.get(resource, 0)
        use = self.of(quota.name).get(resource, 0)
        for child in self._children.get(quota.name, ()):
            lent, drawn = self._walk(child, resource, found)
            total += lent
            use += drawn
        limit: int | None = None
        if not quota.parent:
            limit = total
        elif resource in quota.borrow:
            limit = total + quota.borrow[resource]
        if limit is not None and use > limit:
            found[quota.name, resource] = use - limit
        lent = min(total, quota.lend.get(resource, total))
        return lent, max(0, use - (total - lent))

    def _capped(self, cap: Cap, resource: str) -> int:
        return sum(
            amounts.get(resource, 0)
            for (tenant, kind, user), amounts in self.used.items()
            if tenant == cap.tenant and cap.kind in ("", kind) and cap.user in ("", user)
        )
