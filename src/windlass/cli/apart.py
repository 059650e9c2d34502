"""Tell whoever brings a second user to a server what becomes of everybody's jobs by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from windlass.cli.session import Session
from windlass.core.errors import WindlassError


@contextmanager
def told_when_shared(session: Session) -> Iterator[None]:
    """Around what makes a user: one sentence if that was the first beside the owner."""
    before = _isolation(session)
    yield
    if before is None or before.get("shared"):
        return
    after = _isolation(session)
    if after is not None and after.get("shared"):
        session.say(sentence(after))


def in_force(isolation: Mapping[str, Any]) -> tuple[str, str]:
    """(how far jobs of this server are kept apart now, what a job can read at that level)."""
    if isolation.get("level", 0) >= 1:
        return (
            "level 1: each job is a user of its own, apart from the others",
            "a job can read its own files, and what everybody here may read",
        )
    several = "several users, and " if isolation.get("shared") else ""
    return (
        f"level 0: {several}jobs of this server are not kept apart",
        "a job can read others' code and results, the server's data and keys",
    )


def sentence(isolation: Mapping[str, Any]) -> str:
    if isolation.get("level", 0) >= 1:
        return (
            "several users share this server now: from its next start on, each job runs as a "
            "user of its own, apart from others' (isolation level 1)"
        )
    if isolation.get("wish") == "0":
        return (
            "several users share this server now, and it does not keep their jobs apart "
            "(--isolation 0): a job of one can read the files of all"
        )
    return (
        "several users share this server now, and this machine cannot keep their jobs apart: a "
        "job of one can read the files of all. `windlass doctor` says what is missing"
    )


def _isolation(session: Session) -> Mapping[str, Any] | None:
    try:
        found = session.client.status().get("isolation")
    except WindlassError:  # who may not ask is told nothing, and makes its user all the same
        return None
    return found if isinstance(found, Mapping) else None
