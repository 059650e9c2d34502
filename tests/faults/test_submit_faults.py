"""Submits that come twice, at once, or differ: R-F23."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import httpx
import pytest

from windlass.testing import invariants
from windlass.testing.platform import Platform


def body(name: str, **more: object) -> dict[str, object]:
    """As the client sends it."""
    return {"spec": {"run": ["true"], "name": name, "hold": True, **more}, "dry_run": False}


def test_r_f23_a_hundred_submits_with_one_key_make_one_job(any_platform: Platform) -> None:
    platform = any_platform
    at_once = 20
    for number in range(5):
        key = f"same-{number}"
        line = Barrier(at_once)

        def submit(_: int, key: str = key, line: Barrier = line) -> httpx.Response:
            line.wait(60)
            return platform.call("POST", "/jobs", body(key), headers={"Idempotency-Key": key})

        with ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(submit, range(at_once)))
        assert Counter(answer.status_code for answer in answers) == {201: at_once}
        assert len({answer.content for answer in answers}) == 1, "each is the first answer again"
        replays = Counter(answer.headers.get("idempotent-replay") for answer in answers)
        assert replays == {None: 1, "true": at_once - 1}
        invariants.accepted(platform, {key: answers[0].json()["id"]})


def test_r_f23_a_key_used_for_another_request_is_refused(any_platform: Platform) -> None:
    platform = any_platform
    headers = {"Idempotency-Key": "k"}
    first = platform.call("POST", "/jobs", body("first"), headers=headers)
    other = platform.call("POST", "/jobs", body("first", ttl="1h"), headers=headers)
    assert (first.status_code, other.status_code) == (201, 409)
    assert other.json()["error"]["code"] == "idempotency-key-reused"
    assert first.json()["id"] in other.json()["error"]["message"]
    assert platform.call("POST", "/jobs", body("first"), headers=headers).json() == first.json()
    [only] = platform.client.jobs.list(limit=10)
    assert only.id == first.json()["id"]


def test_r_f23_a_client_that_gave_up_waiting_may_ask_again(any_platform: Platform) -> None:
    platform = any_platform
    for number in range(10):
        key = f"patience-{number}"
        try:
            platform.call(
                "POST", "/jobs", body(key), headers={"Idempotency-Key": key},
                seconds=0.002 * (number + 1),
            )  # fmt: skip
        except httpx.TransportError:
            pass
        answer = platform.call("POST", "/jobs", body(key), headers={"Idempotency-Key": key})
        assert answer.status_code == 201, answer.text
        invariants.accepted(platform, {key: answer.json()["id"]})


@pytest.mark.parametrize("verb", ["stop", "release", "restart"])
def test_wishes_at_once_from_many_are_one_wish(shared: Platform, verb: str) -> None:
    gate = shared.gate()
    job = shared.witness(
        "until", gate, hold=verb == "release", limits={"grace": "300ms"},
    )  # fmt: skip
    if verb != "release":
        shared.wait_state(job, "running")

    def wish(_: int) -> int:
        return shared.call("POST", f"/jobs/{job.id}/{verb}", {}).status_code

    with ThreadPoolExecutor(10) as pool:
        found = Counter(pool.map(wish, range(30)))
    assert set(found) <= {200, 409}, found
    assert found[200] >= 1
    if verb == "stop":
        assert shared.wait(job).state == "cancelled"
        return
    shared.wait_state(job, "running")
    gate.touch()
    assert shared.wait(job).state == "succeeded"
