"""Two projects on one server: nothing of the one is seen, named or used from the other."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from windlass.core.signing import sign
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

SECRET = "zebra-crossing"
"""A word that stands in everything of the project red, and nowhere in what blue may see."""


class Two:
    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.people = People(platform)
        for name in ("red", "blue"):
            self.people.project(name)
        self.ann = self.people.user("ann-zebra", project="red", role="member")
        self.bob = self.people.user("bob", project="blue", role="maintainer")
        script = (
            "import os, time; print('zebra-crossing in', os.environ['WINDLASS_PROJECT'], "
            "flush=True); time.sleep(900)"
        )
        self.running = self.submit(self.ann, [sys.executable, "-c", script], name=f"{SECRET}-1")
        self.held = self.submit(self.ann, ["echo", SECRET], name=f"{SECRET}-2", hold=True)
        self.ann.ok("PUT", "/me/secrets/ZEBRA", {"value": SECRET})

        def told() -> bool:
            return SECRET in self.ann.call("GET", f"/jobs/{self.running}/logs").text

        wait_for(told, 60, "it runs")

    def submit(self, who: Caller, run: list[str], **spec: Any) -> str:
        return str(who.ok("POST", "/jobs", {"spec": {"run": run, **spec}})["id"])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with Platform(tmp_path_factory.mktemp("tenants") / "home") as platform:
        yield Two(platform)


def test_no_list_and_no_view_of_the_other_project_holds_a_word_of_this_one(two: Two) -> None:
    for path in (
        "/jobs", "/jobs?limit=1000&state=running", f"/jobs?name={SECRET}-1",
        "/jobs?user=ann-zebra",
        "/nodes", "/status", "/queues", "/queues/default", "/queues/default/jobs", "/quotas",
        "/limits", "/projects", "/projects/blue", "/secrets", "/keys", "/tokens", "/usage",
        "/usage/entries", "/audit", "/whoami",
    ):  # fmt: skip
        answer = two.bob.call("GET", path)
        assert answer.status_code == 200, path
        for word in (SECRET, "zebra", two.running, two.held):
            assert word not in answer.text.lower(), f"{path} tells {word}"
    mine = two.ann.call("GET", "/queues/default/jobs").text
    assert SECRET in mine, "what is one's own is told"


def test_where_the_server_lives_is_told_to_its_administrators_alone(two: Two) -> None:
    home = str(two.platform.home)
    viewer = two.people.user("vera", project="blue", role="viewer")
    auditor = two.people.user("aud", org_role="auditor")
    for who in (two.ann, two.bob, viewer, auditor):
        status = who.call("GET", "/status")
        assert status.json()["home"] is None and home not in status.text, who.name
    assert two.people.owner.ok("GET", "/status")["home"] == home
    assert two.ann.ok("GET", "/status")["isolation"]["shared"] is True


def test_asking_for_the_other_project_by_name_tells_nothing_either(two: Two) -> None:
    for path in (
        "/jobs?project=red", "/usage?project=red", "/usage?by=job&project=red",
        "/usage?by=user&user=ann-zebra", f"/usage?job={two.running}", "/usage/entries?project=red",
        "/usage/budgets", "/audit?user=ann-zebra", "/keys?user=ann-zebra",
        "/tokens?user=ann-zebra",
        f"/feed?job={two.running}",
    ):  # fmt: skip
        answer = two.bob.call("GET", path)
        assert answer.status_code in (200, 403, 404), path
        told = answer.text.lower().replace("no user ann-zebra", "")
        assert "zebra" not in told or answer.status_code == 404, f"{path} tells {told}"
        if answer.status_code == 200:
            assert two.running not in answer.text, path


def test_a_job_knows_the_project_that_it_is_of(two: Two) -> None:
    assert two.ann.call("GET", f"/jobs/{two.running}/logs").text.split() == [SECRET, "in", "red"]
    assert two.ann.ok("GET", f"/jobs/{two.running}")["spec"]["project"] == "red"


def test_a_stranger_sees_that_the_line_is_long_and_not_who_stands_in_it(two: Two) -> None:
    line = two.bob.ok("GET", "/queues/default/jobs")
    theirs = [job for job in line["running"] + line["waiting"] if job["name"] is None]
    assert len(theirs) == 2 and all(job["id"] is job["user"] is None for job in theirs)
    nodes = two.bob.ok("GET", "/nodes")["items"]
    assert [job for node in nodes for job in node["jobs"]] == [
        {"id": None, "name": None, "members": 1}
    ]


def test_by_id_by_prefix_and_by_name_another_projects_job_is_not_there(two: Two) -> None:
    for ref in (two.running, two.running[:8], f"{SECRET}-1", two.held):
        for method, path, body in (
            ("GET", f"/jobs/{ref}", None), ("GET", f"/jobs/{ref}/logs", None),
            ("GET", f"/jobs/{ref}/stream", None), ("GET", f"/jobs/{ref}/events", None),
            ("GET", f"/jobs/{ref}/why", None), ("GET", f"/jobs/{ref}/metrics", None),
            ("GET", f"/jobs/{ref}/checkpoints", None), ("GET", f"/feed?job={ref}", None),
            ("POST", f"/jobs/{ref}/stop", {}), ("POST", f"/jobs/{ref}/rerun", {}),
            ("POST", f"/jobs/{ref}/release", {}), ("POST", f"/jobs/{ref}/restart", {}),
            ("POST", f"/jobs/{ref}/priority", {"priority": 1}),
            ("POST", f"/jobs/{ref}/debug", {"kind": "stack"}), ("DELETE", f"/jobs/{ref}", None),
        ):  # fmt: skip
            answer = two.bob.call(method, path, body)
            unknown = two.bob.call(method, path.replace(ref, "f" * len(ref)), body)
            assert answer.status_code == unknown.status_code == 404, path
            assert answer.json()["error"]["message"].replace(ref, "") == unknown.json()["error"][
                "message"
            ].replace("f" * len(ref), ""), "as one that does not exist"


def test_the_table_of_runs_has_none_of_another_project(two: Two) -> None:
    for query in ("", f"?id={two.running}", "?filter=status%20!%3D%20x", "?sort=name&limit=1000"):
        found = two.bob.ok("GET", f"/runs{query}")
        assert two.running not in {item["id"] for item in found["items"]}
        assert SECRET not in str(found)


def test_a_job_cannot_wait_for_another_projects_job(two: Two) -> None:
    for ref in (two.held, "0" * 32):
        body = {"spec": {"run": ["true"], "after": [ref]}}
        answer = two.bob.call("POST", "/jobs", body)
        assert answer.status_code == 422 and "no job" in answer.json()["error"]["message"]


def test_code_of_another_project_is_neither_there_nor_to_be_guessed(two: Two) -> None:
    content = f"print('{SECRET}')".encode()
    digest = hashlib.sha256(content).hexdigest()
    named = {"Content-Type": "application/octet-stream"}
    manifest = {"files": [{"path": "a.py", "digest": digest, "size": len(content)}]}
    assert two.ann.ok("POST", "/bundles", manifest)["missing"] == [digest]
    assert two.ann.code("PUT", f"/blobs/{digest}", data=content, headers=named) == 204
    bundle = two.ann.ok("POST", "/bundles", manifest)
    assert bundle["missing"] == []
    assert two.bob.ok("POST", "/bundles", manifest)["missing"] == [digest], (
        "who names a digest still has to have the bytes"
    )
    body = {"spec": {"run": ["true"], "code": {"bundle": bundle["digest"]}, "hold": True}}
    answer = two.bob.call("POST", "/jobs", body)
    assert answer.json()["error"]["code"] == "bundle-missing"
    assert two.ann.code("POST", "/jobs", body) == 201


def test_an_idempotency_key_is_ones_own(two: Two) -> None:
    body = {"spec": {"run": ["true"], "hold": True, "name": "plain"}}
    key = {"Idempotency-Key": "the-same"}
    mine = two.ann.ok("POST", "/jobs", body, headers=key)
    cara = two.people.user("cara", project="red", role="member")
    theirs = [who.ok("POST", "/jobs", body, headers=key) for who in (two.bob, cara)]
    assert len({mine["id"], *(job["id"] for job in theirs)}) == 3
    assert two.ann.ok("POST", "/jobs", body, headers=key)["id"] == mine["id"]


def test_the_feed_tells_only_of_ones_own_project(two: Two) -> None:
    address = two.platform.url + "/api/v1/feed?cursor=0"
    headers = {"Host": f"127.0.0.1:{two.platform.port}"}
    headers |= sign(
        "GET", address, headers, b"", two.bob.access_key, two.bob.secret_key,
        int(time.time() * 1000),
    )  # fmt: skip
    mark = two.submit(two.bob, ["true"], hold=True)
    two.ann.ok("POST", f"/jobs/{two.held}/priority", {"priority": 7})
    two.people.project("zebra-crossing")
    seen = []
    with (
        httpx.Client(trust_env=False, verify=False, timeout=60) as client,
        client.stream("GET", address, headers=headers) as answer,
    ):
        last = two.submit(two.bob, ["true"], hold=True)
        for line in answer.iter_lines():
            if line.startswith("data:"):
                seen.append(json.loads(line[5:]))
                assert "zebra" not in line
                if seen[-1]["job"] == last:
                    break
    known = {event["job"] for event in seen}
    assert mark in known and not known & {two.held, two.running}
    of_server = [event for event in seen if event["kind"] == "people" and not event["reason"]]
    assert {"of": "projects"} in [event["data"] for event in of_server]


def test_a_member_changes_its_own_jobs_and_a_maintainer_everybodys(two: Two) -> None:
    dan = two.people.user("dan", project="red", role="member")
    boss = two.people.user("boss", project="red", role="maintainer")
    job = two.submit(two.ann, ["true"], hold=True)
    for path, body in (
        ("stop", {}), ("release", {}), ("restart", {}), ("priority", {"priority": 3}),
        ("debug", {"kind": "stack"}),
    ):  # fmt: skip
        answer = dan.call("POST", f"/jobs/{job}/{path}", body)
        assert answer.status_code == 403 and "ann-zebra's" in answer.json()["error"]["message"]
    assert dan.code("DELETE", f"/jobs/{job}") == 403
    assert dan.code("GET", f"/jobs/{job}") == 200
    again = dan.ok("POST", f"/jobs/{job}/rerun", {})
    assert again["user"] == "dan", "a copy is its maker's"
    assert boss.code("POST", f"/jobs/{job}/priority", {"priority": 3}) == 200
    assert boss.code("POST", f"/jobs/{job}/stop", {}) == 200


def test_the_header_that_names_the_project_must_be_signed(two: Two) -> None:
    address = two.platform.url + "/api/v1/jobs"
    headers = {"Host": f"127.0.0.1:{two.platform.port}"}
    owner = two.people.owner
    headers |= sign(
        "GET", address, headers, b"", owner.access_key, owner.secret_key, int(time.time() * 1000)
    )
    with httpx.Client(trust_env=False, verify=False, timeout=60) as client:
        assert client.get(address, headers=headers).status_code == 200
        added = client.get(address, headers={**headers, "X-Wl-Project": "red"})
    assert added.status_code == 401 and "must be signed" in added.json()["error"]["message"]


def test_a_project_goes_with_its_running_jobs_and_its_name_comes_back(two: Two) -> None:
    """R-F30."""
    owner = two.people.owner
    two.people.project("green")
    eve = two.people.user("eve", project="green", role="member")
    token = two.people.token(eve, "write")
    script = "import time; print('on', flush=True); time.sleep(900)"
    job = two.submit(eve, [sys.executable, "-c", script])
    waits = two.submit(eve, ["true"], hold=True)
    wait_for(lambda: "on" in eve.call("GET", f"/jobs/{job}/logs").text, 60, "it runs")
    folder = two.platform.attempts(job)[-1]
    pid = wait_for(lambda: two.platform.worker_pid(folder), 10, "its worker lives")
    assert eve.code("DELETE", "/projects/green") == 403
    owner.ok("DELETE", "/projects/green")
    for who, path in ((eve, "/jobs"), (eve, f"/jobs/{job}"), (token, "/jobs")):
        assert who.code("GET", path) in (401, 403, 404)
    assert owner.inside("green").code("GET", f"/jobs/{job}") == 404
    assert owner.code("DELETE", "/projects/green") == 404, "it is gone already"

    def made() -> bool:
        return owner.code("POST", "/projects", {"name": "green"}) == 201

    wait_for(made, 60, "the name is free when the jobs have ended")
    wait_for(lambda: two.platform.worker_pid(folder) is None, 10, f"the worker {pid} is gone")
    assert owner.inside("green").ok("GET", "/jobs")["items"] == []
    for old in (job, waits):
        assert owner.inside("green").code("GET", f"/jobs/{old}") == 404
    assert eve.inside("green").code("GET", "/jobs") == 404, "and not a member of the new one"
