"""Stock curl speaks to the API."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from windlass.testing.platform import Platform

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def curl(platform: Platform, *words: str, secret: str | None = None) -> tuple[int, str]:
    key = platform.credentials()
    command = [
        "curl", "-sS", "--aws-sigv4", "wl:wl:local:windlass",
        "--user", f"{key['access_key']}:{secret or key['secret_key']}",
        "-w", "\n%{http_code}", *words,
    ]  # fmt: skip
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    body, _, status = text.rpartition("\n")
    return int(status), body


def test_curl_submits_and_lists(shared: Platform) -> None:
    body = json.dumps({"spec": {"run": ["true"], "name": "by-curl"}})
    json_type = ("-H", "Content-Type: application/json")
    status, answer = curl(shared, *json_type, "-d", body, f"{shared.url}/api/v1/jobs")
    assert status == 201, answer
    assert shared.wait(json.loads(answer)["id"]).state == "succeeded"
    status, answer = curl(shared, f"{shared.url}/api/v1/jobs?name=by-curl&limit=5")
    assert status == 200
    assert [item["name"] for item in json.loads(answer)["items"]] == ["by-curl"]


def test_a_wrong_secret_is_refused(shared: Platform) -> None:
    status, answer = curl(shared, f"{shared.url}/api/v1/jobs", secret="x" * 40)
    assert status == 401
    assert json.loads(answer)["error"]["code"] == "unauthenticated"


def test_curl_names_the_project_in_a_signed_header(shared: Platform) -> None:
    shared.client.projects.create("by-curl")
    named = ("-H", "X-Wl-Project: by-curl")
    status, answer = curl(shared, *named, f"{shared.url}/api/v1/whoami")
    assert status == 200 and json.loads(answer)["project"] == "by-curl"
    status, answer = curl(shared, "-H", "X-Wl-Project: nowhere", f"{shared.url}/api/v1/whoami")
    assert status == 404 and "no project nowhere" in answer


def test_curl_needs_no_signature_with_a_token(shared: Platform) -> None:
    token = shared.client.tokens.create("by-curl", scopes=["read"])["token"]
    words = ["curl", "-sS", "-H", f"Authorization: Bearer {token}"]
    done = subprocess.run(
        [*words, f"{shared.url}/api/v1/whoami"], capture_output=True, text=True, timeout=60
    )
    assert json.loads(done.stdout)["user"] == "owner"
