"""The words of an importer: a foreign job goes in, our fields and a report come out.

Nothing is passed over in silence: every field that an importer does not ask for ends in the
report (`Fields.leave`), and one of the wrong kind is an error that names it.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from windlass.core.errors import InvalidInput


class Fate(StrEnum):
    """What became of a field."""

    MAPPED = "mapped"
    DROPPED = "dropped"
    BY_HAND = "by hand"


@dataclass(frozen=True)
class Note:
    """A line of the report: the foreign field, what stood there, what became of it and why."""

    fate: Fate
    field: str
    value: str
    what: str


@dataclass(frozen=True)
class Imported:
    """One job: `spec` is a `JobSpec` in its outer form; `kind` is what it was."""

    kind: str
    spec: dict[str, Any]
    notes: tuple[Note, ...] = ()
    comments: tuple[str, ...] = ()
    """Lines to write into the job file: what it would say if this release carried it out."""

    def having(self, fate: Fate) -> list[Note]:
        return [note for note in self.notes if note.fate is fate]


class Importer(Protocol):
    """One foreign format. Raises InvalidInput, and nothing else, for whatever it is given."""

    name: str

    def matches(self, document: Any) -> bool:
        """Whether a document (a mapping, or the text of a script) has this importer's shape."""

    def convert(self, document: Any) -> Imported: ...


@dataclass
class Report:
    """What is noted on the way."""

    notes: list[Note] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    def mapped(self, where: str, value: Any, into: str) -> None:
        self._add(Fate.MAPPED, where, value, into)

    def dropped(self, where: str, value: Any, why: str) -> None:
        self._add(Fate.DROPPED, where, value, why)

    def by_hand(self, where: str, value: Any, what: str) -> None:
        self._add(Fate.BY_HAND, where, value, what)

    def fill_in(self, where: str, value: Any, what: str) -> None:
        """What runs cannot be known: the command begins with FILL_IN, and the job is refused
        until somebody has written it."""
        self._add(Fate.BY_HAND, where, value, f"fill in `run`: {what}")

    def imported(self, kind: str, spec: dict[str, Any]) -> Imported:
        return Imported(
            kind, spec, tuple(dict.fromkeys(self.notes)), tuple(dict.fromkeys(self.comments))
        )

    def _add(self, fate: Fate, where: str, value: Any, what: str) -> None:
        self.notes.append(Note(fate, where, show(value), what))


NO_SUCH = "has no counterpart here"


class Fields:
    """A mapping of somebody else's file: hands out its fields by name, checked, and knows those
    nobody asked for. A null is as good as absent."""

    def __init__(self, value: Any, path: str, report: Report) -> None:
        if not isinstance(value, Mapping):
            raise wrong(path or "the document", value, "a mapping of fields")
        self.value: dict[str, Any] = {
            str(key): item for key, item in value.items() if item is not None
        }
        self.path = path
        self.report = report
        self._left = dict.fromkeys(self.value)

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def where(self, key: str) -> str:
        shown = key if key.isprintable() else repr(key)
        return f"{self.path}.{shown}" if self.path else shown

    def any(self, key: str) -> Any:
        self._left.pop(key, None)
        return self.value.get(key)

    def text(self, key: str) -> str | None:
        found = self.any(key)
        if found is not None and not isinstance(found, str):
            raise wrong(self.where(key), found, "text (put it in quotes)")
        return found

    def whole(self, key: str, minimum: int = 0, maximum: int = 2**53) -> int | None:
        found = self.any(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int):
            raise wrong(self.where(key), found, "a whole number")
        if not minimum <= found <= maximum:
            raise wrong(self.where(key), found, f"a number from {minimum} to {maximum}")
        return found

    def flag(self, key: str) -> bool:
        found = self.any(key)
        if found is not None and not isinstance(found, bool):
            raise wrong(self.where(key), found, "true or false")
        return bool(found)

    def fields(self, key: str) -> Fields:
        """The mapping under a key; an empty one when it is absent."""
        found = self.any(key)
        return Fields({} if found is None else found, self.where(key), self.report)

    def items(self, key: str) -> list[tuple[str, Any]]:
        """The items of a list, each with where it stands."""
        found = self.any(key)
        if found is None:
            return []
        if not isinstance(found, list):
            raise wrong(self.where(key), found, "a list")
        return [(f"{self.where(key)}[{at}]", item) for at, item in enumerate(found)]

    def texts(self, key: str) -> list[str]:
        for where, item in self.items(key):
            if not isinstance(item, str):
                raise wrong(where, item, "text (put it in quotes)")
        return list(self.any(key) or ())

    def drop(self, key: str, why: str) -> None:
        """Not carried over, and that is no loss."""
        if key in self.value:
            self.report.dropped(self.where(key), self.any(key), why)

    def hand(self, key: str, what: str) -> None:
        """Not carried over; somebody has to do something about it."""
        if key in self.value:
            self.report.by_hand(self.where(key), self.any(key), what)

    def ignore(self, *keys: str) -> None:
        """Says nothing about the job: not even worth a line of the report."""
        for key in keys:
            self.any(key)

    def leave(self, reasons: Mapping[str, str] | None = None) -> None:
        """Every field that nobody asked for goes into the report. Call it last."""
        for key in list(self._left):
            why = (reasons or {}).get(key)
            if why is None:
                self.hand(key, "not known to this importer: see whether the job needs it")
            else:
                self.drop(key, why)


def show(value: Any) -> str:
    """A value on one line and short, however deep it is."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    text = _SHORT.repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def wrong(where: str, found: Any, expected: str) -> InvalidInput:
    quoted = repr(found) if isinstance(found, str) and len(found) < 60 else show(found)
    return InvalidInput(f"{where}: {expected} was expected, found {quoted}")


def job_name(text: str | None, where: str, report: Report) -> str | None:
    """A name of ours, as near as can be to another system's."""
    if text is None:
        return None
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    if name and name == text:
        report.mapped(where, text, "name")
    elif name:
        report.mapped(where, text, f"name, as {name} (lower-case, digits and dashes, at most 40)")
    else:
        report.dropped(where, text, "no name of ours can be made of it; one is invented at submit")
    return name or None


def compact(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is empty."""
    return {key: value for key, value in values.items() if value not in (None, {}, [], "")}


_PLAIN = re.compile(r"[!-~]([ -~]{0,58}[!-~])?")
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist, _SHORT.maxstring = 3, 6, 6, 70
_SHORT.maxother = 60
