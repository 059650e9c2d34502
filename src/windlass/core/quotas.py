"""Quotas: what a project owns, how cohorts lend and borrow, caps within a project.

One form for the file of `windlass quota apply`, for `windlass quota ls -o yaml` and for the
simulator, so that an operator can export, simulate, and apply:

    cohorts:
      research:
        tenants:
          vision: {nominal: {gpus: 8}, borrow: {gpus: 8}, lend: {gpus: 4}, weight: 2}
          speech: {nominal: {gpus: 8, memory: 256GiB}}

Outside, amounts are as people write them (`gpus: 0.5`, `cpus: 16`, `memory: 64GiB`); inside and
in the database they are integers: thousandths of GPUs and CPUs, bytes of memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from windlass.core.explain import found
from windlass.core.queues import MODEL, Revision, Work
from windlass.core.strict import MAX_BYTES, Name, Strict, parse_bytes

MAX_UNITS = 10_000_000
"""GPUs, or CPUs."""
MAX_ENTRIES = 20_000
MAX_DEPTH = 4
"""Cohorts above each other: more is a mistake, and each costs every decision."""
_MODEL = re.compile(MODEL)
KNOWN = "gpus, cpus, memory, gpus:MODEL"


def units(resource: str, value: Any) -> int:
    """An amount as people write it, as the integer that is stored. Raises PydanticCustomError."""
    _known(resource)
    if resource == "memory":
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _wrong(resource, "a size such as 64GiB, or whole bytes", value)
        size = parse_bytes(value)
        if not 0 <= size <= MAX_BYTES:
            raise _wrong(resource, "from 0 to 1 EiB", value)
        return int(size)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(resource, "a number such as 8 or 0.5", value)
    if not 0 <= value <= MAX_UNITS:  # NaN fails this too
        raise _wrong(resource, f"from 0 to {MAX_UNITS}", value)
    milli = round(value * 1000)
    if abs(value * 1000 - milli) > 1e-6:
        raise _wrong(resource, "at most three decimals", value)
    return milli


def human(resource: str, amount: int) -> int | float | str:
    """The stored integer as people write it; `units` reads it back as the same integer."""
    if resource == "memory":
        for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
        return amount
    return amount // 1000 if amount % 1000 == 0 else amount / 1000


def _known(resource: Any) -> None:
    if not isinstance(resource, str) or not (
        resource in ("gpus", "cpus", "memory")
        or (resource.startswith("gpus:") and _MODEL.fullmatch(resource[5:]))
    ):
        raise PydanticCustomError("resource", "no such resource; known: " + KNOWN)


def _wrong(resource: str, allowed: str, value: Any) -> PydanticCustomError:
    return PydanticCustomError(
        "amount", "{resource}: {allowed}, not {value}",
        {"resource": resource, "allowed": allowed, "value": found(value)},
    )  # fmt: skip


def _amounts(value: Any) -> Any:
    if not isinstance(value, dict):
        raise PydanticCustomError("amounts", "resources with amounts, such as {gpus: 8}")
    if len(value) > 64:
        raise PydanticCustomError("amounts", "at most 64 resources")
    return {resource: units(resource, amount) for resource, amount in value.items()}


def human_amounts(amounts: Mapping[str, int]) -> dict[str, int | float | str]:
    return {resource: human(resource, amount) for resource, amount in amounts.items()}


def _weight(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("weight", "a number such as 1 or 2.5")
    if not 0.001 <= value <= 1_000_000:
        raise PydanticCustomError("weight", "from 0.001 to 1000000")
    return round(value * 1000)


Amounts = Annotated[
    dict[str, int],
    BeforeValidator(_amounts),
    PlainSerializer(human_amounts),
    WithJsonSchema(
        {
            "type": "object",
            "description": f"amounts by resource ({KNOWN}): gpus and cpus as numbers, memory as "
            "a text such as 64GiB",
            "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "string"}]},
        }
    ),
]
WeightMilli = Annotated[
    int,
    BeforeValidator(_weight),
    PlainSerializer(lambda milli: human("gpus", milli)),
    WithJsonSchema({"type": "number", "description": "its weight beside others, 1 when absent"}),
]


class CapSpec(Strict):
    """At most this much for one kind of work, one user, or one user's work of one kind."""

    kind: Work | None = None
    user: Name | None = None
    limits: Amounts

    @model_validator(mode="after")
    def _of_whom(self) -> CapSpec:
        if self.kind is None and self.user is None:
            raise PydanticCustomError("cap", "a cap names a `kind` of work, a `user`, or both")
        if not self.limits:
            raise PydanticCustomError("cap", "a cap without `limits` caps nothing")
        return self


class QuotaSpec(Strict):
    """What a project, or a cohort by itself, owns. A resource that nobody in a cohort names is
    not metered there."""

    nominal: Amounts = {}
    borrow: Amounts = {}
    """At most so much over nominal; a resource left out: as much as others lend."""
    lend: Amounts = {}
    """At most so much of nominal to others; a resource left out: all that is idle."""
    weight: WeightMilli = 1000
    reclaim_any: bool = False
    """May take back what it lent from jobs of higher priority too."""


class TenantSpec(QuotaSpec):
    """A project's quota, as it stands in its cohort."""

    caps: Annotated[tuple[CapSpec, ...], Field(strict=False, max_length=1000)] = ()

    @model_validator(mode="after")
    def _makes_sense(self) -> TenantSpec:
        _no_twins(self.caps)
        if getattr(self, "cohort", False):
            return self  # it lends what its members own too
        for resource, amount in self.lend.items():
            if amount > self.nominal.get(resource, 0):
                raise PydanticCustomError(
                    "lend", "lends more {resource} than it owns: {lend} of {nominal}",
                    {
                        "resource": resource,
                        "lend": human(resource, amount),
                        "nominal": human(resource, self.nominal.get(resource, 0)),
                    },
                )  # fmt: skip
        return self


class CohortSpec(QuotaSpec):
    """Projects that lend to each other, with what the cohort owns beside them."""

    parent: Name | None = None
    """The cohort that this one belongs to."""
    tenants: dict[Name, TenantSpec] = {}


class QuotaFile(Strict):
    """All quotas at once: what it does not name does not exist."""

    cohorts: dict[Name, CohortSpec] = {}
    tenants: dict[Name, TenantSpec] = {}
    """Projects without a cohort: they neither lend nor borrow."""

    @model_validator(mode="after")
    def _is_a_tree(self) -> QuotaFile:
        check_tree(list(self.entries()))
        return self

    def entries(self) -> Iterator[Entry]:
        """Cohorts first, then projects."""
        for name, cohort in self.cohorts.items():
            yield Entry(
                name=name, cohort=True, parent=cohort.parent,
                **{field: getattr(cohort, field) for field in _OWN},
            )  # fmt: skip
        for parent, tenants in [
            *((name, cohort.tenants) for name, cohort in self.cohorts.items()),
            (None, self.tenants),
        ]:
            for name, tenant in tenants.items():
                yield Entry.model_construct(
                    name=name, cohort=False, parent=parent, caps=tenant.caps,
                    **{field: getattr(tenant, field) for field in _OWN},
                )  # fmt: skip


class QuotaBody(TenantSpec):
    """One quota as it is to be. What is left out gets its default."""

    cohort: bool = False
    """This is a cohort, not a project."""
    parent: Name | None = None
    """The cohort it belongs to; absent: none, it neither lends nor borrows."""
    revision: Revision | None = None
    """The revision of the quotas that was seen: refused as a conflict when any has changed
    since. Absent: the last writer wins."""


class QuotaFileBody(QuotaFile):
    revision: Revision | None = None


class Entry(Strict):
    """One quota, wherever it came from: amounts in stored units."""

    name: str
    cohort: bool
    parent: str | None
    nominal: dict[str, int]
    borrow: dict[str, int]
    lend: dict[str, int]
    weight: int
    reclaim_any: bool
    caps: tuple[CapSpec, ...] = ()


class QuotaView(TenantSpec):
    """A quota as the API shows it."""

    name: str
    cohort: bool
    parent: str | None
    used: Amounts = {}
    """What its jobs hold now; of a cohort: with all that belong to it."""
    exists: bool = True
    """Whether there is a project of this name yet."""
    revision: int
    changed: str


class QuotaPage(Strict):
    revision: int
    """Of all quotas together: it rises with every change of any."""
    items: tuple[QuotaView, ...]


_OWN = ("nominal", "borrow", "lend", "weight", "reclaim_any")


def check_tree(entries: list[Entry]) -> None:
    """Every name once, every parent a cohort that is there, no cycle. Raises
    PydanticCustomError."""
    if len(entries) > MAX_ENTRIES:
        raise PydanticCustomError("quotas", f"at most {MAX_ENTRIES} quotas")
    seen: dict[str, Entry] = {}
    for entry in entries:
        if entry.name in seen:
            both = "a cohort and a project" if seen[entry.name].cohort != entry.cohort else "two"
            raise PydanticCustomError(
                "twice", "{name} stands twice: {both} cannot have one name",
                {"name": entry.name, "both": both},
            )  # fmt: skip
        seen[entry.name] = entry
    for entry in entries:
        if entry.cohort and entry.caps:
            raise PydanticCustomError(
                "caps", "caps are of a project; {name} is a cohort", {"name": entry.name}
            )
        _check_parents(entry, seen)


def _check_parents(entry: Entry, seen: Mapping[str, Entry]) -> None:
    path = [entry.name]
    while seen[path[-1]].parent is not None:
        parent = seen[path[-1]].parent
        assert parent is not None
        if parent not in seen or not seen[parent].cohort:
            known = sorted(name for name, other in seen.items() if other.cohort)[:20]
            raise PydanticCustomError(
                "parent", "{name} belongs to {parent}, which is no cohort; known: {known}",
                {"name": path[-1], "parent": parent, "known": ", ".join(known) or "none"},
            )  # fmt: skip
        if parent in path:
            raise PydanticCustomError(
                "cycle", "these cohorts belong to each other in a circle: {path}",
                {"path": " → ".join([*path[path.index(parent):], parent])},
            )  # fmt: skip
        path.append(parent)
        if len(path) > MAX_DEPTH + 1:
            raise PydanticCustomError(
                "depth", "{name} is deeper than {most} cohorts",
                {"name": entry.name, "most": MAX_DEPTH},
            )  # fmt: skip


def _no_twins(caps: tuple[CapSpec, ...]) -> None:
    seen = set()
    for cap in caps:
        if (cap.kind, cap.user) in seen:
            raise PydanticCustomError(
                "caps", "two caps for the same: kind {kind}, user {user}",
                {"kind": cap.kind or "any", "user": cap.user or "any"},
            )  # fmt: skip
        seen.add((cap.kind, cap.user))
