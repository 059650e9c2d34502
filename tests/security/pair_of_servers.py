"""Two servers on one database, and people whom both know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from windlass.testing.browser import Browser
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform
from windlass.testing.postgres import PostgresServer

LIMIT_SECONDS = 5.0
"""What was taken away on one is gone on the other within this."""
SLACK_SECONDS = 55.0
"""For a machine that does other things too."""
FIRST, SECOND = "correct horse battery", "another stable word"


class Pair:
    def __init__(self, here: Platform, there: Platform) -> None:
        self.here, self.there = here, there
        self.people = People(here)
        self.people.project("red")
        self.count = 0

    def ann(self, role: str = "member", org_role: str | None = None) -> Caller:
        """Somebody new, with a key."""
        self.count += 1
        name = f"ann-{self.count}"
        if org_role:
            return self.people.user(name, project="red", org_role=org_role)
        return self.people.user(name, project="red", role=role)

    def person(self, role: str | None = None) -> str:
        """Somebody new, with the password FIRST."""
        self.count += 1
        name = f"ann-{self.count}"
        body = {"name": name, "role": role, "project": "default", "project_role": "member"}
        made = self.here.call("POST", "/users", body)
        assert made.status_code == 201, made.text
        self.new_password(name, FIRST)
        return name

    def new_password(self, name: str, password: str) -> None:
        """By the link that an administrator makes."""
        link = self.here.call("POST", f"/users/{name}/password-link", {}).json()["url"]
        with Browser(self.here.url) as browser:
            body = {"link": link.partition("#password=")[2], "password": password}
            assert browser.call("POST", "/login/password", body).status_code == 204

    def elsewhere(self, caller: Caller) -> Caller:
        return replace(caller, platform=self.there)


@pytest.fixture(scope="module")
def pair(
    _postgres: PostgresServer | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    if _postgres is None:
        pytest.skip("PostgreSQL is not installed")
    url, folder = _postgres.fresh(), tmp_path_factory.mktemp("pair")
    with Platform(folder / "a", database=url) as here, here.beside(folder / "b") as there:
        yield Pair(here, there)
    _postgres.drop(url)
