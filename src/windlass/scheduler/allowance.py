"""May a job be charged what it asks for? And whose quota would be taken back for it?

What is charged for a promise is not lost until the promise falls due: those that end before it
may use it, and those that stay within what their tenant owns. So several answers are found by
taking such charges off, asking, and putting them on again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from windlass.scheduler.books import Books
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import NEVER
from windlass.scheduler.quota import Amounts, Tree
from windlass.scheduler.reserve import Reservation

Models = list[str] | None
"""The GPU models to start on; None: any."""
Way = tuple[Models, Amounts]
"""The models, and what is charged then."""


class Allowance:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._borrowing: dict[tuple[str, tuple[bool, ...]], tuple[Tree, int, list[str]]] = {}

    def ways(self, entry: Entry) -> list[Way]:
        """How it may be started: where its quota is kept by GPU model, on one model or another;
        with what is charged then."""
        books = self._books
        if not books.models_metered or not entry.form.gpu_milli:
            return [(None, entry.amounts)]
        if not books.tree.by_model(entry.told.tenant):
            return [(None, entry.amounts)]
        models = list(books.nodes.models)
        for need in entry.told.needs:
            if need.gpu_models and (need.gpus or need.gpu_milli):
                models = [model for model in models if model in need.gpu_models]
        ways: list[Way] = [([m], books.tree.on_model(entry.amounts, m)) for m in models]
        return ways or [(None, entry.amounts)]

    def has_quota(self, entry: Entry) -> bool:
        """May it be charged now, in one way or another?"""
        return any(self.may_charge(entry, amounts) for _, amounts in self.ways(entry))

    def may_charge(self, entry: Entry, amounts: Amounts, start_ms: int | None = None) -> bool:
        """May it be charged this now (or, for a start then, kept from now on)? What is charged
        for jobs that only wait for their promise may be used by those that end before, and, if it
        is borrowed, by those that stay within what their tenant owns."""
        books, told, tree = self._books, entry.told, self._books.tree
        if tree.fits(told.tenant, told.kind, told.user, amounts):
            return True
        if not books.reservations.all:
            return False
        end_ms = entry.end_if_started(books.now_ms if start_ms is None else start_ms)
        own = tree.owns(told.tenant, amounts)
        passed = []
        for kept in books.reservations.all.values():
            other = kept.entry
            if other is entry or kept.claim and kept.start_ms < NEVER:
                continue
            binds = kept.start_ms >= NEVER or kept.binds(end_ms)
            if binds and not (own and self._lends_to(told.tenant, other.told.tenant, amounts)):
                continue
            if tree.cohort(other.told.tenant) == tree.cohort(told.tenant):
                passed.append(other)
        if not passed:
            return False
        with self.without(passed):
            return tree.fits(told.tenant, told.kind, told.user, amounts)

    def _lends_to(self, tenant: str, other: str, amounts: Amounts) -> bool:
        """The other uses more than it owns, with what it was promised."""
        return other != tenant and self._books.tree.borrows(other, amounts)

    def fits(self, entry: Entry) -> bool:
        """May it be charged now, as it was planned if it has seats kept for it?"""
        told, books = entry.told, self._books
        kept = books.reservations.all.get(told.job_id)
        ways = [entry.charged] if kept and kept.seats else [way[1] for way in self.ways(entry)]
        return any(books.tree.fits(told.tenant, told.kind, told.user, way) for way in ways)

    def missing(self, entry: Entry) -> dict[str, int]:
        """What of its quota is lacking for it now."""
        told, tree = entry.told, self._books.tree
        kept = told.job_id in self._books.reservations.all
        with self.without([entry] if kept else []):
            lacks = [
                tree.missing(told.tenant, told.kind, told.user, amounts)
                for _, amounts in self.ways(entry)
            ]
        return min(lacks, key=lambda lack: sum(lack.values()))

    def lacks_the_same(self, entry: Entry, other: Entry) -> bool:
        """Whether the other would use something that this one lacks."""
        kinds = {name.partition(":")[0] for name in self.missing(entry)}
        columns = self._books.tree.columns
        return any(
            amount and name in kinds for name, amount in zip(columns, other.amounts, strict=True)
        )

    def models_for(self, entry: Entry, own: Reservation | None) -> list[Models]:
        """The ways for which it has quota; where others were told to end for it, the one that was
        planned."""
        ways = self.ways(entry)
        if own is not None and own.claim and own.start_ms < NEVER:
            return [models for models, amounts in ways if amounts == entry.charged] or [None]
        with self.without([] if own is None else [entry]):
            return [models for models, amounts in ways if self.may_charge(entry, amounts)]

    def models_but_for_promises(self, entry: Entry) -> list[Models]:
        """The ways for which it would have quota if nothing were kept for those that wait."""
        with self.without(
            [
                kept.entry
                for kept in self._books.reservations.all.values()
                if not (kept.claim and kept.start_ms < NEVER)
            ]
        ):
            return self._lawful(entry, self.ways(entry))

    def promised(self, kept: Reservation, after: Sequence[Reservation]) -> list[Models]:
        """On which GPU models may what it was promised be charged? (None: any; empty: not at
        all.) What is charged for those behind it does not count against it, nor for those whose
        time comes after its end; nor, where its tenant owns what it wants, what is kept for
        borrowers. For whose sake others were told to end has had their quota since."""
        entry = kept.entry
        ways = self.ways(entry)
        if kept.seats:
            planned = [way for way in ways if way[1] == entry.charged] or [(None, entry.charged)]
            if kept.claim and kept.start_ms < NEVER:
                return [models for models, _ in planned]
            ways = planned + [way for way in ways if way not in planned]
        lawful = self._lawful(entry, ways)
        if len(lawful) == len(ways):  # all the more without what is charged for it
            return lawful
        with self.without([entry]):
            lawful = self._lawful(entry, ways)
            if lawful:
                return lawful
            with self.without(self._passable(kept, after)):
                lawful = self._lawful(entry, ways)
                if lawful:
                    return lawful
                with self.without(self._not_in_its_way(kept, after)):
                    return self._lawful(entry, ways)

    def _passable(self, mine: Reservation, after: Sequence[Reservation]) -> list[Entry]:
        """Those that come after it, or after its end. Who borrows does not pass those who own
        what they were promised, whenever that was."""
        books, tree, entry = self._books, self._books.tree, mine.entry
        cohort = tree.cohort(entry.told.tenant)
        end_ms = entry.end_if_started(books.now_ms)
        wanted = self.wanted(entry)
        if not self.owned_ways(entry):
            tenant = entry.told.tenant
            after = [
                kept
                for kept in after
                if kept.entry.told.tenant == tenant or tree.borrows(kept.entry.told.tenant, wanted)
            ]
        return [
            kept.entry
            for kept in books.reservations.all.values()
            if kept is not mine
            and not (kept.claim and kept.start_ms < NEVER)
            and tree.cohort(kept.entry.told.tenant) == cohort
            and (kept in after or end_ms <= kept.start_ms < NEVER)
        ]

    def _not_in_its_way(self, mine: Reservation, after: Sequence[Reservation]) -> list[Entry]:
        """The others, if they borrow what its tenant owns."""
        passable = self._passable(mine, after)
        borrowed = self.borrowed_promises(mine.entry)
        return [e for e in borrowed if e is not mine.entry and e not in passable]

    def _lawful(self, entry: Entry, ways: Sequence[Way]) -> list[Models]:
        told, fits = entry.told, self._books.tree.fits
        return [m for m, amounts in ways if fits(told.tenant, told.kind, told.user, amounts)]

    @contextmanager
    def without(self, entries: Sequence[Entry]) -> Iterator[None]:
        """As if these, that wait with something kept for them, were not charged."""
        tree = self._books.tree
        before = tree.changes
        for entry in entries:
            self._books.discharge(entry, entry.charged, quiet=True)
        between = tree.changes
        yield
        for entry in entries:
            self._books.charge(entry, entry.charged)
        if tree.changes - between == len(entries):
            tree.changes = before  # nothing else was charged in between

    # From whom it may be taken

    def takes_back(self, entry: Entry) -> bool:
        """Whether there are tenants it may take from, now or with what is kept for it."""
        kept = entry.told.job_id in self._books.reservations.all
        with self.without([entry] if kept else []):
            return bool(self.borrowers(entry))

    def borrowers(self, entry: Entry) -> list[str]:
        """Tenants of its cohort that use more than they own, if it may take from them."""
        tree, tenant = self._books.tree, entry.told.tenant
        others = self._books.members.get(tree.cohort(tenant), ())
        if len(others) < 2 or not self.owned_ways(entry):
            return []
        return [
            name for name in self._over(tree.cohort(tenant), self.wanted(entry)) if name != tenant
        ]

    def _over(self, cohort: str, wanted: Amounts) -> list[str]:
        """Tenants of the cohort that borrow something of what is wanted, who borrowed most first;
        kept until something is charged or discharged."""
        tree = self._books.tree
        key = (cohort, tuple(map(bool, wanted)))
        known = self._borrowing.get(key)
        if known is None or known[0] is not tree or known[1] != tree.changes:
            over = [name for name in self._books.members[cohort] if tree.borrows(name, wanted)]
            over.sort(key=lambda name: (-tree.share(name), name))
            known = self._borrowing[key] = (tree, tree.changes, over)
        return known[2]

    def borrowed_promises(self, entry: Entry) -> list[Entry]:
        """Waiting jobs whose promise is on borrowed quota: not in the way of who owns it."""
        tree, told = self._books.tree, entry.told
        if not self.owned_ways(entry):
            return []
        wanted = self.wanted(entry)
        return [
            kept.entry
            for kept in self._books.reservations.all.values()
            if kept.entry.told.tenant != told.tenant
            and not (kept.claim and kept.start_ms < NEVER)
            and tree.cohort(kept.entry.told.tenant) == tree.cohort(told.tenant)
            and tree.borrows(kept.entry.told.tenant, wanted)
        ]

    def owned_ways(self, entry: Entry) -> list[Way]:
        """The ways in which it stays within what its tenant owns, by GPU model too: who would
        borrow a model itself takes it from no other borrower, or they would take turns."""
        tree, tenant = self._books.tree, entry.told.tenant
        return [way for way in self.ways(entry) if tree.owns(tenant, way[1])]

    def wanted(self, entry: Entry) -> Amounts:
        """What it asks for, in all the ways that its tenant owns (or, if none, in any)."""
        books = self._books
        if not books.models_metered:
            return entry.amounts
        ways = [amounts for _, amounts in self.owned_ways(entry)]
        return (
            tuple(map(max, *ways, entry.amounts))
            if ways
            else books.tree.of_any_model(entry.amounts)
        )
