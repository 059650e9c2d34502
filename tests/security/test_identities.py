"""Requests made from the OpenAPI document, sent by callers of several kinds: never a 5xx, never a
word of another project's, and every operation is let in and answered well for every role that the
table of rights allows it to, or all of that would prove nothing.

On SQLite; in the long run on PostgreSQL too, with more requests.
"""

from __future__ import annotations

import json
import os
import re
import uuid
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some
from test_matrix import RED, ROLES, Town, Way, expected, ways

from windlass.core.access import Right
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of schemathesis's own imports
    import schemathesis

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", 6))
MARK = "zebra"
"""In names of the project red that strangers have heard of, and ask for."""
HIDDEN = "giraffe"
"""In names and texts of the project red that nobody outside ever reads."""
_CHECKPOINT = "needs a checkpoint: tests/e2e/test_checkpoints_of_jobs.py"
_MIRRORED = "needs a checkpoint on its way: tests/server/mirror"
NOT_HERE = {
    "GET /api/v1/login/oidc": "no OpenID issuer is set up",
    "GET /api/v1/login/oidc/back": "no OpenID issuer is set up",
    "PUT /api/v1/users/{name}/identity": "no OpenID issuer is set up",
    "POST /api/v1/login": "needs a password: tests/server/sessions",
    "POST /api/v1/login/key": "needs a password: tests/server/sessions",
    "POST /api/v1/login/link": "needs a link: tests/server/sessions",
    "POST /api/v1/login/password": "needs a link: tests/server/sessions",
    "POST /api/v1/logout": "needs a browser's session: tests/server/sessions",
    "DELETE /api/v1/sessions/{session_id}": "needs a browser's session: tests/server/sessions",
    "GET /api/v1/worker/blobs/{digest}": "needs code: tests/e2e",
    "POST /api/v1/worker/orders/{order}": "needs an order: tests/e2e/test_debug.py",
    "GET /api/v1/jobs/{ref}/checkpoints/{which}": _CHECKPOINT,
    "GET /api/v1/jobs/{ref}/checkpoints/{which}/files/{path:path}": _CHECKPOINT,
    "DELETE /api/v1/jobs/{ref}/checkpoints/{which}": _CHECKPOINT,
    "POST /api/v1/worker/checkpoints": _MIRRORED,
    "PUT /api/v1/worker/checkpoints/{digest}/{file}": _MIRRORED,
    "GET /api/v1/worker/checkpoints/{digest}": _MIRRORED,
    "GET /api/v1/worker/checkpoints/{digest}/{file}": _MIRRORED,
    "POST /api/v1/worker/code": "needs code in a repository: tests/e2e/test_git_code.py",
    "POST /api/v1/worker/register": "an attempt registers once: tests/worker",
}
"""Operations whose good answer needs what this server has not; seen well elsewhere."""


class Stage(Town):
    """The town of the matrix, and for each operation what makes a call to it succeed."""

    def build(self) -> None:
        super().build()
        owner = self.people.owner
        owner.ok("PUT", "/queues/parked", {"paused": True})
        owner.ok("POST", "/users", {"name": "spare", "project": RED})
        self.red = owner.inside(RED)
        self.red.ok("PUT", f"/secrets/{MARK.upper()}", {"value": f"{MARK}-value"})
        self.red.ok("PUT", f"/secrets/{HIDDEN.upper()}", {"value": f"{HIDDEN}-value"})
        for name in (f"{MARK}-job", f"{HIDDEN}-job"):
            spec = {"run": ["echo", HIDDEN], "name": name, "hold": True}
            self.red.ok("POST", "/jobs", {"spec": spec})
        self.first = self.platform.attempts()[0].parent.name
        self.alive: dict[str, str] = {}

    def renew(self) -> None:
        """The storm may have given the member a password: that ends the tokens from before."""
        for name, scope in (("reader", "read"), ("writer", "write")):
            made = self.people.token(self.who["member"], scope, name=self.fresh(name))
            self.who[name] = made

    def me(self, who: str) -> str:
        """Whose objects are one's own: a token's are its user's."""
        return "member" if who in ("reader", "writer") else who

    def submit(self, who: str, **spec: Any) -> str:
        maker = self.who[self.me(who)]
        made = maker.ok("POST", "/jobs", {"spec": {"run": ["true"], **spec}})
        return str(made["id"])

    def running(self, who: str) -> str:
        who = self.me(who)
        if who not in self.alive:
            self.alive[who] = self.submit(who, run=["sleep", "900"])
        ref = self.alive[who]

        def runs() -> bool:
            state = self.red.ok("GET", f"/jobs/{ref}")["state"]
            return bool(state == "running")

        wait_for(runs, 60, "it runs")
        return ref

    def finished(self, who: str) -> str:
        ref = self.submit(who, hold=True)
        self.red.ok("POST", f"/jobs/{ref}/stop", {})

        def over() -> bool:
            return bool(self.red.ok("GET", f"/jobs/{ref}")["state"] == "cancelled")

        wait_for(over, 30, "it is over")
        return ref

    def good(self, way: Way, who: str) -> tuple[str, Any, dict[str, Any]]:
        """Path, body and more of a call that must succeed."""
        op = way.name.replace("/api/v1", "")
        path, body = way.path, {}
        caller, own = self.who[who], self.red
        more: dict[str, Any] = {}
        values: dict[str, str] = {"name": RED, "user": "dummy", "project": RED, "kind": "project"}
        values |= {"path": "jobs", "page": "jobs"}
        if "/jobs/{ref}" in path:
            values["ref"] = self.object(op, who, way)
        if "/models/{name}" in path:
            maker = self.who[self.me(who)] if way.right is Right.MODEL_REMOVE else own
            values |= self.model(maker)
        if "/runs/{ref}" in path:
            values |= self.run(who, way)
        if "/studies/{ref}" in path:
            maker = self.who[self.me(who)] if way.right is Right.JOB_WRITE else own
            values["ref"] = str(maker.ok("POST", "/studies", {"spec": STUDY})["id"])
        match op:
            case "POST /models/{name}/versions":
                body = {"files": [FILE]}
            case "PUT /models/{name}/aliases/{alias}":
                body = {"version": 1}
            case "PUT /runs/{ref}/artifacts/{path:path}":
                more = EMPTY
            case "POST /runs/{run_id}/spool":
                values["run_id"] = uuid.uuid4().hex
                body = {"name": "offline", "started_ms": 1}
            case "POST /studies":
                body = {"spec": STUDY}
            case "POST /studies/{ref}/trials":
                body = {"trials": 1}
            case "POST /jobs":
                body = {"spec": {"run": ["true"], "hold": True}}
            case "GET /jobs/{ref}/code/{path:path}":
                values |= self.code()
            case "GET /jobs/{ref}/code-diff":
                path += f"?against={MARK}-job"
            case "PUT /views/{page}/{name}":
                body = {"search": "sort=name"}
            case "DELETE /views/{page}/{name}":
                asked = self.who[self.me(who)]
                asked.ok("PUT", f"/views/jobs/{RED}", {"search": "sort=name"})
            case "POST /jobs/{ref}/priority":
                body = {"priority": 1}
            case "POST /jobs/{ref}/move":
                body = {"last": True}
            case "POST /jobs/{ref}/debug":
                body = {"kind": "stack", "seconds": 1}
            case "POST /projects" | "POST /projects/{name}/services" | "POST /users":
                body = {"name": self.fresh("made")}
            case "DELETE /projects/{name}":
                values["name"] = self.people.project(self.fresh("doomed"))
            case "PUT /projects/{name}/members/{user}":
                body = {"role": "viewer"}
            case "DELETE /projects/{name}/members/{user}":
                own.ok("PUT", f"/projects/{RED}/members/dummy", {"role": "viewer"})
            case "PUT /users/{name}/disabled":
                values["name"], body = "dummy", {"disabled": False}
            case "PUT /users/{name}/role":
                values["name"], body = "dummy", {"role": None}
            case "POST /keys/{access_key}/rotate" | "DELETE /keys/{access_key}":
                name = self.who[self.me(who)].name
                made = own.ok("POST", "/keys", {"user": self.spare(name, who)})
                values["access_key"] = made["access_key"]
            case "POST /tokens":
                body = {"name": self.fresh("token"), "scopes": ["read"]}
            case "DELETE /tokens/{ref}":
                asked = self.who[self.me(who)]
                made = asked.ok("POST", "/tokens", {"name": self.fresh("token")})
                values["ref"] = made["id"]
            case "PUT /secrets/{name}" | "PUT /me/secrets/{name}":
                values["name"], body = "FRESH", {"value": "a new value"}
            case "DELETE /secrets/{name}":
                values["name"] = "DOOMED"
                own.ok("PUT", "/secrets/DOOMED", {"value": "a value"})
            case "DELETE /me/secrets/{name}":
                values["name"] = "DOOMED"
                self.who[self.me(who)].ok("PUT", "/me/secrets/DOOMED", {"value": "a value"})
            case "PUT /queues/{name}":
                values["name"] = "matrix"
            case "GET /queues/{name}" | "GET /queues/{name}/jobs" | "DELETE /queues/{name}":
                values["name"] = "matrix"
                own.ok("PUT", "/queues/matrix", {})
            case "PUT /engines/{name}":
                values["name"], body = "matrix", {"kind": "slurm"}
            case "DELETE /engines/{name}":
                values["name"] = "matrix"
                own.ok("PUT", "/engines/matrix", {"kind": "slurm"})
            case "POST /engines/{name}/check":
                values["name"] = "local"
            case "PUT /quotas/{name}":
                body = {"nominal": {"gpus": 8}}
            case "GET /quotas/{name}" | "DELETE /quotas/{name}":
                own.ok("PUT", f"/quotas/{RED}", {"nominal": {"gpus": 8}})
            case "PUT /quotas":
                body = {"cohorts": {}, "tenants": {}}
            case "PUT /limits/{project}":
                body = {"limits": []}
            case "DELETE /limits/{project}":
                own.ok("PUT", f"/limits/{RED}", {"limits": []})
            case "PUT /usage/budgets/{kind}/{name}":
                body = {"amount": "100000"}
            case "DELETE /usage/budgets/{kind}/{name}":
                own.ok("PUT", f"/usage/budgets/project/{RED}", {"amount": "100000"})
            case "POST /usage/prices":
                body = {"resource": "gpu", "price": "1.50"}
            case "PUT /password":
                body = {"new": "correct horse battery staple"}
            case "POST /bundles":
                body = {"files": []}
            case "PUT /blobs/{digest}":
                values["digest"], more = _EMPTY, EMPTY
            case "GET /audit/{number}":
                values["number"] = "1"
            case "POST /run/checkpoints":
                body = {"attempt": 1, "step": 1, "path": "x", "digest": "0" * 64, "mirrored": True}
            case "POST /worker/ended":
                record = {"attempt_id": self.first, "attempt": 1, "node": "local",
                          "outcome": "succeeded"}  # fmt: skip
                body = {"attempt": 1, "record": record}
            case "PUT /worker/mirror/{path:path}" | "DELETE /worker/mirror/{path:path}":
                values["path"] = "out/mirrored"
                path += "?node=local"
                more = EMPTY if way.method == "PUT" else {}
            case "POST /worker/spool":
                body = {"attempt": 1, "node": "local", "rank": 0, "offset": 0, "lines": []}
        if "/users/{name}" in path:
            values["name"] = "dummy"
        if op == "DELETE /users/{name}":
            values["name"] = self.fresh("leaver")
            own.ok("POST", "/users", {"name": values["name"]})
        if "/worker/" in path and way.method == "POST" and not body:
            body = {"attempt": 1, "seq": 1_000_000, "node": "local"}
        if op in ("GET /worker/orders", "GET /worker/rendezvous"):
            path += "?node=local"
        filled = re.sub(r"\{(\w+)(?::path)?\}", lambda found: values[found[1]], path)
        assert caller is not None
        return filled, None if way.method in ("GET", "DELETE") or "data" in more else body, more

    def model(self, maker: Caller) -> dict[str, str]:
        """A model with one version, and what a path may name of it."""
        name = self.fresh("net")
        maker.call("PUT", f"/blobs/{_EMPTY}", **EMPTY)
        maker.ok("POST", f"/models/{name}/versions", {"files": [FILE], "aliases": ["champion"]})
        return {"name": name, "version": "1", "alias": "champion", "path": FILE["path"]}

    def code(self) -> dict[str, str]:
        """A job that has code, and a file of it."""
        self.red.call("PUT", f"/blobs/{_EMPTY}", **EMPTY)
        bundle = self.red.ok("POST", "/bundles", {"files": [FILE]})["digest"]
        spec = {"run": ["true"], "hold": True, "code": {"bundle": bundle}}
        ref = self.red.ok("POST", "/jobs", {"spec": spec})["id"]
        return {"ref": ref, "path": FILE["path"]}

    def run(self, who: str, way: Way) -> dict[str, str]:
        """A job's run with one file; one's own where others' are not allowed."""
        if way.right is Right.TRACK_WRITE:
            maker, ref = self.who[self.me(who)], self.submit(who, hold=True)
        else:
            maker, ref = self.red, self.red.ok("GET", f"/jobs/{MARK}-job")["id"]
        maker.call("PUT", f"/runs/{ref}/artifacts/{FILE['path']}", **EMPTY)
        return {"ref": ref, "path": FILE["path"]}

    def object(self, op: str, who: str, way: Way) -> str:
        """The job that an operation is about; one's own where others' are not allowed."""
        if way.right not in (Right.JOB_WRITE, Right.JOB_DEBUG, Right.QUEUE_WRITE):
            return f"{MARK}-job"
        if op.startswith("DELETE"):
            return self.finished(who)
        if op.endswith(("/debug", "/restart")):
            return self.running(who)
        if op.endswith("/move"):
            return self.submit(who, queue={"name": "parked"})
        return self.submit(who, hold=True)

    def spare(self, name: str, who: str) -> str:
        """Whose key is revoked: the caller's own, of which there may be few, are spared."""
        return "spare" if Right.USER_WRITE in ROLES[who] else name

    def caller(self, way: Way, who: str) -> Caller:
        """Who calls: with a new password every other credential of a user is dead, so one who is
        nobody else does that."""
        if way.name != "PUT /api/v1/password":
            return self.who[who]
        name = self.fresh("person")
        if who in ("owner", "admin", "auditor"):
            return self.people.user(name, project=RED, org_role=who)
        return self.people.user(name, project=RED, role=who)


STUDY = {
    "job": {"run": "true", "hold": True}, "space": {"x": [1]}, "minimize": "loss", "trials": 1,
    "sampler": "random",
}  # fmt: skip
FILE: dict[str, Any] = {
    "path": "w.bin", "size": 0,
    "digest": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}  # fmt: skip
_EMPTY = FILE["digest"]
EMPTY: dict[str, Any] = {"data": b"", "headers": {"X-Wl-Content-Sha256": _EMPTY}}


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)]
)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    url, server = "", None
    if request.param == "postgresql":
        server = request.getfixturevalue("_postgres")
        if server is None:
            pytest.skip("PostgreSQL is not installed")
        url = server.fresh()
    with Platform(tmp_path_factory.mktemp("identities") / "home", database=url) as platform:
        found = Stage(platform, People(platform))
        found.build()
        yield found
    if server is not None:
        server.drop(url)


def document(stage: Stage) -> Any:
    raw = stage.people.anonymous.call("GET", "/openapi.json").json()
    return schemathesis.openapi.from_dict(raw)


ENDLESS = ("/stream", "/feed")
_fuzz = settings(
    max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
    phases=[Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip


def send(caller: Caller, case: Any) -> Any:
    """One generated case as this caller's; None when it cannot even be written as HTTP."""
    words = case.as_transport_kwargs(base_url="http://x")
    path = words["url"].removeprefix("http://x")
    query = words.get("params") or {}
    for name in ("wait", "seconds"):  # waiting is tested elsewhere
        if name in query:
            query[name] = 0
    body = words.get("json")
    if isinstance(body, dict) and "seconds" in body:
        body["seconds"] = 1
    from urllib.parse import urlencode

    try:
        target = path + ("?" + urlencode(query, doseq=True) if query else "")
        data = words.get("data")
        content = data if isinstance(data, bytes) else None
        return caller.call(
            words["method"], target, body, data=content if body is None else None, root=""
        )
    except httpx.InvalidURL:  # longer than this client sends: the server's cap is tested elsewhere
        return None
    except (UnicodeError, ValueError, TypeError, OSError, RuntimeError) as err:
        if "httpx" in type(err).__module__ or isinstance(err, UnicodeError | ValueError):
            return None
        raise


OPERATIONS = [
    way
    for way in ways()
    if way.path.startswith("/api/v1")
    and not way.path.startswith(("/api/v1/worker/", "/api/v1/run/"))
]


@pytest.mark.slow
@pytest.mark.parametrize("way", OPERATIONS, ids=lambda way: way.name)
def test_no_caller_gets_a_server_error_and_no_stranger_a_word(stage: Stage, way: Way) -> None:
    schema = document(stage)
    operation = schema[way.path.replace(":path}", "}")][way.method.lower()]
    modes = [schemathesis.GenerationMode.POSITIVE]
    if list(operation.iter_parameters()) or operation.body:
        modes.append(schemathesis.GenerationMode.NEGATIVE)
    reds: list[Any] = [None]
    if "{ref}" in way.path:
        reds += [{"ref": f"{MARK}-job"}, {"ref": stage.job("maintainer")}]
    elif "{name}" in way.path:
        reds += [{"name": name} for name in (RED, MARK.upper(), "dummy")]
        reds = [None if each and "{user}" in way.path else each for each in reds]
    cases = [
        operation.as_strategy(generation_mode=mode, path_parameters=known)
        for mode in modes
        for known in reds
    ]
    callers = ("stranger", "member", "viewer", "auditor", "reader", "anonymous", "worker")

    @_fuzz
    @given(case=some.one_of(cases), who=some.sampled_from(callers))
    def ask(case: Any, who: str) -> None:
        for each in {"stranger", who}:
            answer = send(stage.who[each], case)
            if answer is None:
                continue
            assert answer.status_code < 500, (each, answer.status_code, case)
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                continue
            if each in ("stranger", "anonymous"):
                assert HIDDEN not in answer.text.lower(), (each, answer.text, case)

    ask()


@pytest.mark.slow
def test_nothing_of_red_was_changed_by_blue(stage: Stage) -> None:
    """After the storm above: what a stranger can name, it could not touch."""
    red = stage.red
    before = picture(red)
    stranger = stage.who["stranger"]
    for way in OPERATIONS:
        if way.method == "GET" or way.right is Right.PUBLIC or way.path.endswith("{digest}"):
            continue
        for ref in (f"{MARK}-job", stage.job("maintainer")):
            path, body, more = stage_call(stage, way, ref)
            answer = stranger.call(way.method, path, body, root="", **more)
            assert answer.status_code < 500, (way.name, answer.text)
    assert picture(red) == before
    assert HIDDEN in json.dumps(before).lower(), "there was something to see"
    for path in ("/jobs?limit=1000", "/audit?limit=1000", "/secrets", "/queues/default/jobs"):
        assert HIDDEN not in stranger.call("GET", path).text.lower()


def stage_call(stage: Stage, way: Way, ref: str) -> tuple[str, Any, dict[str, Any]]:
    """The best call that one can make who knows the names of red's objects."""
    values = {"ref": ref, "name": RED, "user": "dummy", "project": RED, "kind": "project",
              "access_key": stage.keys["other"], "session_id": "0" * 32}  # fmt: skip
    if "secrets" in way.path:
        values["name"] = MARK.upper()
    body = None if way.method == "DELETE" else stage.body(way, "stranger") or {}
    if way.method == "PUT" and "secrets" in way.path:
        body = {"value": "from blue"}
    path = re.sub(r"\{(\w+)(?::path)?\}", lambda found: values.get(found[1], "1"), way.path)
    return path, body, {}


def picture(red: Caller) -> dict[str, Any]:
    """All of the project that can be seen, but for what time alone changes."""
    jobs = red.ok("GET", "/jobs?limit=1000")["items"]
    project = red.ok("GET", f"/projects/{RED}")
    return {
        "jobs": sorted((job["name"], job["state"], job["priority"], job["wish"]) for job in jobs),
        "secrets": red.ok("GET", "/secrets"),
        "project": project,
        "budgets": [
            (each["name"], each["amount"]) for each in red.ok("GET", "/usage/budgets")["items"]
        ],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "who", [*(name for name in ROLES if name not in ("stranger", "worker")), "worker"]
)
def test_every_operation_succeeds_for_every_role_that_may(stage: Stage, who: str) -> None:
    """Last of all in this module: some of these calls end what they are about."""
    if who in ("reader", "writer"):
        stage.renew()
    failed = []
    last = ("/worker/ended", "/restart", "/logout", "/password")
    for way in sorted(ways(), key=lambda way: way.path.endswith(last)):
        if expected(way, who) not in ("yes", "own") or way.name in NOT_HERE:
            continue
        if (way.name, who) == ("PUT /api/v1/password", "service"):
            continue  # a program has none
        if not way.path.startswith("/api/v1") or way.right is Right.PUBLIC:
            continue
        if who == "run" and way.right is not Right.RUN:
            continue  # of its own run alone: tests/server/artifacts, tests/server/mlflow
        path, body, more = stage.good(way, who)
        answer = stage.caller(way, who).call(way.method, path, body, root="", **more)
        if answer.status_code >= 300:
            failed.append(f"{way.name}: {answer.status_code} {answer.text[:300]}")
    assert not failed, "\n".join(failed)


def test_what_is_left_out_exists() -> None:
    assert set(NOT_HERE) <= {way.name for way in ways()}
