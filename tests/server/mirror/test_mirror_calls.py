"""The calls of a worker that mirrors, to a real server, with a real attempt's token: what is not
its own, not known or not well-formed is refused in words; an attempt that is over is fenced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from windlass.client import Job
from windlass.job.manifest import digest_of_list
from windlass.testing.platform import Platform, read_json, wait_for

pytestmark = pytest.mark.slow
DATA = b"weights" * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()


class Caller:
    """Speaks for a job's newest attempt with its worker's own token."""

    def __init__(self, platform: Platform, job: Job) -> None:
        self.platform, self.job = platform, job
        self.folder: Path = platform.attempts(job)[-1]
        self.token = (self.folder / "token").read_text()
        self.launch = read_json(self.folder / "launch.json")
        self.node = self.launch["node"]

    def call(self, method: str, path: str, content: bytes = b"", **words: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        with httpx.Client(trust_env=False, timeout=120, headers=headers) as client:
            address = f"{self.platform.url}/api/v1/worker/{path}"
            return client.request(method, address, content=content, params=words or None)

    def put(self, path: str, content: bytes, **words: Any) -> httpx.Response:
        return self.call("PUT", path, content, node=self.node, **words)

    def announce(self, **changes: Any) -> httpx.Response:
        listed = [{"path": "model.bin", "bytes": len(DATA), "digest": DIGEST}]
        manifest = {
            "api": 1, "job_id": self.job.id, "attempt": self.launch["attempt"], "step": 3,
            "created_ms": 1, "files": listed, "digest": digest_of_list(listed), **changes,
        }  # fmt: skip
        body = {"attempt": self.launch["attempt"], "node": self.node, "manifest": manifest}
        return self.platform.call("POST", "/worker/checkpoints", body, token=self.token)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("mirror") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def caller(platform: Platform) -> Caller:
    job = platform.witness("until", platform.gate(), name="one")
    wait_for(lambda: platform.said(job, "began"), 60, "the rank runs")
    return Caller(platform, job)


def test_bytes_land_where_the_server_reads_them(caller: Caller) -> None:
    path = "mirror/logs/worker-0-9.out.000001.log"
    assert caller.put(path, b"one\n").json() == {"bytes": 4}
    assert caller.put(path, b"one\ntwo\n", offset=0).json() == {"bytes": 8}
    assert caller.put(path, b"late", offset=80).json() == {"bytes": 8}
    assert (caller.folder / path[len("mirror/") :]).read_bytes() == b"one\ntwo\n"
    assert caller.call("DELETE", path, node=caller.node).status_code == 204
    assert not (caller.folder / path[len("mirror/") :]).exists()


@pytest.mark.parametrize(
    ("path", "words", "status", "said"),
    [
        ("mirror/token", {}, 422, "path: worker.json"),
        ("mirror/out/%2e%2e/token", {}, 422, "path"),
        ("mirror/out/a", {"offset": -1}, 422, "offset: from 0"),
        ("mirror/out/a", {"offset": 2**62}, 413, "may have"),
        ("mirror/exit.json", {"offset": 3}, 422, "comes whole"),
        ("mirror/out/a", {"cut": "maybe"}, 422, "cut"),
        ("mirror/out/a", {"other": "1"}, 422, "other"),
        (f"checkpoints/{'0' * 64}/{'1' * 64}", {"bytes": 5}, 404, "announced"),
        (f"checkpoints/{'0' * 64}/{'1' * 64}", {"bytes": -5}, 404, "announced"),
        ("checkpoints/short/short", {"bytes": 5}, 422, "digest"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    caller: Caller, path: str, words: dict[str, Any], status: int, said: str
) -> None:
    answer = caller.put(path, b"x", **words)
    assert answer.status_code == status, answer.text
    assert said in answer.text


def test_another_nodes_or_a_users_credential_or_too_much_is_refused(caller: Caller) -> None:
    elsewhere = caller.call("PUT", "mirror/out/a", b"x", node="elsewhere")
    assert elsewhere.status_code == 404 and "elsewhere" in elsewhere.text
    assert caller.call("PUT", "mirror/out/a", b"x", node="..").status_code == 404
    assert caller.call("PUT", "mirror/out/a", b"x").status_code == 422
    assert caller.put("mirror/out/a", b"x" * (8 * 2**20 + 1)).status_code == 413
    assert not (caller.folder / "out" / "a").exists()
    mine = caller.platform.call("PUT", f"/worker/mirror/out/a?node={caller.node}")
    assert mine.status_code == 403
    assert caller.call("DELETE", "mirror/exit.json", node=caller.node).status_code == 422


def test_a_checkpoint_counts_once_all_of_it_has_come(caller: Caller) -> None:
    saved = caller.platform.client.checkpoints
    told = caller.announce().json()
    assert told == {"kept": False, "missing": [{"digest": DIGEST, "bytes": 7000, "offset": 0}]}
    assert saved.list(caller.job.id) == []
    listed = [{"path": "model.bin", "bytes": len(DATA), "digest": DIGEST}]
    digest = digest_of_list(listed)
    place = f"checkpoints/{digest}/{DIGEST}"
    assert caller.put(place, DATA[:100], bytes=7000).json() == {"bytes": 100}
    assert caller.announce().json()["missing"][0]["offset"] == 100
    assert caller.put(place, DATA[100:], bytes=7000, offset=100).json() == {"bytes": 7000}
    assert caller.announce().json() == {"kept": True, "missing": []}
    assert caller.announce().json() == {"kept": True, "missing": []}
    assert [each["step"] for each in saved.list(caller.job.id)] == [3]
    assert caller.announce(attempt=9).status_code == 409

    items = caller.call("GET", "checkpoints").json()["items"]
    assert [each["path"] for each in items] == ["step-000000000003-000001"]
    assert caller.call("GET", f"checkpoints/{digest}").json()["files"] == listed
    assert caller.call("GET", place).content == DATA
    assert caller.call("GET", place, offset=5, limit=9).content == DATA[5:14]
    assert caller.call("GET", place, offset=9999).content == b""
    assert caller.call("GET", f"checkpoints/{'0' * 64}").status_code == 404
    assert caller.call("GET", f"checkpoints/{digest}/{'0' * 64}").status_code == 404
    assert caller.call("GET", place, limit=0).status_code == 422


def test_an_attempt_that_is_over_writes_nothing_any_more(platform: Platform) -> None:
    job = platform.witness("exit", 0, name="over")
    platform.wait(job)
    caller = Caller(platform, job)
    before = (caller.folder / "exit.json").read_bytes()
    for answer in (
        caller.put("mirror/exit.json", b"{}"),
        caller.put("mirror/out/a", b"x"),
        caller.call("DELETE", "mirror/out/a", node=caller.node),
        caller.announce(),
        caller.put(f"checkpoints/{'0' * 64}/{'1' * 64}", b"x", bytes=5),
        caller.call("GET", "checkpoints"),
        caller.call("GET", f"checkpoints/{'0' * 64}"),
        caller.call("GET", f"checkpoints/{'0' * 64}/{'1' * 64}"),
    ):
        assert answer.status_code == 409 and answer.json()["error"]["code"] == "fenced"
    assert (caller.folder / "exit.json").read_bytes() == before
    assert not (caller.folder / "out" / "a").exists()
