"""What comes with the token of a worker or of a run is as foreign as what a user sends: of any
wrong type, size or place it is refused (4xx) or left out, and hides nothing that is true."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from windlass.server.jobs.reports import MOST_NOTES
from windlass.testing.platform import Platform, read_json, wait_for

WRONG: list[Any] = [
    None, -1, 2**31, 2**63 - 1, 2**80, 1e300, "", "x" * 70_000, "\0", "\x1b[2J", "../..", "yes",
    [], [[]], {}, {"kind": {}}, [None], ["x", 1], {"": []}, [{"role": 1}],
]  # fmt: skip


EMPTY = hashlib.sha256(b"").hexdigest()


class Insider:
    """Who holds the tokens of an attempt that runs."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.job = platform.witness("until", platform.gate(), retry={"times": 0})
        platform.wait_state(self.job, "running")
        wait_for(lambda: platform.said(self.job, "began"), 60, "the rank runs")
        folder = platform.attempts(self.job)[-1]
        self.launch = read_json(folder / "launch.json")
        self.worker = (folder / "token").read_text()
        pid = platform.said(self.job, "began")[0]["pid"]
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        [self.run] = [word[15:].decode() for word in words if word.startswith(b"WINDLASS_TOKEN=")]
        self.seq = 10**6
        self.http = httpx.Client(base_url=platform.url, trust_env=False, timeout=60)
        self.folder = platform.home / "jobs" / self.job.id / "checkpoints"

    def post(self, path: str, body: Any, token: str) -> httpx.Response:
        head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        text = json.dumps(body)
        return self.http.post(f"/api/v1{path}", content=text.encode(), headers=head)

    def report(self, what: str, **body: Any) -> httpx.Response:
        self.seq += 1
        return self.post(f"/worker/{what}", {**self.base(), **body}, self.worker)

    def base(self) -> dict[str, Any]:
        return {"attempt": 1, "seq": self.seq, "node": self.launch["node"]}

    def checkpoint(self, step: int, attempt: int = 1) -> dict[str, Any]:
        path = self.folder / f"step-{step:012d}-{attempt:06d}"
        return {"attempt": attempt, "step": step, "path": str(path), "digest": "0" * 64}

    def bodies(self) -> dict[str, Any]:
        """Of each route that takes JSON, a body that has all there is."""
        rank = {"rank": 0, "role": "worker", "index": 0, "local_rank": 0}
        note = {"kind": "note", **rank, "text": "t", "reason": "r", "bytes": 1, "idle_ms": 1,
                "path": "p", "whole_node": False, "given_up": False}  # fmt: skip
        kinds = ("note", "hung", "dropped", "bad-checkpoint", "rank-back", "checkpoint-verified",
                 "checkpoint-gone")  # fmt: skip
        minute = {"rank": 0, "minute_ms": 60_000, "names": ["cpu"], "data": ""}
        metric = {"kind": "metric", "step": 1, "values": {"loss": 1.0}, "t": 1}
        ended = {**rank, "exit": 0, "signal": None, "ended_by": "itself", "ended_ms": 1,
                 "first_loss": {"exit": 1}, "matched": ["x"], "oom": False}  # fmt: skip
        listed = [{"path": "a", "bytes": 1, "digest": "0" * 64}]
        manifest = {"attempt": 1, "step": 1, "digest": "0" * 64, "files": listed}
        record = {
            "attempt_id": self.launch["attempt_id"], "attempt": 1, "node": self.launch["node"],
            "outcome": "nonsense", "reason": "r", "ranks": [ended], "survivors": [1],
            "first_failure": {**rank, "exit": 1}, "advice": "a",
        }  # fmt: skip
        lines = [metric, {"kind": "checkpoint", **self.checkpoint(9)}, {"kind": "progress"}]
        return {
            "/worker/register": {
                "host": "127.0.0.1", "boot_id": "b", "pid": 1, "isolation": {"level": 0},
                "members": [{"role": "worker", "index": 0, "ports": [1]}],
                "checkpoints": [self.checkpoint(8)],
            },
            "/worker/started": {"ranks": [{**rank, "pid": 1}]},
            "/worker/beat": {
                "sent_ms": 1, "ranks": [{**rank, "step": 1, "cpu_ms": 1, "rss_bytes": 1}],
                "usage": {"minutes": [minute]}, "notes": [{**note, "kind": k} for k in kinds],
            },
            "/worker/spool": {"rank": 0, "offset": 0, "end": 9, "lines": lines},
            "/worker/orders/1": {"ok": True, "result": {"ranks": [{"rank": 0}], "error": "e"}},
            "/worker/code": {"commit": "0" * 40},
            "/worker/checkpoints": {"manifest": manifest},
            "/run/checkpoints": {**self.checkpoint(7), "bytes": 1, "ranks": 1, "source": "files",
                                 "mirrored": False},
            "/worker/ended": {"record": record},
        }  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of everything in a body, where it stands."""
    if at:
        yield at
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from places(inner, (*at, key))


def put(body: Any, at: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(body)
    inner = changed
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return changed


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("evidence") / "home") as found:
        yield found


@pytest.fixture
def insider(platform: Platform) -> Iterator[Insider]:
    found = Insider(platform)
    yield found
    found.http.close()
    platform.client.jobs.stop(found.job.id, now=True)
    platform.wait(found.job)


def looked_at(insider: Insider) -> None:
    """All that shows a job can still be read."""
    for what in ("", "/why", "/events", "/checkpoints", "/system", "/metrics", "/logs"):
        answer = insider.platform.call("GET", f"/jobs/{insider.job.id}{what}")
        assert answer.status_code == 200, (what, answer.text)


def test_no_wrong_type_in_any_report_is_a_fault_of_the_server(insider: Insider) -> None:
    for path, body in insider.bodies().items():
        token = insider.run if path.startswith("/run") else insider.worker
        for at in places(body):
            for value in WRONG:
                insider.seq += 1
                sent = {**insider.base(), **put(body, at, value)}
                answer = insider.post(path, sent, token)
                assert answer.status_code < 500, (path, at, str(value)[:40], answer.text)
                assert answer.status_code != 409, (path, at, str(value)[:40], "not to be seen")
        for value in (*WRONG, "{"):
            assert insider.post(path, value, token).status_code < 500
    looked_at(insider)
    assert "Traceback" not in insider.platform.log()


def test_no_number_or_name_in_an_address_is_a_fault_of_the_server(insider: Insider) -> None:
    head = {"Authorization": f"Bearer {insider.worker}"}
    words = ["-1", "0", "1e3", str(2**63), str(2**80), "x" * 900, "%00", "..%2F..", "%1b%5b2J", ""]
    node, digest = insider.launch["node"], "0" * 64
    for word in words:
        for method, path in (
            ("GET", f"/worker/rendezvous?node={word}"), ("GET", f"/worker/blobs/{word}"),
            ("GET", f"/worker/orders?node={node}&after={word}&wait=0"),
            ("GET", f"/worker/orders?node={word}&wait={word}"),
            ("GET", f"/worker/checkpoints/{word}"), ("POST", f"/worker/orders/{word}"),
            ("GET", f"/worker/checkpoints/{digest}/{digest}?offset={word}&limit={word}"),
            ("PUT", f"/worker/checkpoints/{digest}/{digest}?node={node}&bytes={word}"),
            ("PUT", f"/worker/checkpoints/{digest}/{digest}?node={node}&bytes=9&offset={word}"),
            ("PUT", f"/worker/mirror/out/{word}?node={node}"),
            ("PUT", f"/worker/mirror/out/x?node={word}&offset={word}&cut={word}"),
            ("PUT", f"/worker/mirror/out/y?node={node}&offset={word}&cut=true"),
            ("PUT", f"/worker/mirror/exit.json?node={node}&offset={word}"),
            ("DELETE", f"/worker/mirror/out/{word}?node={node}"),
        ):  # fmt: skip
            if word == "0" and "exit.json" in path:
                continue  # a record, and the first one stands
            answer = insider.http.request(method, f"/api/v1{path}", headers=head)
            assert answer.status_code < 500, (method, path, answer.text)
    assert "Traceback" not in insider.platform.log()


def test_a_manifest_of_another_form_is_refused(insider: Insider) -> None:
    def announce(*paths: str, step: int = 1, **more: Any) -> httpx.Response:
        listed = [{"path": path, "bytes": 0, "digest": EMPTY} for path in sorted(paths)]
        text = json.dumps(listed, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        whole = {"attempt": 1, "step": step, "digest": digest, "files": listed, **more}
        return insider.report("checkpoints", manifest=whole)

    for answer in (
        announce("a", "a/b"), announce("n" * 256), announce("a", step=10**16), announce("../a"),
        announce("a", path="/".join(["d" * 200] * 5)), announce("a", path=f".windlass/{1}"),
    ):  # fmt: skip
        assert answer.status_code == 422, answer.text
    assert announce("a", "deep/b").status_code == 200


def test_a_checkpoint_lies_where_its_job_saves_them(insider: Insider) -> None:
    """Whatever else stood in the list would stand before those that are there."""
    true = insider.checkpoint(5)
    for wrong in (
        {"path": "/nowhere"}, {"path": str(insider.folder)}, {"step": 6}, {"step": 2**62},
        {"path": f"{insider.folder}/../x"}, {"path": str(insider.folder / "step-5")},
        {"source": "files"}, {"source": "files", "path": str(insider.folder / "model.pt")}, {},
    ):  # fmt: skip
        answer = insider.post("/run/checkpoints", {**true, **wrong}, insider.run)
        assert answer.status_code == 422, (wrong, answer.text)
    far = {**true, "path": true["path"].replace("/jobs/", "/../x/jobs/")}
    assert insider.post("/run/checkpoints", far, insider.run).status_code == 422
    other = insider.checkpoint(5, attempt=2)
    assert insider.post("/run/checkpoints", other, insider.run).status_code == 409
    assert insider.platform.client.jobs.checkpoints(insider.job.id) == []


def test_notes_are_bounded(insider: Insider) -> None:
    notes = [{"kind": "note", "text": f"{n}"} for n in range(700)]
    for _ in range(3):
        assert insider.report("beat", notes=notes).status_code == 200
    events: list[Any] = []
    while page := insider.platform.client.jobs.events(
        insider.job.id, after=events[-1]["seq"] if events else None
    ):
        events += page
    kept = [event for event in events if event["kind"] == "note"]
    assert len(kept) == MOST_NOTES
    assert "this is the last" in kept[-1]["reason"]
    huge = [{"kind": "note", "text": "x", "more": "y" * 5_000_000}]
    assert insider.report("beat", notes=huge).status_code == 422
    stacks = [{"rank": n, "text": "s" * 30_000} for n in range(64)]
    hung = [{"kind": "hung", "rank": 0, "idle_ms": 1, "stacks": stacks}]
    assert insider.report("beat", notes=hung).status_code == 200, "all that a gang has"
