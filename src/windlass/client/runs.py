"""Runs from the user's side: what many jobs were given and what they told, as one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.client.http import Http


@dataclass(frozen=True)
class Run:
    """A run as the server showed it at one moment. A job's run has the job's own id."""

    id: str
    name: str
    user: str
    status: str
    """MLflow's word: RUNNING, FINISHED, FAILED, KILLED."""
    params: Mapping[str, Mapping[str, str]]
    """By key: `value`, and the `source` where it was picked up."""
    metrics: Mapping[str, Mapping[str, Any]]
    """By key: `last`, `step`, `min`, `min_step`, `max`, `max_step`, `count`, `source`."""
    started: str | None = None
    ended: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Run:
        """From what the API answered; fields that are not known here stay in `data`."""
        names = ("id", "name", "user", "status", "params", "metrics", "started", "ended")
        return cls(**{name: answer[name] for name in names}, data=answer)


@dataclass(frozen=True)
class RunPage:
    items: list[Run]
    total: int
    """How many there are in all."""
    next: int | None
    """Where the next page begins."""
    more_columns: int
    """How many columns were left out, where none were named."""


class Runs:
    def __init__(self, http: Http) -> None:
        self._http = http

    def page(
        self,
        *,
        filter: str = "",
        sort: str = "",
        columns: Sequence[str] = (),
        ids: Sequence[str] = (),
        offset: int = 0,
        limit: int = 50,
    ) -> RunPage:
        """Runs of the project, newest first: `filter="metrics.loss < 0.3 and params.lr = 0.1"`,
        `sort="-max.acc"`, `columns=["params.lr", "metrics.loss"]` (`["*"]`: all)."""
        query = {
            "filter": filter or None, "sort": sort or None, "columns": ",".join(columns) or None,
            "id": ",".join(ids) or None, "offset": offset or None, "limit": limit,
        }  # fmt: skip
        answer = self._http.get("/runs", query)
        found = [Run.read(item) for item in answer["items"]]
        return RunPage(found, answer["total"], answer["next"], answer["more_columns"])

    def all(
        self, *, filter: str = "", sort: str = "", columns: Sequence[str] = (), page: int = 200
    ) -> Iterator[Run]:
        """Every run that the filter lets through, however many pages that takes."""
        offset: int | None = 0
        while offset is not None:
            found = self.page(filter=filter, sort=sort, columns=columns, offset=offset, limit=page)
            yield from found.items
            offset = found.next

    def of(self, ids: Sequence[str]) -> dict[str, Run]:
        """These runs, by id, with all their parameters and metrics. One that has told nothing yet
        is not there."""
        found: dict[str, Run] = {}
        for start in range(0, len(ids), 100):
            part = self.page(ids=ids[start : start + 100], columns=["*"], limit=100)
            found |= {run.id: run for run in part.items}
        return found
