"""Logging in from the command line: a password, a key for this machine, a browser."""

from __future__ import annotations

import json
import platform as machine
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from windlass.testing.browser import Browser
from windlass.testing.platform import Platform

FIRST, SECOND = "correct horse battery", "another stable word"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("cli") / "home") as found:
        done = found.cli("password", input=f"{FIRST}\n")
        assert done.returncode == 0, done.stderr
        yield found


def test_a_password_is_changed_by_who_knows_the_old_one(platform: Platform):
    wrong = platform.cli("password", "-o", "json", input=f"wrong wrong\n{SECOND}\n")
    assert wrong.returncode != 0
    assert json.loads(wrong.stdout)["error"]["code"] == "forbidden"
    assert platform.cli("password", input=f"{FIRST}\n{SECOND}\n").returncode == 0
    easy = platform.cli("password", input=f"{SECOND}\npassword123\n")
    assert easy.returncode != 0 and "first that are tried" in easy.stderr
    assert platform.cli("password", input=f"{SECOND}\n{FIRST}\n").returncode == 0
    assert "nothing on standard input" in platform.cli("password", input="").stderr


def test_a_password_gives_this_machine_a_key_with_its_name(platform: Platform, tmp_path: Path):
    elsewhere = {**platform.env, "WINDLASS_HOME": str(tmp_path / "other")}
    done = platform.cli(
        "login", platform.url, "--user", "owner", "-o", "json", input=f"{FIRST}\n", env=elsewhere
    )
    assert done.returncode == 0, done.stderr
    assert FIRST not in done.stdout + done.stderr
    assert platform.cli("ps", env=elsewhere).returncode == 0
    name = re.sub(r"[^a-z0-9]+", "-", machine.node().lower()).strip("-")[:30]
    listed = json.loads(platform.cli("key", "ls", "-o", "json", env=elsewhere).stdout)
    assert name in [key["name"] for key in listed["items"] if key["state"] != "dead"]
    wrong = platform.cli(
        "login", platform.url, "--user", "owner", input="wrong wrong\n", env=elsewhere
    )
    assert wrong.returncode != 0 and "the user or the password is wrong" in wrong.stderr


def test_a_password_does_not_travel_in_the_clear(platform: Platform):
    done = platform.cli("login", "http://lab.example:7400", "--user", "ann", input=f"{FIRST}\n")
    assert done.returncode == 2 and "for all to read" in done.stderr


def test_the_browser_is_logged_in_by_a_link_of_the_command_line(platform: Platform):
    done = platform.cli("ui")
    assert done.returncode == 0, done.stderr
    address, _, token = done.stdout.strip().partition("#link=")
    assert address == f"{platform.url}/login" and "good once" in done.stderr
    with Browser(platform.url) as browser:
        assert browser.call("POST", "/login/link", {"link": token}).status_code == 204
        listed = json.loads(platform.cli("browser", "ls", "-o", "json").stdout)["items"]
        mine = browser.call("GET", "/session").json()["session"]["id"]
        assert mine in [each["id"] for each in listed]
        assert platform.cli("browser", "end", mine).returncode == 0
        assert browser.call("GET", "/session").status_code == 401
    assert platform.cli("browser", "end", "--all").returncode == 0
    assert platform.cli("browser", "end").returncode == 2
    job = platform.submit("true")
    led = platform.cli("ui", job.name)
    asked = quote(f"/jobs/{job.id}", safe="")
    assert led.stdout.startswith(f"{platform.url}/login?next={asked}#link="), led.stderr


def test_an_administrator_makes_a_link_to_a_password(platform: Platform):
    made = platform.cli("user", "create", "ann", "--in", "default")
    assert made.returncode == 0, made.stderr
    done = platform.cli("user", "password", "ann", "-o", "json")
    assert done.returncode == 0, done.stderr
    token = json.loads(done.stdout)["url"].partition("#password=")[2]
    with Browser(platform.url) as browser:
        body = {"link": token, "password": SECOND}
        assert browser.call("POST", "/login/password", body).status_code == 204
        assert browser.call("GET", "/session").json()["user"] == "ann"
        refused = browser.call("POST", "/users/owner/password-link", {})
        assert refused.status_code == 403
    none = platform.cli("user", "identity", "ann", "ann@example.org")
    assert none.returncode != 0 and "--oidc-issuer" in none.stderr
