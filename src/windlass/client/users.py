"""Users from the user's side: people and service accounts of the whole server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.client.http import Http, path_of


@dataclass(frozen=True)
class User:
    """A user as the server showed it at one moment."""

    name: str
    kind: str = "person"
    role: str | None = None
    project: str | None = None
    disabled: bool = False
    projects: tuple[Mapping[str, str], ...] = ()
    keys: int = 0
    created: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> User:
        """From what the API answered; fields that are not known here stay in `data`."""
        return cls(
            name=str(answer["name"]),
            kind=str(answer.get("kind", "person")),
            role=answer.get("role"),
            project=answer.get("project"),
            disabled=bool(answer.get("disabled")),
            projects=tuple(answer.get("projects") or ()),
            keys=int(answer.get("keys", 0)),
            created=str(answer.get("created", "")),
            data=answer,
        )


class Users:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[User]:
        """All users: people and service accounts."""
        return [User.read(item) for item in self._http.get("/users")["items"]]

    def get(self, name: str) -> User:
        """A user by name. Raises NotFound."""
        return User.read(self._http.get(path_of("users", name)))

    def create(
        self,
        name: str,
        *,
        kind: str = "person",
        role: str | None = None,
        project: str | None = None,
        project_role: str = "member",
    ) -> User:
        """A user of the server; `role` in the organisation (owner, admin, auditor), `project` one
        to be in at once."""
        body: dict[str, Any] = {"name": name, "kind": kind, "role": role}
        if project is not None:
            body |= {"project": project, "project_role": project_role}
        return User.read(self._http.call("POST", "/users", body=body))

    def disable(self, name: str) -> User:
        """All its credentials are dead at once; its jobs go on."""
        return self._set_disabled(name, True)

    def delete(self, name: str, *, stop_jobs: bool = False) -> int:
        """Remove it for good: its credentials are dead at once, its jobs go on or are told to
        end. How many of them had not ended."""
        query = {"stop_jobs": "true"} if stop_jobs else None
        answer = self._http.call("DELETE", path_of("users", name), query=query)
        return int(answer["unfinished"])

    def enable(self, name: str) -> User:
        """Let a disabled user in again."""
        return self._set_disabled(name, False)

    def _set_disabled(self, name: str, disabled: bool) -> User:
        path = path_of("users", name, "disabled")
        return User.read(self._http.call("PUT", path, body={"disabled": disabled}))

    def set_role(self, name: str, role: str | None) -> User:
        """Its role in the organisation: owner, admin, auditor, or None."""
        path = path_of("users", name, "role")
        return User.read(self._http.call("PUT", path, body={"role": role}))
