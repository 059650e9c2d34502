"""Usage from the user's side: who used what, what it costs, prices and budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.client.http import Http, path_of


@dataclass(frozen=True)
class UsageLine:
    """One line of a report."""

    key: str
    line: str
    """charged, or grace, lost: those nobody is charged for."""
    cpu_seconds: float
    memory_byte_seconds: int
    gpu_seconds: float
    used_cpu_seconds: float
    used_memory_byte_seconds: int
    peak_memory_bytes: int
    cost: str
    cost_micro: int
    project: str | None = None
    user: str | None = None
    job: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> UsageLine:
        """From what the API answered; fields that are not known here stay in `data`."""
        known = {name: answer.get(name) for name in cls.__dataclass_fields__ if name != "data"}
        return cls(**known, data=answer)  # type: ignore[arg-type]  # as the server sends them


@dataclass(frozen=True)
class UsageReport:
    by: str
    since: str
    until: str
    currency: str
    lines: tuple[UsageLine, ...]
    total: UsageLine
    platform: UsageLine
    left_off: int = 0
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> UsageReport:
        """From what the API answered; fields that are not known here stay in `data`."""
        return cls(
            by=str(answer["by"]),
            since=str(answer["since"]),
            until=str(answer["until"]),
            currency=str(answer["currency"]),
            lines=tuple(UsageLine.read(row) for row in answer["rows"]),
            total=UsageLine.read(answer["total"]),
            platform=UsageLine.read(answer["platform"]),
            left_off=int(answer.get("left_off", 0)),
            data=answer,
        )


class Usage:
    def __init__(self, http: Http) -> None:
        self._http = http

    def report(
        self,
        by: str = "project",
        *,
        since: str | None = None,
        until: str | None = None,
        project: str | None = None,
        user: str | None = None,
        job: str | None = None,
        limit: int | None = None,
    ) -> UsageReport:
        """`by` project, user, job, gpu, pool or day; times in ISO-8601 with their zone; `job` by
        its id. What runs counts up to this moment."""
        query = {
            "by": by, "from": since, "to": until, "project": project, "user": user, "job": job,
            "limit": limit,
        }  # fmt: skip
        return UsageReport.read(self._http.get("/usage", query))

    def csv(self, by: str = "project", **given: Any) -> Iterator[str]:
        """The same as CSV, line by line; `by="entry"`: every entry of the ledger."""
        names = {"since": "from", "until": "to"}
        query = {names.get(name, name): value for name, value in given.items()}
        if by == "entry":
            return self._http.text("/usage/entries", {**query, "format": "csv"})
        return self._http.text("/usage", {"by": by, **query, "format": "csv"})

    def prices(self) -> Sequence[Mapping[str, Any]]:
        """What each resource costs, and since when."""
        items: list[Mapping[str, Any]] = self._http.get("/usage/prices")["items"]
        return items

    def set_price(
        self, resource: str, price: str | float | None, *, effective: str | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """For an hour of one `cpu`, GiB of `memory`, `gpu` or `gpu:MODEL`; None: none any more.
        Holds from now on, or from `effective`. Returns every price."""
        body = {"resource": resource, "price": price, "effective": effective}
        answer = self._http.call("POST", "/usage/prices", body=body)
        items: list[Mapping[str, Any]] = answer["items"]
        return items

    def budgets(self) -> Sequence[Mapping[str, Any]]:
        """What projects and users may spend, and have spent."""
        items: list[Mapping[str, Any]] = self._http.get("/usage/budgets")["items"]
        return items

    def currency(self) -> str:
        """What prices and costs are in."""
        return str(self._http.get("/usage/prices")["currency"])

    def set_budget(
        self,
        name: str,
        amount: str | float,
        *,
        kind: str = "project",
        period: str = "month",
        on_spent: str = "hold",
    ) -> Mapping[str, Any]:
        """Make or change a budget of a project, or of a user (`kind="user"`)."""
        body = {"amount": amount, "period": period, "on_spent": on_spent}
        answer = self._http.call("PUT", path_of("usage", "budgets", kind, name), body=body)
        return next(
            item for item in answer["items"] if (item["kind"], item["name"]) == (kind, name)
        )

    def delete_budget(self, name: str, *, kind: str = "project") -> None:
        """Let a budget bound nothing any more."""
        self._http.call("DELETE", path_of("usage", "budgets", kind, name), repeatable=False)
