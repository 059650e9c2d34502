"""R-S12, R-S22: what others' parsers were broken by is not here, or newer than its mend; and what
a caller says of itself is told without its control characters."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from windlass.testing.browser import Browser
from windlass.testing.platform import Platform

ROOT = Path(__file__).parents[2]
MENDED = {
    "starlette": "0.49.1",  # 2024-47874, 2025-54121, 2025-62727
    "python-multipart": "0.0.27",  # 2024-53981, and headers without bound
    "h11": "0.16.0",  # 2025-43859
    "argon2-cffi": "23.1",
    "authlib": "1.6",
}
"""The first version of each in which what is known was mended."""
MAY_BE_ABSENT = {"python-multipart"}
PASSWORD = "correct horse battery"


@pytest.mark.parametrize("name", MENDED)
def test_what_is_installed_is_newer_than_the_holes_that_are_known(name: str):
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        assert name in MAY_BE_ABSENT
        return
    assert Version(found) >= Version(MENDED[name])


def test_an_older_one_cannot_be_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = {Requirement(line).name: Requirement(line) for group in groups for line in group}
    for name in ("starlette", "argon2-cffi", "authlib"):
        floor = Version(MENDED[name])
        assert not wanted[name].specifier.contains(Version("0.0.1")), name
        lowest = min(Version(each.version) for each in wanted[name].specifier)
        assert lowest >= floor, name


def test_nothing_here_parses_forms():
    """So the parser of forms, with its long story, is not even asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [line for line in project["dependencies"] if "multipart" in line]
    for path in (ROOT / "src" / "windlass" / "server").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"request\.form\(|fastapi import .*(Form|File)\b", source), path


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("parsers") / "home") as found:
        assert found.call("PUT", "/password", {"new": PASSWORD}).status_code == 204
        yield found


def test_what_a_browser_calls_itself_is_told_without_its_tricks(platform: Platform):
    """R-S22: a name that would move the reader's cursor, or forge a line of a log."""
    name = "\x9b31mMozilla\x85 \u202eelif\xad"
    with Browser(platform.url) as browser:
        body = {"user": "owner", "password": PASSWORD}
        headers: dict[str, str | None] = {"User-Agent": name.encode().decode("latin-1")}
        assert browser.call("POST", "/login", body, headers).status_code == 204
        told = browser.call("GET", "/session").json()["session"]["browser"]
        assert "Mozilla" in told and told.isprintable(), told
        listed = platform.cli("browser", "ls")
        assert listed.returncode == 0
        assert all(line.isprintable() for line in listed.stdout.splitlines())
    assert PASSWORD not in platform.log()


def test_a_wrong_password_stands_in_no_log(platform: Platform):
    with Browser(platform.url) as browser:
        assert browser.login("owner", "a-wrong-one-12345").status_code == 401
        strange = {"user": "owner", "passwort": "a-wrong-one-12345"}
        assert browser.call("POST", "/login", strange).status_code == 422
    assert "a-wrong-one-12345" not in platform.log()
    for path in platform.home.glob("windlass.db*"):
        assert b"a-wrong-one-12345" not in path.read_bytes()
