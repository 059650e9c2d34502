"""R-S2, R-S7: who may call what. Every route, by every kind of caller, on its own and on others'.

What is expected is worked out from the marks of the routes and the one table of rights, written
to tests/golden/rights.txt to be reviewed, and then observed on a real server, cell by cell.

    yes  let in        own  let in for its own, 403 for another's
    403  lacks the right    404  not there for it    401  nobody

After a change that is meant: `python tests/security/test_matrix.py` writes the file anew.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from windlass.core.access import (
    CallerKind,
    OrgRole,
    ProjectRole,
    Right,
    rights_in,
    rights_in_scope,
    rights_of,
)
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "rights.txt"
sys.path.insert(0, str(ROOT))

RED, BLUE = "red", "blue"
MEMBER = rights_in(None, ProjectRole.MEMBER)
ROLES: dict[str, frozenset[Right]] = {
    "owner": rights_in(OrgRole.OWNER, None),
    "admin": rights_in(OrgRole.ADMIN, None),
    "auditor": rights_in(OrgRole.AUDITOR, None),
    "maintainer": rights_in(None, ProjectRole.MAINTAINER),
    "member": MEMBER,
    "viewer": rights_in(None, ProjectRole.VIEWER),
    "service": MEMBER,
    "reader": MEMBER & rights_in_scope(["read"]),
    "writer": MEMBER & rights_in_scope(["write"]),
    "stranger": rights_in(None, ProjectRole.MAINTAINER),
    "worker": frozenset({Right.WORKER}),
    "run": rights_of(CallerKind.RUN),
    "anonymous": frozenset(),
}
"""The columns. `reader` and `writer` are tokens of the member, `stranger` maintains another
project and asks for the objects of this one."""
IN_THE_PROJECT = tuple(name for name in ROLES if name not in ("stranger", "worker", "run"))


@dataclass(frozen=True)
class Way:
    """A way into the server with what its mark says."""

    method: str
    path: str
    right: Right
    others: Right | None
    project: str

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def of_red(self) -> bool:
        """Its path names an object of the project."""
        return "{ref}" in self.path or bool(self.project) or "/quotas/{name}" in self.path

    @property
    def of_somebody(self) -> bool:
        """Its path names an object that is some user's."""
        others = (
            "/api/v1/jobs/{", "/api/v1/keys/{", "/api/v1/runs/{ref}/artifacts/",
            "/api/v1/studies/{",
        )  # fmt: skip
        return self.path.startswith(others) or self.right is Right.MODEL_REMOVE


@cache
def ways() -> list[Way]:
    from docs.writers.api import application, routes
    from fastapi.routing import iter_route_contexts

    from windlass.server.http.marks import OTHERS_ATTRIBUTE, PROJECT_ATTRIBUTE

    details = {}
    for found in iter_route_contexts(application().router.routes):
        if getattr(found, "dependant", None) is None or not found.dependant.dependencies:
            continue
        mark = found.dependant.dependencies[0].call
        for method in found.methods or ():
            details[method, found.path] = (
                getattr(mark, OTHERS_ATTRIBUTE, None), getattr(mark, PROJECT_ATTRIBUTE, ""),
            )  # fmt: skip
    return [
        Way(method, path, right, *details.get((method, path), _of_table(path)))
        for method, path, right in sorted(routes())
        if method != "HEAD"
    ]


def _of_table(path: str) -> tuple[None, str]:
    """The ways below one raw route have no route of their own to ask."""
    return None, "project" if "{project}" in path else ""


def expected(way: Way, who: str) -> str:
    """One cell, from the marks and the table alone."""
    if way.right is Right.PUBLIC:
        return "yes"
    if who == "anonymous":
        return "401"
    if who == "stranger" and way.project:
        return "404"  # before any look at what it may elsewhere
    if way.right not in ROLES[who]:
        return "403"
    if who == "stranger" and way.of_red and "tokens" not in way.path:
        return "404"
    if way.others is not None and way.others not in ROLES[who]:
        return "own"
    if who == "service" and way.path == "/api/v1/sessions/links":
        return "403"  # a program does not log in
    if "/keys/{" in way.path and Right.USER_WRITE not in ROLES[who]:
        return "own"
    return "yes"


def table() -> list[str]:
    found = ways()
    wide = max(len(way.name) for way in found)
    right = max(len(way.right) for way in found)
    head = f"{'':<{wide}} {'':<{right}} " + " ".join(f"{who:<10}" for who in ROLES)
    lines = [head.rstrip()]
    for way in found:
        cells = " ".join(f"{expected(way, who):<10}" for who in ROLES)
        lines.append(f"{way.name:<{wide}} {way.right:<{right}} {cells}".rstrip())
    return lines


def test_the_matrix_of_rights_is_the_one_that_was_reviewed() -> None:
    written = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    assert table() == written, "meant? then: python tests/security/test_matrix.py"


@dataclass
class Town:
    """A server with everybody on it, and something of everybody's in the project red."""

    platform: Platform
    people: People
    who: dict[str, Caller] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    spent: int = 0

    def build(self) -> None:
        people = self.people
        people.project(RED)
        people.project(BLUE)
        self.who["owner"] = people.owner.inside(RED)
        for name, org_role in (("admin", "admin"), ("auditor", "auditor")):
            self.who[name] = people.user(f"the-{name}", project=RED, org_role=org_role)
        for name in ("maintainer", "member", "viewer"):
            self.who[name] = people.user(f"the-{name}", project=RED, role=name)
        self.who["service"] = people.service("the-service", RED)
        self.who["stranger"] = people.user("the-stranger", project=BLUE, role="maintainer")
        self.who["reader"] = people.token(self.who["member"], "read", name="reader")
        self.who["writer"] = people.token(self.who["member"], "write", name="writer")
        self.who["anonymous"] = people.anonymous
        people.owner.ok("POST", "/users", {"name": "dummy", "project": RED})
        people.owner.ok("PUT", "/queues/matrix", {})
        people.owner.ok("PUT", f"/quotas/{RED}", {"nominal": {"gpus": 8}})
        self.keys["other"] = people.key("dummy", RED).access_key
        self.job("maintainer")
        self.inside()

    def inside(self) -> None:
        """The tokens of a real attempt."""
        script = (
            "import os, time; print(os.environ['WINDLASS_TOKEN'], flush=True); time.sleep(900)"
        )
        spec = {"run": [sys.executable, "-c", script], "name": "inside"}
        self.who["maintainer"].ok("POST", "/jobs", {"spec": spec})
        asked = self.who["maintainer"]

        def told() -> str:
            return asked.call("GET", "/jobs/inside/logs").text.strip()

        wait_for(told, 60, "the script tells its token")
        self.who["run"] = Caller(self.platform, "run", token=told())
        worker = (self.platform.attempts()[0] / "token").read_text().strip()
        self.who["worker"] = Caller(self.platform, "worker", token=worker)

    def job(self, who: str, fresh: bool = False) -> str:
        """A held job of somebody's: it never starts, and nothing of it needs to be waited for."""
        if who not in self.jobs or fresh:
            maker = {"reader": "member"}.get(who, who)
            spec = {"run": ["true"], "hold": True}
            self.jobs[who] = self.who[maker].ok("POST", "/jobs", {"spec": spec})["id"]
        return self.jobs[who]

    def study(self, who: str) -> str:
        """A study of somebody's, whose one trial never starts."""
        maker = self.who[{"reader": "member"}.get(who, who)]
        return str(maker.ok("POST", "/studies", {"spec": STUDY})["id"])

    def key(self, who: str) -> str:
        if who not in self.keys:
            owner = self.people.owner.inside(BLUE if who == "stranger" else RED)
            name = self.who[who].name
            self.keys[who] = owner.ok("POST", "/keys", {"user": name})["access_key"]
        return self.keys[who]

    def model(self, who: str) -> str:
        """A model of somebody's."""
        maker, name = self.who[{"reader": "member"}.get(who, who)], f"of-{who}"
        empty = {"X-Wl-Content-Sha256": _EMPTY}
        maker.call("PUT", f"/blobs/{_EMPTY}", data=b"", headers=empty)
        files = [{"path": "x", "digest": _EMPTY, "size": 0}]
        maker.ok("POST", f"/models/{name}/versions", {"files": files})
        return name

    def file(self, run: str) -> None:
        """A file of a run, for those who take it away."""
        self.people.owner.inside(RED).call("PUT", f"/runs/{run}/artifacts/1", data=b"x")

    def fresh(self, stem: str) -> str:
        self.spent += 1
        return f"{stem}-{self.spent}"

    def observe(self, way: Way, who: str, own: bool) -> int:
        """The status of one call that is as good as it can be made."""
        path = self.fill(way, who, own)
        caller = self.who[who]
        if way.path == "/api/v1/blobs/{digest}":
            empty = {"X-Wl-Content-Sha256": path.rpartition("/")[2]}
            return caller.code(way.method, path, data=b"", headers=empty, root="")
        body = None if way.method in ("GET", "DELETE") else self.body(way, who)
        return caller.code(way.method, path, body, root="")

    def fill(self, way: Way, who: str, own: bool) -> str:
        mine = own and ROLES[who] >= {Right.JOB_WRITE} and who != "stranger"
        whose = who if mine else "maintainer" if who != "maintainer" else "member"
        job = self.job(whose, way.method == "DELETE")  # what is not finished is not removed
        values = {"ref": job, "name": RED, "user": "dummy", "digest": _EMPTY, "project": RED}
        values["which"] = "none"  # no word for a checkpoint: who is let in is told so
        if "/users/{name}" in way.path:
            values["name"] = "dummy"
        if "/models/{name}" in way.path:
            values |= {"name": self.model(whose), "alias": "best"}
        if "/studies/{ref}" in way.path:
            values["ref"] = self.study(whose)
        if "/runs/{ref}/artifacts/" in way.path:
            values["ref"] = "inside" if who == "run" and own else job
            self.file(values["ref"])
        if "/engines/{name}" in way.path:
            values["name"] = "matrix"
            self.people.owner.ok("PUT", "/engines/matrix", {"kind": "slurm"})
        if "/queues/{name}" in way.path:
            values["name"] = "matrix"
            self.people.owner.ok("PUT", "/queues/matrix", {})
        if "/quotas/{name}" in way.path:
            self.people.owner.ok("PUT", f"/quotas/{RED}", {"nominal": {"gpus": 8}})
        if way.path.startswith("/api/v1/keys/"):
            holds = own and who not in ("anonymous", "worker", "run")
            values["access_key"] = self.key("member" if who in ("reader", "writer") else who) if (
                holds
            ) else self.keys["other"]  # fmt: skip
        if way.path.startswith("/api/v1/tokens/"):
            values["ref"] = "nothing"
        destroys = way.method == "DELETE" and Right.PROJECT_ADMIN in ROLES[who]
        if way.path == "/api/v1/projects/{name}" and destroys:
            values["name"] = self.people.project(self.fresh("doomed"))
        leaves = way.method == "DELETE" and Right.USER_WRITE in ROLES[who]
        if way.path == "/api/v1/users/{name}" and leaves:
            values["name"] = self.fresh("leaver")
            self.people.owner.ok("POST", "/users", {"name": values["name"]})
        return re.sub(r"\{(\w+)(?::path)?\}", lambda found: values.get(found[1], "1"), way.path)

    def body(self, way: Way, who: str) -> Any:
        match way.name.replace("/api/v1", ""):
            case "POST /jobs":
                return {"spec": {"run": ["true"], "hold": True}}
            case "POST /studies":
                return {"spec": STUDY}
            case "POST /studies/{ref}/trials":
                return {"trials": 1}
            case "POST /projects":
                return {"name": self.fresh("made")}
            case "POST /projects/{name}/services":
                return {"name": self.fresh("robot")}
            case "POST /users":
                return {"name": self.fresh("person")}
            case "PUT /projects/{name}/members/{user}":
                return {"role": "viewer"}
            case "PUT /users/{name}/disabled":
                return {"disabled": False}
            case "PUT /users/{name}/role":
                return {"role": None}
            case "PUT /quotas/{name}":
                return {"nominal": {"gpus": 8}}
            case "PUT /quotas":
                return {"projects": []}
            case "POST /tokens":
                return {"name": "another", "scopes": ["read"]}
            case "POST /jobs/{ref}/priority":
                return {"priority": 1}
            case "POST /jobs/{ref}/move":
                return {"last": True}
            case "PUT /models/{name}/aliases/{alias}":
                return {"version": 1}
            case "POST /bundles":
                return {"files": []}
            case "POST /jobs/{ref}/debug":
                return {"kind": "stack"}
        return {}


STUDY = {
    "job": {"run": "true", "hold": True}, "space": {"x": [1]}, "minimize": "loss", "trials": 1,
    "sampler": "random",
}  # fmt: skip
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with Platform(tmp_path_factory.mktemp("matrix") / "home") as platform:
        town = Town(platform, People(platform))
        town.build()
        yield town


def verdict(status: int, *, may_be_missing: bool) -> str:
    if status in (401, 403):
        return str(status)
    if status == 404 and not may_be_missing:
        return "404"
    assert status < 500 or status == 501, status
    return "yes"


_MISSING = ("/tokens/", "/members/", "/secrets", "/audit", "/run/", "/worker/", "/prices",
            "/budgets", "/limits", "/session", "/usage", "/logout", "/mlflow/",
            "/models", "/code/", "/views/")  # fmt: skip
"""Here a 404 says that the call was let in, and that there is nothing of that name."""


@pytest.mark.parametrize("who", ROLES)
def test_the_server_answers_every_kind_of_caller_as_the_table_says(town: Town, who: str) -> None:
    wrong = []
    for way in ways():
        want = expected(way, who)
        if way.path.startswith("/api/v1/login") and way.right is Right.PUBLIC:
            continue  # who gives a wrong password is told so with 401
        missing = want == "yes" and any(word in way.path for word in _MISSING)
        for own in (True, False) if way.of_somebody else (True,):
            status = town.observe(way, who, own)
            seen = verdict(status, may_be_missing=missing)
            if want == "own":
                right = ("403", "404") if not own else ("yes",)
                good = seen in right
            else:
                good = seen == want
            if not good:
                whose = "its own" if own else "another's"
                wrong.append(f"{way.name} ({way.right}), {whose}: {want}, but {status}")
    assert not wrong, "\n".join(wrong)


def test_a_caller_that_names_a_project_it_is_not_in_finds_nothing_at_all(town: Town) -> None:
    stranger = town.who["stranger"].inside(RED)
    nowhere = town.who["stranger"].inside("no-such-project")
    for way in ways():
        if way.right is Right.PUBLIC:
            continue
        path = town.fill(way, "stranger", False)
        body = None if way.method in ("GET", "DELETE") else town.body(way, "stranger")
        if way.path == "/api/v1/blobs/{digest}":
            continue
        answers = [each.call(way.method, path, body, root="") for each in (stranger, nowhere)]
        if way.project:
            continue  # its path says the project, the header nothing
        assert [answer.status_code for answer in answers] == [404, 404], way.name
        told = [answer.json()["error"]["message"] for answer in answers]
        assert told == [f"no project {RED}", "no project no-such-project"], way.name


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(table()) + "\n")
    print(f"wrote {os.path.relpath(GOLDEN)}")
