"""A real MLflow server and ours, for the tests of this folder: one of each for all of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from comparing import Pair

from windlass.testing import mlflow_server
from windlass.testing.environments import Unavailable
from windlass.testing.mlflow_server import MlflowServer
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform

PROJECT = "default"


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("ours") / "home") as platform:
        yield platform


@pytest.fixture(scope="session")
def people(ours: Platform) -> People:
    return People(ours)


@pytest.fixture(scope="session")
def token(people: People) -> str:
    """Of a user who writes, in the project `default`."""
    return people.token(people.owner.inside(PROJECT), "write", name="mlflow").token


@pytest.fixture(scope="session")
def newest() -> Path:
    """The Python with the newest client."""
    try:
        return mlflow_server.newest()
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def older() -> Path:
    """The Python with a client of the major version before."""
    try:
        return mlflow_server.older()
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def real(newest: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with MlflowServer(tmp_path_factory.mktemp("real")) as server:
        yield server


def caller(platform: Platform, token: str, project: str = PROJECT) -> httpx.Client:
    """An HTTP client below `/mlflow/<project>`."""
    return httpx.Client(
        base_url=f"{platform.url}/mlflow/{project}", trust_env=False, timeout=60,
        headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip


@pytest.fixture(scope="session")
def pair(real: MlflowServer, ours: Platform, token: str) -> Iterator[Pair]:
    """The same call to both."""
    with (
        httpx.Client(base_url=real.url, trust_env=False, timeout=60) as theirs,
        caller(ours, token) as mine,
    ):
        yield Pair(theirs, mine)


@pytest.fixture
def wire(ours: Platform, token: str) -> Iterator[httpx.Client]:
    """Ours alone."""
    with caller(ours, token) as client:
        yield client


@pytest.fixture
def wire_of(ours: Platform) -> Iterator[Callable[[Caller, str], httpx.Client]]:
    """`wire_of(caller, project)`: ours, as somebody else."""
    opened: list[httpx.Client] = []

    def make(who: Caller, project: str = PROJECT) -> httpx.Client:
        opened.append(caller(ours, who.token, project))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def script(ours: Platform, token: str, tmp_path: Path) -> Callable[..., str]:
    """`script(python, text)`: what a script prints that uses a real client, outside any job."""

    def run(python: Path, text: str, *, url: str = "", **env: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(text)
        known = {"MLFLOW_TRACKING_URI": url} if url else {
            "MLFLOW_TRACKING_URI": f"{ours.url}/mlflow/{PROJECT}", "MLFLOW_TRACKING_TOKEN": token,
        }  # fmt: skip
        done = subprocess.run(
            [str(python), str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=300,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DO_NOT_TRACK": "true",
                 "GIT_PYTHON_REFRESH": "quiet", **known, **env},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
