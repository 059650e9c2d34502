"""Callers of every kind on a `Platform`, for tests of who may what.

people = People(platform)
ann = people.user("ann", project="red", role="member")
ann.call("POST", "/jobs", {"spec": {"run": ["true"]}})
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from windlass.client import Client
from windlass.core.signing import sign
from windlass.testing.platform import Platform


@dataclass(frozen=True)
class Caller:
    """One identity with one credential: a key, a bearer token, or none at all."""

    platform: Platform
    name: str
    access_key: str = ""
    secret_key: str = ""
    token: str = ""
    project: str = ""
    """Said with every call; "": the credential's own."""

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        root: str = "/api/v1",
    ) -> httpx.Response:
        """One plain request below `root`, never repeated. A stream is left after its head."""
        content = data if data is not None else b"" if body is None else json.dumps(body).encode()
        address = self.platform.url + root + path
        whole = {"Host": f"127.0.0.1:{self.platform.port}", **(headers or {})}
        if content and data is None:
            whole.setdefault("Content-Type", "application/json")
        if self.project:
            whole.setdefault("X-Wl-Project", self.project)
        if self.token:
            whole["Authorization"] = f"Bearer {self.token}"
        elif self.access_key:
            whole |= sign(
                method, address, whole, content, self.access_key, self.secret_key,
                int(time.time() * 1000),
            )  # fmt: skip
        with (
            httpx.Client(trust_env=False, verify=False, timeout=seconds) as client,
            client.stream(method, address, content=content, headers=whole) as answer,
        ):
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                answer.read()
            return answer

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The JSON of an answer that must be good."""
        answer = self.call(method, path, body, **more)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def code(self, method: str, path: str, body: Any = None, **more: Any) -> int:
        return self.call(method, path, body, **more).status_code

    def inside(self, project: str) -> Caller:
        return replace(self, project=project)

    def client(self) -> Client:
        return Client(
            self.platform.url, access_key=self.access_key, secret_key=self.secret_key,
            project=self.project or None,
        )  # fmt: skip


class People:
    """Makes callers, with the first key's rights."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        first = platform.credentials()
        self.owner = Caller(platform, "owner", first["access_key"], first["secret_key"])
        self.anonymous = Caller(platform, "anonymous")

    def project(self, name: str) -> str:
        self.owner.ok("POST", "/projects", {"name": name})
        return name

    def user(
        self, name: str, *, project: str = "default", role: str = "", org_role: str | None = None
    ) -> Caller:
        """A person in a project (`role` "": not in it, but by its role in the organisation)."""
        body: dict[str, Any] = {"name": name, "role": org_role}
        if role:
            body |= {"project": project, "project_role": role}
        self.owner.ok("POST", "/users", body)
        return self.key(name, project)

    def service(self, name: str, project: str, role: str = "member") -> Caller:
        """A service account of a project."""
        self.owner.ok("POST", f"/projects/{project}/services", {"name": name, "role": role})
        return self.key(name, project)

    def key(self, name: str, project: str) -> Caller:
        """One more key of a user, at home in a project."""
        made = self.owner.inside(project).ok("POST", "/keys", {"user": name})
        return Caller(self.platform, name, made["access_key"], made["secret_key"])

    def token(self, of: Caller, *scopes: str, name: str = "token", expires: str = "1h") -> Caller:
        """A token that a caller makes for itself."""
        body = {"name": name, "scopes": list(scopes), "expires": expires}
        made = of.ok("POST", "/tokens", body)
        return Caller(self.platform, f"{of.name}'s token", token=made["token"])
