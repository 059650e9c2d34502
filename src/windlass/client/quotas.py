"""Quotas from the user's side: what projects own, lend and borrow.

Amounts are as people write them: `{"gpus": 8, "cpus": 0.5, "memory": "64GiB", "gpus:H200": 4}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.client.http import Http, path_of
from windlass.core.errors import Conflict

_AGAIN = 5
OWN = ("nominal", "borrow", "lend", "weight", "reclaim_any")
_DEFAULTS: dict[str, Any] = {
    "nominal": {}, "borrow": {}, "lend": {}, "weight": 1, "reclaim_any": False, "caps": [],
}  # fmt: skip


@dataclass(frozen=True)
class Quota:
    """A quota as the server showed it at one moment."""

    name: str
    cohort: bool = False
    parent: str | None = None
    nominal: Mapping[str, Any] = field(default_factory=dict)
    borrow: Mapping[str, Any] = field(default_factory=dict)
    lend: Mapping[str, Any] = field(default_factory=dict)
    used: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1
    reclaim_any: bool = False
    caps: tuple[Mapping[str, Any], ...] = ()
    exists: bool = True
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Quota:
        """From what the API answered; fields that are not known here stay in `data`."""
        return cls(
            name=str(answer["name"]),
            cohort=bool(answer.get("cohort")),
            parent=answer.get("parent"),
            nominal=answer.get("nominal") or {},
            borrow=answer.get("borrow") or {},
            lend=answer.get("lend") or {},
            used=answer.get("used") or {},
            weight=answer.get("weight", 1),
            reclaim_any=bool(answer.get("reclaim_any")),
            caps=tuple(answer.get("caps") or ()),
            exists=bool(answer.get("exists", True)),
            data=answer,
        )


class Quotas:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[Quota]:
        """Cohorts first, then projects, each by name."""
        return [*self._page()[1]]

    def get(self, name: str) -> Quota:
        """What a project owns, lends, borrows and uses."""
        return Quota.read(self._http.get(path_of("quotas", name)))

    def set(self, name: str, *, revision: int | None = None, **fields: Any) -> Quota:
        """Make a quota, or change the named fields of it: `nominal`, `borrow`, `lend`, `weight`,
        `reclaim_any`, `caps`, `parent`, `cohort`. A resource whose amount is None goes; others
        that are not named stay. Raises InvalidInput, Conflict."""
        for turn in range(_AGAIN):
            seen, known = self._page()
            old = next((quota for quota in known if quota.name == name), None)
            body = {**_DEFAULTS, "cohort": False, "parent": None}
            if old is not None:
                body |= {key: old.data[key] for key in body if key in old.data}
            for key, value in fields.items():
                if isinstance(value, Mapping) and isinstance(body.get(key), Mapping):
                    value = {k: v for k, v in {**body[key], **value}.items() if v is not None}
                body[key] = value
            body["revision"] = seen if revision is None else revision
            try:
                return Quota.read(self._http.call("PUT", path_of("quotas", name), body=body))
            except Conflict:
                if revision is not None or turn == _AGAIN - 1:
                    raise
        raise AssertionError("not reached")

    def delete(self, name: str) -> None:
        """Remove a project's quota, or a cohort without members. Raises Conflict, NotFound."""
        self._http.call("DELETE", path_of("quotas", name), repeatable=False)

    def export(self) -> dict[str, Any]:
        """All quotas in the form of the file: to keep, to simulate, to `apply`."""
        return file_of(self.list())

    def apply(self, file: Mapping[str, Any], *, revision: int | None = None) -> Sequence[Quota]:
        """Make all quotas as the file says, at once; what it does not name goes."""
        body = {**file, "revision": revision}
        answer = self._http.call("PUT", "/quotas", body=body)
        return [Quota.read(item) for item in answer["items"]]

    def revision(self) -> int:
        """Of all quotas together: rises with every change."""
        return self._page()[0]

    def _page(self) -> tuple[int, Sequence[Quota]]:
        answer = self._http.get("/quotas")
        return int(answer["revision"]), [Quota.read(item) for item in answer["items"]]


def file_of(quotas: Sequence[Quota]) -> dict[str, Any]:
    """The file's form: cohorts with their projects, then projects without one. What is as it
    would be anyway is left out."""
    cohorts: dict[str, Any] = {}
    alone: dict[str, Any] = {}
    for quota in quotas:
        if quota.cohort:
            cohorts[quota.name] = _entry(quota) | (
                {"parent": quota.parent} if quota.parent is not None else {}
            )
    for quota in quotas:
        if not quota.cohort:
            if quota.parent is None:
                alone[quota.name] = _entry(quota)
            else:
                cohorts[quota.parent].setdefault("tenants", {})[quota.name] = _entry(quota)
    found: dict[str, Any] = {"cohorts": cohorts}
    return {**found, "tenants": alone} if alone else found


def _entry(quota: Quota) -> dict[str, Any]:
    entry = {key: getattr(quota, key) for key in OWN if getattr(quota, key) != _DEFAULTS[key]}
    if quota.caps:
        entry["caps"] = [
            {key: value for key, value in cap.items() if value is not None} for cap in quota.caps
        ]
    return entry
