"""A stand-in server, a home of its own, and the CLI called as a user would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from standin import ACCESS_KEY, SECRET_KEY, Call, Done, StandIn


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation apart; the current directory is an empty project."""
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
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand = StandIn()
    monkeypatch.setenv("WINDLASS_URL", stand.url)
    monkeypatch.setenv("WINDLASS_ACCESS_KEY", ACCESS_KEY)
    monkeypatch.setenv("WINDLASS_SECRET_KEY", SECRET_KEY)
    yield stand
    stand.close()


@pytest.fixture
def cli(home: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    from windlass.cli.main import main

    def call(*words: str) -> Done:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(list(words))
        out, err = capfd.readouterr()
        return Done(int(end.value.code or 0), out, err)

    return call
