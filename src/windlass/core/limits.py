"""Limits: how many live jobs a project, a user or a kind of work may have.

A limit refuses at submit, with `limit-exceeded`; a quota (core/quotas.py) makes jobs wait. A job
is live from its submit to its end, also while it is held or queued.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from windlass.core.queues import Revision, Work
from windlass.core.strict import Name, Strict

EVERY = "*"
"""In place of a project: each that has no such limit of its own. Of a user: each, by itself."""

Jobs = Annotated[int, Field(ge=0, le=10_000_000)]


class LimitSpec(Strict):
    """At most so many live jobs: of the project, of one user in it, of each user, of one kind."""

    user: Name | Literal["*"] | None = None
    kind: Work | None = None
    jobs: Jobs
    """0: nobody may submit (any more)."""


class LimitsBody(Strict):
    """All limits of a project as they are to be. None: it has none."""

    limits: Annotated[tuple[LimitSpec, ...], Field(strict=False, max_length=1000)]
    revision: Revision | None = None
    """The revision that was seen: refused as a conflict when they have changed since. Absent:
    the last writer wins."""

    @model_validator(mode="after")
    def _no_twins(self) -> LimitsBody:
        seen = set()
        for limit in self.limits:
            key = (limit.user, limit.kind)
            if key in seen:
                raise PydanticCustomError(
                    "limits", "two limits for the same: user {user}, kind {kind}",
                    {"user": limit.user or "any", "kind": limit.kind or "any"},
                )  # fmt: skip
            seen.add(key)
        return self


class LimitView(LimitSpec):
    live: int | None
    """Live jobs that count against it now; None where it is counted for each by itself."""


class LimitsView(Strict):
    """The limits of one project, or those of each that has none of its own (`*`)."""

    project: str
    limits: tuple[LimitView, ...]
    revision: int
    changed: str | None


class LimitsPage(Strict):
    items: tuple[LimitsView, ...]


def whom(user: str | None, kind: str | None) -> str:
    """What a limit is of, in words: `jobs`, `notebook jobs of ann`, `train jobs of each user`."""
    words = f"{kind} jobs" if kind else "jobs"
    if user == EVERY:
        return f"{words} of each user"
    return f"{words} of {user}" if user else words
