"""Models and files over HTTP: streamed, resumed, kept apart, and never opened."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from windlass.client import Client
from windlass.core.errors import NotFound
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("models") / "home"
    with Platform(home, "--artifact-bytes", "8MiB") as platform:
        yield platform


@pytest.fixture(scope="module")
def people(platform: Platform) -> People:
    people = People(platform)
    people.project("red")
    people.project("blue")
    return people


@pytest.fixture(scope="module")
def ann(people: People) -> Caller:
    return people.user("ann", project="red", role="member")


@pytest.fixture(scope="module")
def bob(people: People) -> Caller:
    return people.user("bob", project="blue", role="maintainer")


def held_job(who: Caller, name: str) -> str:
    spec = {"run": ["true"], "hold": True, "name": name}
    return str(who.ok("POST", "/jobs", {"spec": spec})["id"])


def put(who: Caller, run: str, path: str, content: bytes) -> httpx.Response:
    return who.call("PUT", f"/runs/{run}/artifacts/{path}", data=content)


class Canary:
    """Whoever unpickles it writes a file."""

    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trap,))


def test_a_pickle_is_flagged_and_never_opened(
    ann: Caller, platform: Platform, tmp_path: Path
) -> None:
    trap = tmp_path / "opened"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(pickle.dumps(Canary(trap)))  # by its bytes, not its name
    (folder / "model.joblib").write_bytes(pickle.dumps(Canary(trap)))
    (folder / "good.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    run = held_job(ann, "canary")
    assert put(ann, run, "model.pkl", pickle.dumps(Canary(trap))).status_code == 204
    with ann.inside("red").client() as client:
        made = client.models.register_files("canary", folder, aliases=["champion"])
        assert sorted(made["unsafe"]) == ["model.joblib", "weights.bin"]
        assert made["warning"].startswith("unsafe: pickle")
        again = client.models.register_run("canary", run, "model.pkl")
        assert (again["version"], again["unsafe"]) == (2, ["model.pkl"])
        assert again["lineage"]["job"]["name"] == "canary"
        client.models.list(), client.models.get("canary")
        client.models.download("canary@champion", tmp_path / "got")
    got = tmp_path / "got" / "weights.bin"
    assert got.read_bytes() == (folder / "weights.bin").read_bytes()
    shown = platform.cli("model", "show", "canary@1", "--project", "red")
    assert "unsafe: pickle" in shown.stdout, shown.stderr
    assert not trap.exists()
    pickle.loads(got.read_bytes())
    assert trap.exists(), "the trap works"


def test_files_of_a_run_go_in_and_out_whole_or_in_ranges(ann: Caller) -> None:
    run = held_job(ann, "ranges")
    content = os.urandom(700_000)
    answer = put(ann, run, "out/a%20b%23.bin", content)
    tag = f'"{hashlib.sha256(content).hexdigest()}"'
    assert (answer.status_code, answer.headers["etag"]) == (204, tag)
    [folder] = ann.ok("GET", f"/runs/{run}/artifacts")["items"]
    assert (folder["path"], folder["folder"], folder["size"]) == ("out", True, len(content))
    [file] = ann.ok("GET", "/runs/ranges/artifacts?path=out")["items"]
    assert file["path"] == "out/a b#.bin"

    def get(**headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ann.call("GET", f"/runs/{run}/artifacts/out/a%20b%23.bin", headers=named)

    whole = get()
    assert (whole.status_code, whole.content) == (200, content)
    assert whole.headers["content-disposition"].startswith("attachment")
    cases = {
        "bytes=0-9": content[:10], "bytes=699990-": content[-10:], "bytes=-10": content[-10:],
        "bytes=100-899999": content[100:],
    }  # fmt: skip
    for asked, wanted in cases.items():
        part = get(Range=asked)
        assert (part.status_code, part.content) == (206, wanted), asked
    assert get(Range="bytes=700000-").status_code == 416
    assert get(Range="bytes=5-", If_Range='"another"').status_code == 200
    assert get(If_None_Match=tag).status_code == 304
    for odd in ("bytes=9-5", "bytes=-", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b"):
        assert get(Range=odd).content == content, odd
    assert ann.code("DELETE", f"/runs/{run}/artifacts/out") == 204
    assert get().status_code == 404


def test_what_is_another_projects_is_not_there(ann: Caller, bob: Caller, people: People) -> None:
    run = held_job(ann, "walls")
    put(ann, run, "secret.onnx", b"secret")
    ann.ok("POST", "/models/walls/versions", {"run": run})
    calls = [
        ("GET", f"/runs/{run}/artifacts", None),
        ("GET", f"/runs/{run}/artifacts/secret.onnx", None),
        ("DELETE", f"/runs/{run}/artifacts/secret.onnx", None),
        ("GET", "/models/walls", None),
        ("GET", "/models/walls/versions/1", None),
        ("GET", "/models/walls/versions/1/files/secret.onnx", None),
        ("PUT", "/models/walls/aliases/x", {"version": 1}),
        ("DELETE", "/models/walls", None),
        ("POST", "/models/mine/versions", {"run": run}),
    ]
    for method, path, body in calls:
        assert bob.code(method, path, body) == 404, path
    assert put(bob, run, "x", b"x").status_code == 404
    # The bytes' digest alone gives nothing away either: blobs are each project's own.
    digest = hashlib.sha256(b"secret").hexdigest()
    files = [{"path": "x", "digest": digest, "size": 6}]
    answer = bob.call("POST", "/models/mine/versions", {"files": files})
    assert (answer.status_code, answer.json()["error"]["details"]["missing"]) == (409, [digest])
    # In the project: who only looks changes nothing; a member leaves others' runs alone.
    viewer = people.user("vera", project="red", role="viewer")
    assert viewer.code("GET", f"/runs/{run}/artifacts/secret.onnx") == 200
    assert put(viewer, run, "x", b"x").status_code == 403
    member = people.user("mia", project="red", role="member")
    assert put(member, run, "x", b"x").status_code == 403
    assert member.code("DELETE", "/models/walls/versions/1") == 403
    assert member.code("PUT", "/models/walls/aliases/best", {"version": 1}) == 200


def test_a_file_over_the_bound_is_refused(ann: Caller) -> None:
    run = held_job(ann, "large")
    answer = put(ann, run, "x", bytes(9 * 2**20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too-large")
    assert ann.ok("GET", f"/runs/{run}/artifacts")["items"] == []


@pytest.mark.parametrize(
    "path",
    ["..%2f..%2fetc", "a/%2e%2e/%2e%2e/x", "%252e%252e%252fx", "..%5cx", "%2fetc%2fpasswd",
     "a%00b", "file:%2f%2f%2fetc%2fpasswd", "a%0ab"],
)  # fmt: skip
def test_no_path_leads_out(ann: Caller, platform: Platform, path: str) -> None:
    run = ann.call("GET", "/jobs/paths").json().get("id") or held_job(ann, "paths")
    for method, data in (("PUT", b"x"), ("GET", None), ("DELETE", None)):
        status = ann.code(method, f"/runs/{run}/artifacts/{path}", data=data)
        assert status in (404, 422), (method, status)
    assert ann.ok("GET", f"/runs/{run}/artifacts")["items"] == []


def test_registering_again_what_is_the_newest_makes_no_other(ann: Caller, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"1")
    with ann.inside("red").client() as client:
        made = [client.models.register_files("again", tmp_path / "m.onnx") for _ in range(2)]
        assert [each["version"] for each in made] == [1, 1]
        (tmp_path / "m.onnx").write_bytes(b"2")
        assert client.models.register_files("again", tmp_path / "m.onnx")["version"] == 2
        with pytest.raises(NotFound):
            client.models.register_run("again", "no-such-job")


class Cutting:
    """A way to the server that breaks a download off after so many bytes, once."""

    def __init__(self, port: int, after: int) -> None:
        self.port, self.after, self.cuts, self.carried = port, after, 0, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._plugs = [self._listening]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.port))
            self._plugs += [near, far]
            self._threads += [
                threading.Thread(target=self._carry, args=(near, far, False)),
                threading.Thread(target=self._carry, args=(far, near, True)),
            ]
            for thread in self._threads[-2:]:
                thread.start()

    def _carry(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        carried = 0
        try:
            while block := source.recv(65536):
                carried += len(block)
                self.carried += len(block) if answers else 0
                if answers and carried > self.after and not self.cuts:
                    self.cuts += 1
                    break
                target.sendall(block)
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        for plug in self._plugs:
            plug.close()


def test_a_download_that_is_cut_goes_on_where_it_stopped(
    ann: Caller, platform: Platform, tmp_path: Path
) -> None:
    content = os.urandom(6 * 2**20)
    (tmp_path / "big.safetensors").write_bytes(content)
    with ann.inside("red").client() as client:
        client.models.register_files("big", tmp_path / "big.safetensors")
    way = Cutting(platform.port, 4 * 2**20)
    try:
        with Client(
            way.address, access_key=ann.access_key, secret_key=ann.secret_key, project="red"
        ) as client:
            client.models.download("big", tmp_path / "got")
            carried = way.carried
            client.models.download("big", tmp_path / "got")  # all is there: nothing is sent
            assert way.carried - carried < 100_000
    finally:
        way.close()
    assert (tmp_path / "got" / "big.safetensors").read_bytes() == content
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["big.safetensors"]
    assert way.cuts == 1
    assert way.carried < len(content) + 2**21, "what was here was not sent again"


def test_an_upload_killed_in_the_middle_leaves_nothing_to_be_reached(
    tmp_path: Path, platform: Platform, ann: Caller
) -> None:
    run = held_job(ann, "killed")
    token = People(platform).token(ann, "write", name="upload").token
    head = (
        f"PUT /api/v1/runs/{run}/artifacts/half.bin HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: 4000000\r\n\r\n"
    )

    def drafts() -> list[Path]:
        found = platform.home.glob("blobs/*/drafts/*")
        return [path for path in found if path.stat().st_size >= 2**20]

    with socket.create_connection(("127.0.0.1", platform.port), 60) as plug:
        plug.sendall(head.encode() + bytes(3_000_000))
        wait_for(drafts, 60, "some of it is on the disk")
        platform.kill()
    platform.start()
    try:
        assert ann.ok("GET", f"/runs/{run}/artifacts")["items"] == []
        assert ann.code("GET", f"/runs/{run}/artifacts/half.bin") == 404
        assert len(drafts()) == 1  # the sweep takes it when it is old
        assert put(ann, run, "half.bin", b"whole").status_code == 204
    finally:
        for draft in drafts():
            draft.unlink()


def test_the_command_line_registers_shows_compares_and_gets(
    platform: Platform, ann: Caller, tmp_path: Path
) -> None:
    def cli(*words: str, fails: bool = False) -> str:
        done = platform.cli("model", *words, "--project", "red", cwd=tmp_path)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stdout if not fails else done.stderr

    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "a.onnx").write_bytes(b"one")
    made = json.loads(cli("register", "net", "--as", "cli", "--alias", "champion", "-o", "json"))
    assert (made["version"], made["format"], made["aliases"]) == (1, "onnx", ["champion"])
    (tmp_path / "net" / "a.onnx").write_bytes(b"other")
    assert cli("register", "net", "--as", "cli").startswith("cli@2")
    assert "version 2" in cli("alias", "cli", "2", "Production")
    told = json.loads(cli("diff", "cli@champion", "cli@Production", "-o", "json"))
    assert [file["change"] for file in told["files"]] == ["changed"]
    cli("get", "cli@champion", "out")
    assert (tmp_path / "out" / "a.onnx").read_bytes() == b"one"
    moves = json.loads(cli("show", "cli", "-o", "json"))["moves"]
    assert [(move["alias"], move["user"]) for move in moves] == [
        ("Production", "owner"), ("champion", "owner"),
    ]  # fmt: skip
    cli("rm", "cli@1")
    assert "cli" in cli("ls", "-o", "name")
    assert "no model 'nothing'" in cli("show", "nothing", fails=True)
