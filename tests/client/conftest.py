"""The stand-in server of tests/cli, and a client of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from standin import ACCESS_KEY, SECRET_KEY, StandIn

from windlass.client import Client


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place, project = tmp_path / "home", tmp_path / "project"
    place.mkdir()
    project.mkdir()
    for name in (
        "URL",
        "PROJECT",
        "CONTEXT",
        "OUTPUT",
        "ACCESS_KEY",
        "SECRET_KEY",
        "TOKEN",
        "DEBUG",
    ):
        monkeypatch.delenv(f"WINDLASS_{name}", raising=False)
    monkeypatch.setenv("WINDLASS_HOME", str(place))
    monkeypatch.chdir(project)
    return place


@pytest.fixture
def server(home: Path) -> Iterator[StandIn]:
    stand = StandIn()
    yield stand
    stand.close()


@pytest.fixture
def client(server: StandIn) -> Iterator[Client]:
    with Client(server.url, access_key=ACCESS_KEY, secret_key=SECRET_KEY) as made:
        yield made
