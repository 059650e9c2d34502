"""Limits from the user's side: how many live jobs projects and users may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.client.http import Http, path_of
from windlass.core.errors import Conflict

_AGAIN = 5


@dataclass(frozen=True)
class ProjectLimits:
    """The limits of a project as the server showed them at one moment; project `*`: of each
    that has none of its own."""

    project: str
    limits: tuple[Mapping[str, Any], ...] = ()
    """`{"user": …, "kind": …, "jobs": 10, "live": 3}`"""
    revision: int = 0
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> ProjectLimits:
        """From what the API answered; fields that are not known here stay in `data`."""
        return cls(
            project=str(answer["project"]),
            limits=tuple(answer.get("limits") or ()),
            revision=int(answer["revision"]),
            data=answer,
        )


class Limits:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[ProjectLimits]:
        return [ProjectLimits.read(item) for item in self._http.get("/limits")["items"]]

    def get(self, project: str) -> ProjectLimits:
        """Empty when it has none."""
        found = [limits for limits in self.list() if limits.project == project]
        return found[0] if found else ProjectLimits(project)

    def set(
        self, project: str, jobs: int | None, *, user: str | None = None, kind: str | None = None
    ) -> ProjectLimits:
        """At most `jobs` live jobs (None: no such limit) of the project, of one user in it, of
        each user (`*`), of one kind of work. Others of its limits stay. Raises Conflict."""
        for turn in range(_AGAIN):
            known = self.get(project)
            kept = [
                {key: limit.get(key) for key in ("user", "kind", "jobs")}
                for limit in known.limits
                if (limit.get("user"), limit.get("kind")) != (user, kind)
            ]
            if jobs is not None:
                kept.append({"user": user, "kind": kind, "jobs": jobs})
            try:
                return self.replace(project, kept, revision=known.revision)
            except Conflict:
                if turn == _AGAIN - 1:
                    raise
        raise AssertionError("not reached")

    def replace(
        self, project: str, limits: Sequence[Mapping[str, Any]], *, revision: int | None = None
    ) -> ProjectLimits:
        """Make all limits of a project so."""
        body = {"limits": list(limits), "revision": revision}
        answer = self._http.call("PUT", path_of("limits", project), body=body)
        found = [ProjectLimits.read(item) for item in answer["items"]]
        return next(limits for limits in found if limits.project == project)

    def delete(self, project: str) -> None:
        """Raises NotFound."""
        self._http.call("DELETE", path_of("limits", project), repeatable=False)
