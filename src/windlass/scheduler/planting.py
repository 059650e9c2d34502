"""How the tree of tenants grows from its quotas: who is above whom, and what each of them owns,
keeps at home, puts up for lending and may use at most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.scheduler.events import NEVER, Cap, Quota

DEEPEST = 4
ALWAYS = ("cpus", "gpus", "memory")
"""Use of these is counted for every tenant, metered or not: fair share needs it."""


class Member:
    """One tenant or cohort. Where its tree does not meter a column, home and ceiling are NEVER."""

    __slots__ = (
        "name", "parent", "root", "weight", "own", "usage", "quota", "home", "ceiling", "most",
        "metered", "shares", "caps", "share",
    )  # fmt: skip

    def __init__(self, name: str, width: int, weight: int = 1000) -> None:
        self.name = name
        self.parent: Member | None = None
        self.root = self
        self.weight = weight
        self.own = [0] * width
        """What it owns itself."""
        self.usage = [0] * width
        """What it uses: of a cohort, what its members use beyond what they keep at home."""
        self.quota = [0] * width
        """What it owns, and its children lend to it."""
        self.home = [NEVER] * width
        """Use up to here is not charged to the parent."""
        self.ceiling = [NEVER] * width
        """Use never passes this: quota and borrowing limit."""
        self.most = [NEVER] * width
        """What it could use if nobody else used anything."""
        self.metered: tuple[int, ...] = ()
        self.shares: tuple[tuple[int, int, int], ...] = ()
        """(column, quota, what a whole share is) of each metered column."""
        self.share = -1
        """Its share as it is now; -1: it has changed since it was last asked for."""
        self.caps: dict[tuple[str, str], Capped] = {}


class Capped:
    __slots__ = ("limits", "usage")

    def __init__(self, limits: tuple[tuple[int, int], ...], width: int) -> None:
        self.limits = limits
        self.usage = [0] * width


class Planting:
    """The members of a tree, planted from quotas. Raises ValueError, naming the field, for what
    makes no tree."""

    def __init__(self, quotas: tuple[Quota, ...], columns: tuple[str, ...]) -> None:
        self.members: dict[str, Member] = {}
        self.inner: set[str] = set()
        """Those that have members of their own: cohorts."""
        self.homely: set[str] = set()
        """Roots of trees in which somebody keeps something at home."""
        self._columns = columns
        self._index = {name: column for column, name in enumerate(columns)}
        self._plant(quotas)

    def _plant(self, quotas: tuple[Quota, ...]) -> None:
        for number, quota in enumerate(quotas):
            if quota.name in self.members:
                raise ValueError(f"quotas[{number}].name: {quota.name!r} is there already")
            if quota.weight_milli < 0:
                raise ValueError(
                    f"quotas[{number}].weight_milli: {quota.weight_milli} is negative"
                )
            node = self.members[quota.name] = Member(
                quota.name, len(self._columns), quota.weight_milli
            )
            for name, amount in quota.nominal.items():
                node.own[self._index[name]] = amount
        for number, quota in enumerate(quotas):
            if quota.parent:
                if quota.parent not in self.members:
                    raise ValueError(f"quotas[{number}].parent: there is no {quota.parent!r}")
                self.members[quota.name].parent = self.members[quota.parent]
                self.inner.add(quota.parent)
        depths = [self._depth(number, quota) for number, quota in enumerate(quotas)]
        named: dict[str, set[int]] = {}
        for quota in quotas:
            root = self.members[quota.name].root.name
            for field in (quota.nominal, quota.borrow, quota.lend):
                named.setdefault(root, set()).update(self._index[name] for name in field)
        # Children before parents: what they lend makes their parent's quota.
        order = sorted(range(len(quotas)), key=depths.__getitem__)
        for number in reversed(order):
            self._gather(
                quotas[number], tuple(sorted(named[self.members[quotas[number].name].root.name]))
            )
        for number in order:
            self._most(self.members[quotas[number].name])
        self.homely = {
            node.root.name
            for node in self.members.values()
            if node.parent is not None and any(node.home[column] for column in node.metered)
        }

    def _depth(self, number: int, quota: Quota) -> int:
        """How many are above it; finds its root on the way."""
        above, node = 0, self.members[quota.name]
        root = node
        while root.parent is not None:
            root, above = root.parent, above + 1
            if root is node:
                raise ValueError(f"quotas[{number}].parent: {quota.name!r} is its own ancestor")
            if above > len(self.members):
                raise ValueError(
                    f"quotas[{number}].parent: there is a circle above {quota.name!r}"
                )
        if above >= DEEPEST:
            raise ValueError(f"quotas[{number}].parent: deeper than {DEEPEST} levels")
        node.root = root
        return above

    def _gather(self, quota: Quota, metered: tuple[int, ...]) -> None:
        node = self.members[quota.name]
        node.metered = metered
        for column in metered:
            name = self._columns[column]
            whole = node.quota[column] = node.quota[column] + node.own[column]
            if node.parent is None:
                node.home[column] = node.ceiling[column] = whole
                continue
            lent = min(quota.lend.get(name, whole), whole)
            node.home[column] = whole - lent
            node.ceiling[column] = whole + quota.borrow[name] if name in quota.borrow else NEVER
            node.parent.quota[column] += lent

    def _most(self, node: Member) -> None:
        above = node.parent
        shares = []
        for column in node.metered:
            most = node.quota[column]
            if above is not None:
                most = min(node.home[column] + above.most[column], node.ceiling[column])
            node.most[column] = most
            lendable = most if above is None else above.most[column]
            shares.append((column, node.quota[column], max(1, lendable * node.weight)))
        node.shares = tuple(shares)


def columns_of(quotas: Iterable[Quota], caps: Iterable[Cap]) -> tuple[str, ...]:
    """All resources that somebody names, sorted, once every amount is found to be sound."""
    names = set(ALWAYS)
    fields: list[tuple[str, Mapping[str, int]]] = []
    for number, quota in enumerate(quotas):
        fields.append((f"quotas[{number}].nominal", quota.nominal))
        fields.append((f"quotas[{number}].borrow", quota.borrow))
        fields.append((f"quotas[{number}].lend", quota.lend))
    for number, cap in enumerate(caps):
        fields.append((f"caps[{number}].limits", cap.limits))
    for where, field in fields:
        for name, amount in field.items():
            if name not in ALWAYS and not (name.startswith("gpus:") and len(name) > 5):
                raise ValueError(
                    f"{where}[{name}]: no resource; one of {', '.join(ALWAYS)}, gpus:MODEL"
                )
            if amount < 0:
                raise ValueError(f"{where}[{name}]: {amount} is negative")
        names.update(field)
    return tuple(sorted(names))
