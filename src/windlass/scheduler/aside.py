"""Jobs that can never start on the nodes and quotas there are: in nobody's way, and looked at
again when the nodes or the rules are others."""

from __future__ import annotations

from windlass.scheduler.allowance import Allowance
from windlass.scheduler.books import Books
from windlass.scheduler.entries import Entry
from windlass.scheduler.nodes import Form

_FORMS_KNOWN = 4096


class Aside:
    def __init__(self, books: Books, allowance: Allowance) -> None:
        self._books = books
        self._allowance = allowance
        self._of: dict[Form, dict[str, Entry]] = {}
        self._placeless: dict[tuple[Form, str], bool] = {}
        """Whether a form has no place even on empty nodes; good until the nodes change."""
        self._nowhere: dict[Form, bool] = {}
        """The same for the nodes that are up."""

    def never(self, entry: Entry) -> bool:
        """It could not start even if nobody else were there."""
        told, form, books = entry.told, entry.form, self._books
        for models, amounts in self._allowance.ways(entry):
            if books.tree.never(told.tenant, told.kind, told.user, amounts):
                continue
            key = (form, models[0] if models else "")
            known = self._placeless.get(key)
            if known is None:
                if len(self._placeless) > _FORMS_KNOWN:
                    self._placeless.clear()
                known = books.nodes.place_when_empty(form, models=models) is None
                self._placeless[key] = known
            if not known:
                return False
        return True

    def nowhere(self, entry: Entry) -> bool:
        """It could not start if nobody else were there, on the nodes that are up."""
        if self.never(entry):
            return True
        known = self._nowhere.get(entry.form)
        if known is None:
            nodes = self._books.nodes
            known = self._nowhere[entry.form] = all(
                nodes.place(entry.form, columns=nodes.capacity, models=models) is None
                for models, _ in self._allowance.ways(entry)
            )
        return known

    def put(self, entry: Entry) -> bool:
        """Take it out of its lane if it can never start."""
        if not self.never(entry):
            return False
        self._books.pending.remove(entry)
        self._of.setdefault(entry.form, {})[entry.told.job_id] = entry
        return True

    def remove(self, entry: Entry) -> None:
        entries = self._of.get(entry.form)
        if entries is not None and entry.told.job_id in entries:
            del entries[entry.told.job_id]
            if not entries:
                del self._of[entry.form]

    def nodes_changed(self) -> None:
        """What was found of empty nodes may be wrong."""
        self._placeless.clear()
        self._nowhere.clear()

    def look_again(self) -> None:
        """Some may have a place now: they queue up."""
        for entries in list(self._of.values()):
            for entry in list(entries.values()):
                if not self.never(entry):
                    self.remove(entry)
                    self._books.queue_up(entry)

    def clear(self) -> None:
        """Nobody is aside; the caller lets them queue up."""
        self._of.clear()
