"""A server to break. Whatever a test did to it, the invariants are checked afterwards."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from windlass.testing import invariants
from windlass.testing.platform import Platform


@pytest.fixture
def dice() -> random.Random:
    """Random, and repeatable: the seed is printed, WINDLASS_SEED sets it."""
    seed = int(os.environ.get("WINDLASS_SEED") or random.SystemRandom().randrange(2**32))
    print(f"WINDLASS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def server_args() -> tuple[str, ...]:
    """Override with `pytest.mark.parametrize("server_args", …)`."""
    return ()


@pytest.fixture
def platform(tmp_path: Path, server_args: tuple[str, ...]) -> Iterator[Platform]:
    """A server of the test's own, on SQLite; checked when the test is over."""
    yield from checked(Platform(tmp_path / "home", *server_args))


@pytest.fixture
def unstarted(tmp_path: Path, server_args: tuple[str, ...]) -> Iterator[Platform]:
    """The same, which its test starts: for one whose first server has a fault already."""
    yield from checked(Platform(tmp_path / "home", *server_args), started=False)


@pytest.fixture
def any_platform(
    tmp_path: Path, server_args: tuple[str, ...], dialect: str, database_url: str
) -> Iterator[Platform]:
    """The same on either database."""
    url = "" if dialect == "sqlite" else database_url
    yield from checked(Platform(tmp_path / "home", *server_args, database=url))


@pytest.fixture(scope="module")
def _unbroken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("shared") / "home") as platform:
        yield platform


@pytest.fixture
def shared(_unbroken: Platform, tmp_path: Path) -> Iterator[Platform]:
    """One server for those tests of a module that break only jobs; checked after each. Gates and
    evidence are the test's own."""
    _unbroken.evidence = tmp_path / "evidence"
    server = _unbroken.process
    yield _unbroken
    assert server is not None and server.poll() is None and _unbroken.process is server
    invariants.check(_unbroken)


def checked(platform: Platform, started: bool = True) -> Iterator[Platform]:
    with ExitStack() as stack:
        stack.push(platform)  # it is ended and cleaned up, whoever started it
        if started:
            platform.start()
        yield platform
        if platform.process is None:
            platform.start()
        invariants.check(platform)
