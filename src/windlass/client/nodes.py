"""Nodes from the user's side: where gangs can run, and what is free there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.client.http import Http


@dataclass(frozen=True)
class Node:
    name: str
    engine: str = ""
    state: str = ""
    reason: str = ""
    """Why it takes no job, where it does not."""
    capacity: Mapping[str, Any] = field(default_factory=dict)
    free: Mapping[str, Any] = field(default_factory=dict)
    jobs: tuple[Any, ...] = ()
    isolation: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Node:
        """From what the API answered; fields that are not known here stay in `data`."""
        return cls(
            name=str(answer["name"]),
            engine=str(answer.get("engine", "")),
            state=str(answer.get("state", "")),
            reason=str(answer.get("reason", "")),
            capacity=answer.get("capacity") or {},
            free=answer.get("free") or {},
            jobs=tuple(answer.get("jobs") or ()),
            isolation=answer.get("isolation") or {},
            data=answer,
        )


class Nodes:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[Node]:
        """All nodes with what they have and what is free."""
        return [Node.read(item) for item in self._http.get("/nodes")["items"]]
