"""The tree of tenants: what each owns, uses, lends and borrows. Integers only.

A node's *quota* is what it owns itself plus what its children put up for lending. Of that it keeps
`quota - lend` at home: use up to there concerns nobody else, and nobody else can have it, idle or
not. Use beyond is charged to the parent as well, and so on up to the root, whose quota is the end:

    available(root) = quota - usage
    available(node) = what is left at home + min(available(parent), quota + borrow - what is used)

So a cohort never uses more than its members own together, and who uses more than it owns does so
only with what others lend. Each step is a comparison of integers on the way up (depth 4 at most).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.scheduler.events import NEVER, Cap, Quota
from windlass.scheduler.planting import ALWAYS, Capped, Member, Planting, columns_of

Amounts = tuple[int, ...]
"""One integer for each of the tree's `columns`."""

WHOLE = 10**9
"""A share of one: all that there is to share, at weight 1."""


class Tree:
    """Who may use how much, and who uses it. Charge what starts, discharge what ends.

    A tenant that no quota names stands alone and is not metered; its use is counted all the same.
    """

    columns: tuple[str, ...]

    def __init__(self, quotas: Iterable[Quota] = (), caps: Iterable[Cap] = ()) -> None:
        """Raises ValueError, naming the field, for what makes no tree."""
        quotas, caps = tuple(quotas), tuple(caps)
        self.columns = columns_of(quotas, caps)
        self._width = len(self.columns)
        self._index = {name: column for column, name in enumerate(self.columns)}
        self._always = tuple(self._index[name] for name in ALWAYS)
        self._totals = [0] * self._width
        self.changes = 0
        """Charges and discharges so far. Who undoes all that it did may set it back."""
        planted = Planting(quotas, self.columns)
        self._nodes, self._inner, self._homely = planted.members, planted.inner, planted.homely
        for number, cap in enumerate(caps):
            where = self._node(cap.tenant).caps
            if (cap.kind, cap.user) in where:
                raise ValueError(
                    f"caps[{number}]: a second one for the same tenant, kind and user"
                )
            limits = tuple((self._index[name], most) for name, most in sorted(cap.limits.items()))
            where[cap.kind, cap.user] = Capped(limits, self._width)

    def _node(self, tenant: str) -> Member:
        node = self._nodes.get(tenant)
        if node is None:
            node = self._nodes[tenant] = Member(tenant, self._width)
        return node

    # Words in, words out

    def amounts(self, of: Mapping[str, int]) -> Amounts:
        """These resources as this tree counts them; what nobody meters is dropped."""
        return tuple([of.get(name, 0) for name in self.columns])

    def tenants(self) -> list[str]:
        """All that may hold something: those with a quota of their own, then those seen since."""
        return [name for name in self._nodes if name not in self._inner]

    def usage(self, tenant: str) -> dict[str, int]:
        return dict(zip(self.columns, self._node(tenant).usage, strict=True))

    def nominal(self, tenant: str) -> dict[str, int]:
        """What it owns of each resource that is metered for it."""
        node = self._node(tenant)
        return {self.columns[column]: node.quota[column] for column in node.metered}

    def available(self, tenant: str) -> dict[str, int]:
        """How much more it could be charged now of each resource metered for it; caps aside."""
        node = self._node(tenant)
        return {self.columns[column]: _available(node, column) for column in node.metered}

    def cohort(self, tenant: str) -> str:
        """The name of its root: whom its releases may help."""
        return self._node(tenant).root.name

    def capacity(self, totals: Mapping[str, int]) -> None:
        """What the cluster has in all: what those share in whose tree nothing is metered."""
        self._totals = [totals.get(name, 0) for name in self.columns]
        for node in self._nodes.values():
            node.share = -1

    # Charging

    def fits(self, tenant: str, kind: str, user: str, amounts: Amounts) -> bool:
        """May this be charged now, with what others lend, and under the caps?"""
        first = self._nodes.get(tenant)
        if first is None:
            return True
        for column in first.metered:
            amount = amounts[column]
            if amount:
                node: Member | None = first
                while node is not None:
                    after = node.usage[column] + amount
                    home = node.home[column]
                    if after <= home:
                        break
                    if after > node.ceiling[column]:
                        return False
                    if after - home < amount:
                        amount = after - home
                    node = node.parent
        if first.caps:
            for cap in _caps(first, kind, user):
                for column, most in cap.limits:
                    if amounts[column] and cap.usage[column] + amounts[column] > most:
                        return False
        return True

    def missing(self, tenant: str, kind: str, user: str, amounts: Amounts) -> dict[str, int]:
        """By how much each resource lacks now; empty exactly when it fits."""
        node = self._node(tenant)
        lacks: dict[int, int] = {}
        for column in node.metered:
            if amounts[column]:
                lacks[column] = _lack(node, column, amounts[column])
        for cap in _caps(node, kind, user):
            for column, most in cap.limits:
                if amounts[column]:
                    over = cap.usage[column] + amounts[column] - most
                    lacks[column] = max(lacks.get(column, 0), over)
        return self._named(lacks)

    def never(self, tenant: str, kind: str, user: str, amounts: Amounts) -> dict[str, int]:
        """By how much it exceeds the most it could ever be given: all lent, nobody else there."""
        node = self._node(tenant)
        lacks = {column: amounts[column] - node.most[column] for column in node.metered}
        for cap in _caps(node, kind, user):
            for column, most in cap.limits:
                lacks[column] = max(lacks.get(column, 0), amounts[column] - most)
        return self._named(lacks)

    def _named(self, lacks: Mapping[int, int]) -> dict[str, int]:
        return {
            self.columns[column]: lacks[column] for column in sorted(lacks) if lacks[column] > 0
        }

    def charge(self, tenant: str, kind: str, user: str, amounts: Amounts) -> None:
        """Count this as used. Never refuses: what runs already may exceed an edited quota."""
        first = self._node(tenant)
        first.share = -1
        self.changes += 1
        for column, amount in enumerate(amounts):
            node: Member | None = first
            while amount and node is not None:
                after = node.usage[column] + amount
                node.usage[column] = after
                over = after - node.home[column]
                if over <= 0:
                    break
                if over < amount:
                    amount = over
                node = node.parent
        if first.caps:
            for cap in _caps(first, kind, user):
                for column, amount in enumerate(amounts):
                    cap.usage[column] += amount

    def discharge(self, tenant: str, kind: str, user: str, amounts: Amounts) -> None:
        """The exact inverse of `charge`."""
        first = self._node(tenant)
        first.share = -1
        self.changes += 1
        for column, amount in enumerate(amounts):
            node: Member | None = first
            while amount and node is not None:
                before = node.usage[column]
                assert before >= amount, f"{node.name} gives back more than it was charged"
                node.usage[column] = before - amount
                over = before - node.home[column]
                if over <= 0:
                    break
                if over < amount:
                    amount = over
                node = node.parent
        if first.caps:
            for cap in _caps(first, kind, user):
                for column, amount in enumerate(amounts):
                    assert cap.usage[column] >= amount, f"{tenant} gives back more than charged"
                    cap.usage[column] -= amount

    # Judging

    def within_nominal(self, tenant: str, amounts: Amounts) -> bool:
        """With this it would still use no more than it owns, of all that is metered for it."""
        node = self._node(tenant)
        usage, quota = node.usage, node.quota
        for column in node.metered:
            if usage[column] + amounts[column] > quota[column]:
                return False
        return True

    def over_nominal(self, tenant: str) -> bool:
        """It borrows something."""
        node = self._node(tenant)
        for column in node.metered:
            if node.usage[column] > node.quota[column]:
                return True
        return False

    def owns(self, tenant: str, amounts: Amounts) -> bool:
        """With this it would still use no more than it owns, of all that this asks for."""
        node = self._node(tenant)
        usage, quota = node.usage, node.quota
        for column in node.metered:
            if amounts[column] and usage[column] + amounts[column] > quota[column]:
                return False
        return True

    def by_model(self, tenant: str) -> bool:
        """Whether its GPUs are metered or capped by model."""
        node = self._node(tenant)
        named = set(node.metered)
        for cap in node.caps.values():
            named.update(column for column, _ in cap.limits)
        return any(self.columns[column].startswith("gpus:") for column in named)

    def on_model(self, amounts: Amounts, model: str) -> Amounts:
        """The same, with its GPUs counted under this model too."""
        column = self._index.get(f"gpus:{model}")
        if column is None:
            return amounts
        gpus = amounts[self._index["gpus"]]
        return (*amounts[:column], gpus, *amounts[column + 1 :])

    def of_any_model(self, amounts: Amounts) -> Amounts:
        """The same, with its GPUs counted under every model."""
        gpus = amounts[self._index["gpus"]]
        return tuple(
            gpus if name.startswith("gpus:") else amount
            for name, amount in zip(self.columns, amounts, strict=True)
        )

    def borrows(self, tenant: str, wanted: Amounts, held: Amounts | None = None) -> bool:
        """It borrows something that is wanted (and that is among what is held)."""
        node = self._node(tenant)
        for column in node.metered:
            if wanted[column] and node.usage[column] > node.quota[column]:
                if held is None or held[column]:
                    return True
        return False

    def stays_at_nominal(self, tenant: str, amounts: Amounts, wanted: Amounts = ()) -> bool:
        """Taking this back takes only what is borrowed: of what is wanted, it uses no less than
        it owns afterwards."""
        node = self._node(tenant)
        for column in node.metered:
            if amounts[column] and (not wanted or wanted[column]):
                if node.usage[column] - node.quota[column] < amounts[column]:
                    return False
        return True

    def hopeless(self, tenant: str, amounts: Amounts) -> bool:
        """Surely nobody of this tenant's cohort could be charged this now: it is more than the
        cohort has left, and nobody keeps anything at home."""
        root = self._node(tenant).root
        if root.name not in self._inner or root.name in self._homely:
            return False
        for column in root.metered:
            # Who asks for nothing of it does not mind that more is used than there is.
            if amounts[column] and amounts[column] > root.ceiling[column] - root.usage[column]:
                return True
        return False

    def standing(self, tenant: str, amounts: Amounts) -> int:
        """Where this tenant's next job stands in a fair order: 0 if with it the tenant uses only
        its own; else by how much it has borrowed already. The job's own size does not count, so
        that a tenant's jobs keep their order among themselves."""
        node = self._nodes.get(tenant) or self._node(tenant)
        if not node.shares:
            return node.share if node.share >= 0 else self.share(tenant)
        return 0 if self.within_nominal(tenant, amounts) else self.share(tenant) + 1

    def floor(self, tenant: str) -> int:
        """The standing of the smallest job it might have."""
        node = self._node(tenant)
        if not node.shares:
            return node.share if node.share >= 0 else self.share(tenant)
        return self.share(tenant) + 1 if self.over_nominal(tenant) else 0

    def share(self, tenant: str, amounts: Amounts = ()) -> int:
        """The largest part it has borrowed, over resources, of all that its cohort could lend,
        by its weight, once this is charged too; in parts of `WHOLE`. 0: it uses only its own.

        Where nothing is metered all use counts, over what the cluster has: plain dominant share.
        """
        node = self._node(tenant)
        if amounts:
            return self._share(node, amounts)
        if node.share < 0:
            node.share = self._share(node, ())
        return node.share

    def _share(self, node: Member, amounts: Amounts) -> int:
        usage = node.usage
        best = 0
        if not node.shares:
            weight, totals = node.weight, self._totals
            for column in self._always:
                used = usage[column] + amounts[column] if amounts else usage[column]
                if used:
                    part = used * (WHOLE * 1000) // (totals[column] * weight or 1)
                    if part > best:
                        best = part
        else:
            for column, quota, whole in node.shares:
                over = usage[column] - quota
                if amounts:
                    over += amounts[column]
                if over > 0:
                    # Up, so that who borrows at all comes after who does not.
                    part = -(over * (-WHOLE * 1000) // whole)
                    if part > best:
                        best = part
        return best if best < NEVER else NEVER


def _caps(node: Member, kind: str, user: str) -> list[Capped]:
    """The caps that this kind of work of this user counts against."""
    caps = node.caps
    if not caps:
        return []
    keys = dict.fromkeys((("", ""), (kind, ""), ("", user), (kind, user)))
    return [caps[key] for key in keys if key in caps]


def _lack(node: Member, column: int, amount: int) -> int:
    """How much less would fit, or had to be given back first; 0 or less: it fits."""
    after = node.usage[column] + amount
    over = after - node.home[column]
    if over <= 0 or node.parent is None:
        return over
    return max(after - node.ceiling[column], _lack(node.parent, column, min(over, amount)))


def _available(node: Member, column: int) -> int:
    used = node.usage[column]
    left = max(0, node.home[column] - used)
    if node.parent is None:
        return left
    from_above = _available(node.parent, column)
    # What is left at home is its own even where those above are overdrawn by an edited quota.
    return left + max(0, min(from_above, node.ceiling[column] - used - left))
