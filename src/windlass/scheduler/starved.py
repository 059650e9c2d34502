"""Who leaves things alone for one of its own tenant that waited for too long."""

from __future__ import annotations

from windlass.scheduler.allowance import Allowance
from windlass.scheduler.aside import Aside
from windlass.scheduler.books import Books
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import NEVER


class Starved:
    def __init__(self, books: Books, allowance: Allowance, aside: Aside) -> None:
        self._books = books
        self._allowance = allowance
        self._aside = aside

    def before(self, entry: Entry) -> Entry | None:
        """Nobody uses quota that one of its own tenant before it, which waited for too long,
        waits for: that one, if there is any. And nobody without an end uses anything that it
        asks for."""
        books, tenant = self._books, entry.told.tenant
        endless = entry.told.expected_ms is None
        for rank, other in books.starved.get(tenant, ()):
            if rank >= entry.rank:
                break
            if self._aside.nowhere(other):
                continue
            if endless and _asks_for_the_same(other, entry):
                return other
            if not self._allowance.has_quota(other):
                if self._allowance.lacks_the_same(other, entry):
                    return other
        return self.kept_before(entry)

    def kept_before(self, entry: Entry) -> Entry | None:
        """One that has something kept for it of which nobody knows when it will be ready: what
        has no end would be in its way wherever it ends up."""
        if entry.told.expected_ms is not None:
            return None
        for kept in self._books.reservations.all.values():
            other = kept.entry
            if kept.start_ms >= NEVER and other.told.tenant == entry.told.tenant:
                if other.rank < entry.rank and _asks_for_the_same(other, entry):
                    return other
        return None


def _asks_for_the_same(one: Entry, other: Entry) -> bool:
    return any(a and b for a, b in zip(one.amounts, other.amounts, strict=True))
