"""R-S13: the bytes of files, logs and models are given to who may have them, and to nobody else.

Every route that answers with bytes is here by its path, and one that is not here is found by the
first test. Each is asked by who may (or the rest proves nothing), and by strangers, by those who
have only a word of it, and with credentials that have died, that are of something else, or that
were made for less.
"""

from __future__ import annotations

import hashlib
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from windlass.core.signing import SAFE_METHODS
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

ROOT = Path(__file__).parents[2]
SECRET = "zebra-crossing"
"""It stands in everything that ann has."""

WAYS = (
    "/api/v1/jobs/{ref}/logs",
    "/api/v1/jobs/{ref}/stream",
    "/api/v1/jobs/{ref}/metrics",
    "/api/v1/jobs/{ref}/code/{path:path}",
    "/api/v1/jobs/{ref}/checkpoints/{which}/files/{path:path}",
    "/api/v1/runs/{ref}/artifacts",
    "/api/v1/runs/{ref}/artifacts/{path:path}",
    "/api/v1/models/{name}/versions/{version}/files/{path:path}",
    "/mlflow/{project}/api/2.0/mlflow/artifacts/list",
    "/mlflow/{project}/api/2.0/mlflow-artifacts/artifacts",
    "/mlflow/{project}/api/2.0/mlflow-artifacts/artifacts/{file:path}",
)
OF_WORKERS = (
    "/api/v1/worker/blobs/{digest}",
    "/api/v1/worker/checkpoints/{digest}/{file}",
)
ELSEWHERE = {
    "/tb/{ref}/{secret}/{path:path}": "test_board_door.py",
    "/api/v1/feed": "test_tenants.py; of events, not of files",
    "/api/v1/usage": "test_tenants.py; figures, as CSV",
    "/api/v1/usage/entries": "test_tenants.py; figures, as CSV",
    "/api/v1/audit/export": "test_audit_log.py",
    "/metrics": "figures of the server",
    "/login": "the same for everybody",
    "/login/login.js": "the same for everybody",
    "/login/login.css": "the same for everybody",
}
"""Routes that answer in bytes too, and where they are shown to be closed."""


def _routes() -> list[str]:
    sys.path.insert(0, str(ROOT))
    from docs.writers.api import application, routes

    document = application().openapi()
    plain = {path for method, path, _ in routes() if method == "GET"}
    found = []
    for path in sorted(plain):
        written = path.replace(":path}", "}")
        answers = document["paths"].get(written, {}).get("get", {}).get("responses", {})
        kinds = {kind for code, told in answers.items() if code.startswith("2")
                 for kind in told.get("content", {})}  # fmt: skip
        if kinds - {"application/json"} or "artifacts" in path:
            found.append(path)
    return found


def test_every_route_that_gives_bytes_is_looked_at_here() -> None:
    assert "GET" in SAFE_METHODS
    assert sorted([*WAYS, *OF_WORKERS, *ELSEWHERE]) == _routes()


LEAVES = f"""
import os, time, windlass
print("{SECRET}", flush=True)
print(os.environ["WINDLASS_TOKEN"], flush=True)
windlass.log(step=0, **{{"{SECRET}": 1.0}})
kept = windlass.checkpoint(state={{"{SECRET}": os.environ["WINDLASS_JOB_ID"]}})
kept.save(1)
print("saved", flush=True)
time.sleep(900)
"""


class Vault:
    """ann's job in `red`, which has left something everywhere and runs; bob, who has the same
    in `blue`."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        self.people = People(platform)
        for name in ("red", "blue"):
            self.people.project(name)
        self.ann = self.people.user("ann", project="red", role="member")
        self.bob = self.people.user("bob", project="blue", role="maintainer")
        self.code = f"print('{SECRET}')\n".encode()
        (folder / "leaves.py").write_text(LEAVES)
        (folder / "secret.py").write_bytes(self.code)
        self.tokens: dict[str, Caller] = {}
        self.job = self._job(self.ann, "red", folder)
        self._job(self.bob, "blue", folder)
        with self.ann.inside("red").client() as client:
            client.models.register_files(SECRET, folder / "secret.py")
            [saved] = wait_for(lambda: list(client.checkpoints.list(self.job)), 60, "it is there")
            files = client.checkpoints.get(self.job, "1")["files"]
        path = f"/runs/{self.job}/artifacts/out.txt"
        assert self.ann.call("PUT", path, data=SECRET.encode()).status_code == 204
        series = f"/jobs/{self.job}/metrics"
        wait_for(lambda: SECRET in self.ann.call("GET", series).text, 60, "its metric is here")
        self.checkpoint, self.file = saved["digest"], files[0]
        self.filled = {
            "ref": self.job, "project": "red", "name": SECRET, "version": "1", "which": "1",
            "digest": hashlib.sha256(self.code).hexdigest(), "file": files[0]["digest"],
        }  # fmt: skip

    def _job(self, who: Caller, project: str, folder: Path) -> str:
        with who.inside(project).client() as client:
            job = client.jobs.submit(run=[sys.executable, "leaves.py"], code=folder)

            def told() -> list[str]:
                words = "".join(line["text"] + " " for line in client.jobs.logs(job.id)).split()
                return words if "saved" in words else []

            run = wait_for(told, 60, "it has left it")[1]
        [attempt] = self.platform.attempts(job)
        worker = (attempt / "token").read_text().strip()
        self.tokens[f"run of {project}"] = Caller(self.platform, f"run of {project}", token=run)
        self.tokens[f"worker of {project}"] = Caller(self.platform, "worker", token=worker)
        return job.id

    def address(self, way: str) -> str:
        last = {
            "/api/v1/jobs/{ref}/code/{path:path}": "secret.py",
            "/api/v1/models/{name}/versions/{version}/files/{path:path}": "secret.py",
            "/api/v1/jobs/{ref}/checkpoints/{which}/files/{path:path}": self.file["path"],
            "/api/v1/runs/{ref}/artifacts/{path:path}": "out.txt",
        }.get(way, "")
        path = way.replace("{path:path}", last)
        path = path.replace("{file:path}", f"0/{self.job}/artifacts/out.txt")
        if way == OF_WORKERS[1]:
            path = path.replace("{digest}", self.checkpoint)
        if way.endswith("artifacts/list"):
            path += f"?run_id={self.job}"
        elif way.endswith("mlflow-artifacts/artifacts"):
            path += f"?path=0/{self.job}/artifacts"
        for name, value in self.filled.items():
            path = path.replace("{" + name + "}", value)
        assert "{" not in path, path
        return path

    def refuses(self, who: Caller, ways: tuple[str, ...], *codes: int) -> None:
        for way in ways:
            answer = who.call("GET", self.address(way), root="")
            assert answer.status_code in codes, (who.name, way, answer.status_code)
            if "text/event-stream" not in answer.headers["content-type"]:
                told = answer.text.replace(SECRET, "", answer.text.count("'" + SECRET + "'"))
                assert SECRET not in told, f"{way} tells {who.name} {told}"


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    folder = tmp_path_factory.mktemp("vault")
    (folder / "code").mkdir()
    with Platform(folder / "home") as platform:
        yield Vault(platform, folder / "code")


def token(vault: Vault, *scopes: str, name: str) -> Caller:
    return vault.people.token(vault.ann, *scopes, name=name)


def test_who_may_gets_the_bytes_by_every_way(vault: Vault) -> None:
    ann = token(vault, "read", name="all")
    for way in WAYS:
        answer = ann.call("GET", vault.address(way), root="")
        assert answer.status_code == 200, (way, answer.text)
        if "text/event-stream" not in answer.headers["content-type"]:
            assert SECRET in answer.text or "out.txt" in answer.text, (way, answer.text)
    worker = vault.tokens["worker of red"]
    for way in OF_WORKERS:
        answer = worker.call("GET", vault.address(way), root="")
        assert answer.status_code == 200 and SECRET in answer.text, (way, answer.text)


def test_nobody_gets_none_of_them(vault: Vault) -> None:
    every = (*WAYS, *OF_WORKERS)
    vault.refuses(vault.people.anonymous, every, 401)
    made_up = "wl_" + "A" * 49
    for bad in (made_up, "wlr_" + "A" * 43, "wlw_" + "A" * 43, "x"):
        vault.refuses(Caller(vault.platform, "forger", token=bad), every, 401)


def test_another_project_gets_none_of_them_and_is_told_nothing(vault: Vault) -> None:
    bob = vault.bob
    for who in (bob, bob.inside("blue"), bob.inside("red"), vault.people.token(bob, "write")):
        ways = tuple(way for way in WAYS if not (way.startswith("/mlflow/") and who.project))
        vault.refuses(who, ways, 404)
    # Of the wire's own project, the file of a run that is not in it.
    reader = vault.people.token(bob, "read", name="wire")
    for way in WAYS:
        if way.startswith("/mlflow/"):
            path = vault.address(way).replace("/mlflow/red/", "/mlflow/blue/")
            answer = reader.call("GET", path, root="")
            assert answer.status_code == 404 or answer.json() == {}, (way, answer.text)
            assert SECRET not in answer.text


def test_the_token_of_an_attempt_is_of_its_own_project_and_its_own_job(vault: Vault) -> None:
    theirs = vault.tokens["run of blue"]
    vault.refuses(theirs, WAYS, 403, 404)
    vault.refuses(theirs, OF_WORKERS, 403)
    vault.refuses(vault.tokens["worker of blue"], WAYS, 401, 403, 404)
    # bob's job has the same code: that is its own. What ann's saved is not.
    vault.refuses(vault.tokens["worker of blue"], OF_WORKERS[1:], 404)
    vault.refuses(vault.tokens["worker of red"], WAYS, 401, 403)
    vault.refuses(vault.ann, OF_WORKERS, 403)
    vault.refuses(vault.people.owner.inside("red"), OF_WORKERS, 403)


@pytest.mark.parametrize("scope", ["queue.read", "usage.read", "node.read"])
def test_a_token_that_was_made_for_less_gets_none_of_them(vault: Vault, scope: str) -> None:
    narrow = token(vault, scope, name=scope.replace(".", "-"))
    vault.refuses(narrow, (*WAYS, *OF_WORKERS), 403)


def test_a_token_that_was_made_for_one_thing_gets_no_other(vault: Vault) -> None:
    of_jobs = tuple(way for way in WAYS if way.startswith("/api/v1/jobs/"))
    of_models = tuple(way for way in WAYS if way.startswith("/api/v1/models/"))
    of_runs = tuple(way for way in WAYS if way not in (*of_jobs, *of_models))
    for scope, not_of in (
        ("job.read", of_models + of_runs),
        ("track.read", of_jobs + of_models),
        ("model.read", of_jobs + of_runs),
    ):
        vault.refuses(token(vault, scope, name="one-" + scope[:3]), not_of, 403)


def test_what_has_died_gets_none_of_them(vault: Vault) -> None:
    every = (*WAYS, *OF_WORKERS)
    first = vault.address(WAYS[5])

    revoked = replace(token(vault, "read", name="revoked"), name="revoked")
    late = replace(token(vault, "read", name="late"), name="late")
    assert revoked.code("GET", first, root="") == 200
    ids = {each["name"]: each["id"] for each in vault.ann.ok("GET", "/tokens")["items"]}
    vault.ann.ok("DELETE", f"/tokens/{ids['revoked']}")
    vault.refuses(revoked, every, 401)
    with closing(sqlite3.connect(vault.platform.home / "windlass.db", timeout=60)) as db, db:
        assert db.execute("UPDATE tokens SET expires_ms=1 WHERE id=?", (ids["late"],)).rowcount
    vault.refuses(late, every, 401)
    gone = vault.people.user("gone", project="red", role="viewer")
    assert gone.code("GET", first, root="") == 200
    vault.people.owner.ok("DELETE", "/projects/red/members/gone")
    vault.refuses(gone, WAYS, 403, 404)
    vault.people.owner.ok("PUT", "/users/gone/disabled", {"disabled": True})
    vault.refuses(gone, WAYS, 401)


class Slow:
    """A file that is half sent when its attempt ends, and the rest afterwards."""

    def __init__(self, vault: Vault, token: str, path: str) -> None:
        self._plug = socket.create_connection(("127.0.0.1", vault.platform.port), 60)
        head = (
            f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            "Content-Length: 400000\r\n\r\n"
        )
        self._plug.sendall(head.encode() + bytes(300_000))

    def end(self) -> bytes:
        """The status, once the rest is sent; nothing where the server did not wait so long."""
        with self._plug:
            try:
                self._plug.sendall(bytes(100_000))
                return self._plug.recv(65536).split(b" ")[1]
            except (OSError, IndexError):
                return b""


def test_the_token_of_an_attempt_that_is_over_opens_and_changes_nothing(vault: Vault) -> None:
    """R-I3 too: what came late is not kept. Last: ann's job ends here."""
    inside, worker = vault.tokens["run of red"], vault.tokens["worker of red"]
    way = vault.address("/api/v1/runs/{ref}/artifacts/{path:path}")
    assert inside.code("GET", way, root="") == 200
    wire = f"/mlflow/red/api/2.0/mlflow-artifacts/artifacts/0/{vault.job}/artifacts/late-2.bin"
    slow = [
        Slow(vault, inside.token, f"/api/v1/runs/{vault.job}/artifacts/late-1.bin"),
        Slow(vault, inside.token, wire),
    ]
    drafts = vault.platform.home.glob
    wait_for(lambda: len(list(drafts("blobs/*/drafts/*"))) >= 2, 60, "both are half there")
    vault.ann.ok("POST", f"/jobs/{vault.job}/stop", {"now": True})
    ended = f"/jobs/{vault.job}"
    wait_for(lambda: vault.ann.ok("GET", ended)["state"] == "cancelled", 60, "it is over")
    assert not [status for each in slow if (status := each.end()).startswith(b"2")]
    listed = vault.ann.ok("GET", f"/runs/{vault.job}/artifacts")["items"]
    assert [item["path"] for item in listed if item["path"].startswith("late")] == []
    wait_for(lambda: inside.code("GET", wire, root="") == 409, 60, "the wire knows it too")
    vault.refuses(inside, WAYS, 401, 403, 409)
    vault.refuses(worker, (*WAYS, *OF_WORKERS), 401, 403, 404, 409)
    for method, path, body in (
        ("PUT", f"/runs/{vault.job}/artifacts/late-3.bin", None),
        ("DELETE", f"/runs/{vault.job}/artifacts/out.txt", None),
        ("POST", "/models/late/versions", {"run": vault.job}),
        ("PUT", f"/models/{SECRET}/aliases/champion", {"version": 1}),
    ):
        data = b"late" if method == "PUT" and body is None else None
        answer = inside.call(method, path, body, data=data)
        assert answer.status_code == 409 and answer.json()["error"]["code"] == "fenced", path
