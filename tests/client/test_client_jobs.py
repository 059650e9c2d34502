"""Verbs of jobs: following across breaks, waiting without polling, changing parameters."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from standin import ACCESS_KEY, SECRET_KEY, StandIn

from windlass.client import Client, Job
from windlass.client.jobs import DONE, STATES
from windlass.core.jobs import TERMINAL, JobState, JobView


def test_a_job_has_the_fields_of_the_servers_view() -> None:
    mine = set(Job.__dataclass_fields__) - {"data"}
    assert mine == set(JobView.model_fields)
    assert set(STATES) == {str(state) for state in JobState}
    assert set(DONE) == {str(state) for state in TERMINAL}


def test_a_field_from_a_newer_server_is_kept_and_breaks_nothing(server: StandIn) -> None:
    job = Job.read({**server.job(), "shiny": 1})
    assert job.data["shiny"] == 1


def test_submit_takes_fields_or_a_mapping_and_adds_the_project(
    client: Client, server: StandIn
) -> None:
    client.jobs.submit({"run": ["a"]}, workers=2)
    spec = next(iter(server.jobs.values()))["spec"]
    assert spec == {"run": ["a"], "workers": 2}, "the key has a project of its own"
    key = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    with Client(server.url, project="vision", **key) as other:
        other.jobs.submit({"run": ["a"]}, workers=2)
    assert [*server.jobs.values()][-1]["spec"]["project"] == "vision"


def test_code_is_sent_only_when_the_server_lacks_it(
    client: Client, server: StandIn, tmp_path: Any
) -> None:
    (tmp_path / "project" / "train.py").write_text("print(1)")
    client.jobs.submit(run=["python", "train.py"], code=".")
    first = list(server.requests)
    client.jobs.submit(run=["python", "train.py"], code=".")
    assert [r[0] for r in first] == ["POST", "POST", "PUT", "POST", "POST"]
    assert len(server.requests) - len(first) == 1, "the second submit is one request"
    assert list(server.blobs.values()) == [b"print(1)"]


def test_a_list_goes_over_as_many_pages_as_it_takes(client: Client, server: StandIn) -> None:
    for _ in range(7):
        server.job()
    assert len(client.jobs.list(limit=5)) == 5
    names = [job.name for job in client.jobs.list(limit=1000)]
    assert names == [f"brisk-otter-{n}" for n in reversed(range(7))]


def test_a_stream_that_breaks_goes_on_from_its_cursor(client: Client, server: StandIn) -> None:
    job = server.job("running")
    for event, data in (
        ("log", {"n": 1}), ("break", {}), ("log", {"n": 2}), ("break", {}), ("end", {}),
    ):  # fmt: skip
        server.say(job["id"], event, data)
    breaks: list[Exception] = []
    stream = client.jobs.stream(job["id"], broken=breaks.append)
    seen = [(message.event, message.json().get("n")) for message in stream]
    assert seen == [("log", 1), ("log", 2), ("end", None)]
    assert len(breaks) == 2


def test_wait_returns_when_the_feed_tells_the_end(client: Client, server: StandIn) -> None:
    job = server.job("running")
    timer = threading.Timer(0.1, server.finish, (job["id"], "failed"), {"exit_code": 3})
    timer.start()
    done = client.jobs.wait(job["id"], timeout_seconds=60)
    timer.join()
    assert (done.state, done.exit_code) == ("failed", 3)
    assert len(server.paths()) <= 5, "nobody polls"


def test_wait_gives_up_when_told_to_though_the_feed_says_it_is_alive(
    client: Client, server: StandIn
) -> None:
    job = server.job("running")
    server.ping_seconds = 0.05
    with pytest.raises(TimeoutError, match="is running after"):
        client.jobs.wait(job["id"], timeout_seconds=0.2)
    with server.changed:
        server.jobs[job["id"]]["state"] = "succeeded"
        server.changed.notify_all()


def test_rerun_changes_declared_params_and_words_of_the_command(
    client: Client, server: StandIn
) -> None:
    spec = {"run": ["python", "t.py", "--lr", "0.1"], "params": {"epochs": 3}, "roles": {}}
    old = server.job("succeeded", spec=spec)
    new = client.jobs.rerun(old["id"], params={"lr": 0.5, "epochs": 9})
    made = server.jobs[new.id]["spec"]
    assert made["run"] == ["python", "t.py", "--lr", "0.5"]
    assert made["params"] == {"epochs": 9}
    assert new.rerun_of == old["id"]
