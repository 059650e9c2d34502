"""Workers' messages that come twice, late, disordered, or from an attempt that is over: R-F24."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from windlass.client import Job
from windlass.testing.platform import Platform, read_json, wait_for

FAR = 1_000_000
"""A number that the real worker does not reach here."""


class Impostor:
    """Speaks for a job's newest attempt with its worker's own token."""

    def __init__(self, platform: Platform, job: Job) -> None:
        self.platform = platform
        self.job = job
        self.folder: Path = platform.attempts(job)[-1]
        self.token = (self.folder / "token").read_text()
        self.launch = read_json(self.folder / "launch.json")

    def post(self, what: str, seq: int, **body: Any) -> httpx.Response:
        whole = {
            "attempt": self.launch["attempt"], "seq": seq, "node": self.launch["node"], **body,
        }  # fmt: skip
        return self.platform.call("POST", f"/worker/{what}", whole, token=self.token)

    def notes(self) -> list[str]:
        events = self.platform.client.jobs.events(self.job.id)
        return [event["reason"] for event in events if event["kind"] == "note"]

    def record(self, outcome: str, exit_code: int, **fields: Any) -> dict[str, Any]:
        return {
            "attempt_id": self.launch["attempt_id"], "attempt": self.launch["attempt"],
            "node": self.launch["node"], "outcome": outcome, "reason": "said the impostor",
            "ranks": [
                {"role": "worker", "index": 0, "local_rank": 0, "rank": 0, "exit": exit_code,
                 "signal": None, "ended_by": "itself", "ended_ms": 1},
            ],
            **fields,
        }  # fmt: skip


@pytest.fixture
def impostor(shared: Platform) -> Impostor:
    job = shared.witness("until", shared.gate(), retry={"backoff": "50ms"})
    shared.wait_state(job, "running")
    wait_for(lambda: shared.said(job, "began"), 20, "the rank runs")
    return Impostor(shared, job)


def end(impostor: Impostor) -> Job:
    impostor.platform.gate().touch()
    return impostor.platform.wait(impostor.job)


def test_r_f24_a_repeated_or_late_report_changes_nothing(impostor: Impostor) -> None:
    def beat(seq: int, text: str) -> int:
        return impostor.post("beat", seq, notes=[{"kind": "note", "text": text}]).status_code

    assert beat(FAR + 2, "two") == 200
    assert beat(FAR + 2, "two again") == 200
    assert beat(FAR + 1, "one, late") == 200
    assert beat(0, "nought") == 200
    assert beat(FAR + 3, "three") == 200
    assert impostor.notes() == ["two", "three"]
    assert end(impostor).state == "succeeded"


def test_r_f24_spool_lines_sent_again_count_once(impostor: Impostor) -> None:
    lines = [
        {"t": step, "kind": "metric", "step": step, "values": {"loss": 1.0}} for step in range(7)
    ]
    for _ in range(3):
        answer = impostor.post("spool", FAR, rank=0, offset=0, end=500, lines=lines[:5])
        assert answer.status_code == 200, answer.text
    more = impostor.post("spool", FAR + 1, rank=0, offset=500, end=1000, lines=lines[5:])
    assert more.json() == {"offset": 1000}
    late = impostor.post("spool", FAR + 2, rank=0, offset=0, end=500, lines=lines[:5])
    assert late.json() == {"offset": 1000}
    [series] = impostor.platform.client.jobs.metrics(impostor.job.id, key="loss")
    assert len(series["points"]) == 7
    assert end(impostor).state == "succeeded"


def test_r_f24_an_attempt_that_is_over_is_refused_whatever_it_says(impostor: Impostor) -> None:
    platform, job = impostor.platform, impostor.job
    run_token = environment(platform.said(job, "began")[0]["pid"])["WINDLASS_TOKEN"]
    platform.client.jobs.restart(job.id)
    wait_for(lambda: len(platform.said(job, "began")) == 2, 30, "the next attempt runs")
    platform.wait_state(job, "running")
    before = platform.client.jobs.events(job.id)
    checkpoint = {"attempt": 1, "step": 9, "path": "/nowhere", "digest": "0" * 64}
    answers = {
        "beat": impostor.post("beat", FAR, notes=[{"kind": "note", "text": "I live"}]),
        "started": impostor.post("started", FAR + 1, ranks=[]),
        "spool": impostor.post("spool", FAR + 2, rank=0, offset=0, end=9, lines=[{}]),
        "ended": impostor.post("ended", FAR + 3, record=impostor.record("failed", 1)),
        "ended of the next": impostor.post(
            "ended", FAR + 4, attempt=2, record=impostor.record("failed", 1, attempt=2)
        ),
        "register": impostor.post(
            "register", FAR + 5, host="127.0.0.1", boot_id="b", pid=1,
            members=[{"role": "worker", "index": 0, "ports": [9]}],
        ),
        "orders": platform.call("GET", "/worker/orders?node=local", token=impostor.token),
        "rendezvous": platform.call("GET", "/worker/rendezvous?node=local", token=impostor.token),
        "bundle": platform.call("GET", "/worker/bundle", token=impostor.token),
        "checkpoint": platform.call("POST", "/run/checkpoints", checkpoint, token=run_token),
        "as a user": platform.call("GET", "/jobs", token=impostor.token),
    }  # fmt: skip
    found = {name: (a.status_code, a.json()["error"]["code"]) for name, a in answers.items()}
    as_user = found.pop("as a user")
    assert as_user[0] in (401, 403)
    assert set(found.values()) == {(409, "fenced")}, found
    assert platform.client.jobs.events(job.id) == before
    assert platform.client.jobs.checkpoints(job.id) == []
    assert platform.client.jobs.metrics(job.id) == []
    over = end(impostor)
    assert (over.state, over.attempt) == ("succeeded", 2)


def test_r_f24_a_token_speaks_for_its_own_attempt_and_node_only(impostor: Impostor) -> None:
    other_attempt = impostor.post("beat", FAR, attempt=7)
    assert other_attempt.json()["error"]["code"] == "fenced"
    other_node = impostor.post("beat", FAR, node="elsewhere")
    assert other_node.status_code == 404
    early = impostor.post("ended", FAR, record=impostor.record("failed", 1, attempt_id="0" * 32))
    assert early.json()["error"]["code"] == "fenced"
    assert impostor.platform.client.jobs.get(impostor.job.id).state == "running"
    assert end(impostor).state == "succeeded"


def test_r_f24_the_first_exit_record_stands(impostor: Impostor) -> None:
    platform, job = impostor.platform, impostor.job
    over = end(impostor)
    assert (over.state, over.exit_code) == ("succeeded", 0)
    late = impostor.post("ended", FAR, record=impostor.record("failed", 1))
    assert late.status_code == 409
    assert platform.client.jobs.get(job.id).state == "succeeded"


def environment(pid: int) -> dict[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(line.split("=", 1) for line in raw.split("\0") if "=" in line)
