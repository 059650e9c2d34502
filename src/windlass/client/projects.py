"""Projects from the user's side: tenants, and who is what in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.client.http import Http, path_of
from windlass.client.users import User


@dataclass(frozen=True)
class Project:
    """A project as the server showed it at one moment; `people` only where one was asked for."""

    name: str
    role: str | None = None
    members: int = 0
    jobs: int = 0
    created: str = ""
    people: tuple[Mapping[str, Any], ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Project:
        """From what the API answered; fields that are not known here stay in `data`."""
        return cls(
            name=str(answer["name"]),
            role=answer.get("role"),
            members=int(answer.get("members", 0)),
            jobs=int(answer.get("jobs", 0)),
            created=str(answer.get("created", "")),
            people=tuple(answer.get("people") or ()),
            data=answer,
        )


class Projects:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[Project]:
        """Those one is in; every one, for who has a role in the organisation."""
        return [Project.read(item) for item in self._http.get("/projects")["items"]]

    def get(self, name: str) -> Project:
        """A project with its members. Raises NotFound."""
        return Project.read(self._http.get(path_of("projects", name)))

    def create(self, name: str) -> Project:
        """A new project, and its description."""
        return Project.read(self._http.call("POST", "/projects", body={"name": name}))

    def delete(self, name: str) -> None:
        """Its jobs are stopped; nobody sees it any more."""
        self._http.call("DELETE", path_of("projects", name))

    def add(self, name: str, user: str, role: str = "member") -> Project:
        """Let a user in, or give it another role: viewer, member, maintainer."""
        path = path_of("projects", name, "members", user)
        return Project.read(self._http.call("PUT", path, body={"role": role}))

    def remove(self, name: str, user: str) -> None:
        """Take a user out of a project."""
        self._http.call("DELETE", path_of("projects", name, "members", user))

    def create_service(self, name: str, service: str, role: str = "member") -> User:
        """A service account of the project: a program's user."""
        body = {"name": service, "role": role}
        return User.read(self._http.call("POST", path_of("projects", name, "services"), body=body))
