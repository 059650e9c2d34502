"""What really happened, written down by the world itself, never by the code under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Interval:
    """From the start of a worker's ranks to the end of the last of them."""

    job_id: str
    attempt: int
    node: str
    gpu_ids: tuple[str, ...]
    began: float
    ended: float | None = None
    exits: tuple[int, ...] = ()
    """What its ranks ended with by themselves."""


@dataclass(frozen=True)
class Accepted:
    """A report that the server took, and how things stood in the same transaction."""

    kind: str
    job_id: str
    attempt: int
    fence: int | None
    attempt_state: str | None
    at: float


@dataclass
class Evidence:
    intervals: list[Interval] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    submits: list[tuple[str, str]] = field(default_factory=list)
    """(key, job id) of each answer that a user got."""
    keys: set[str] = field(default_factory=set)
    """Every key that was ever sent."""
    removed: set[str] = field(default_factory=set)
    """Jobs that a user removed, and was told so."""
    followed: list[tuple[int, str | None, int]] = field(default_factory=list)
    """(position, job id, seq) as the follower got them."""
    problems: list[str] = field(default_factory=list)
    """Violations seen while it ran, with their label."""
    history: list[tuple[float, str, str]] = field(default_factory=list)
    at: Any = None
    """The loop's time, as a function."""

    def note(self, who: str, what: str) -> None:
        self.history.append((self.at(), who, what))

    def story(self, last: int = 200) -> str:
        lines = self.history[max(0, len(self.history) - last) :]
        return "\n".join(f"{at:10.3f}  {who:<14} {what}" for at, who, what in lines)
