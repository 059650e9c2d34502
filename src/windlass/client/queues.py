"""Queues from the user's side: where jobs wait, and the line as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.client.http import Http, path_of
from windlass.core.errors import Conflict, NotFound

_AGAIN = 5
"""So often is a change tried again that met another's."""


@dataclass(frozen=True)
class Queue:
    """A queue as the server showed it at one moment."""

    name: str
    policy: str = "backfill"
    paused: bool = False
    description: str = ""
    waiting: int = 0
    running: int = 0
    revision: int = 0
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Queue:
        """From what the API answered; fields that are not known here stay in `data`."""
        return cls(
            name=str(answer["name"]),
            policy=str(answer.get("policy", "")),
            paused=bool(answer.get("paused")),
            description=str(answer.get("description", "")),
            waiting=int(answer.get("waiting", 0)),
            running=int(answer.get("running", 0)),
            revision=int(answer.get("revision", 0)),
            data=answer,
        )


class Queues:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[Queue]:
        """All queues, with how many jobs wait and run in each."""
        return [Queue.read(item) for item in self._http.get("/queues")["items"]]

    def get(self, name: str) -> Queue:
        """One queue by its name. Raises NotFound."""
        return Queue.read(self._http.get(path_of("queues", name)))

    def line(self, name: str = "default", *, limit: int = 100) -> dict[str, Any]:
        """`waiting` in the order in which the scheduler looks at it (each with `reason`,
        `sentence`, `expected_start`), `running`, `supply`, and the `queue` itself."""
        answer: dict[str, Any] = self._http.get(path_of("queues", name, "jobs"), {"limit": limit})
        return answer

    def set(
        self,
        name: str,
        *,
        policy: str | None = None,
        paused: bool | None = None,
        description: str | None = None,
        revision: int | None = None,
    ) -> Queue:
        """Make a queue, or change what is named of it. With `revision` only when it is still as
        it was seen; raises Conflict otherwise."""
        given = {"policy": policy, "paused": paused, "description": description}
        given = {key: value for key, value in given.items() if value is not None}
        for turn in range(_AGAIN):
            try:
                known = self.get(name)
                base = {
                    "policy": known.policy, "paused": known.paused,
                    "description": known.description, "revision": known.revision,
                }  # fmt: skip
            except NotFound:
                base = {"revision": 0}
            body = {**base, **given}
            if revision is not None:
                body["revision"] = revision
            try:
                return Queue.read(self._http.call("PUT", path_of("queues", name), body=body))
            except Conflict:
                if revision is not None or turn == _AGAIN - 1:
                    raise
        raise AssertionError("not reached")

    def pause(self, name: str) -> Queue:
        """Nothing more of it starts; what runs goes on."""
        self.get(name)  # pausing makes none
        return self.set(name, paused=True)

    def resume(self, name: str) -> Queue:
        """Let the jobs of a paused queue start again."""
        self.get(name)
        return self.set(name, paused=False)

    def delete(self, name: str) -> None:
        """Remove a queue that has no unfinished job. Raises Conflict, NotFound."""
        self._http.call("DELETE", path_of("queues", name), repeatable=False)
