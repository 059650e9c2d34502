"""Both kinds of storage: a folder, and a real S3 server reached through fsspec."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.server.storage.base import Storage
from windlass.server.storage.opening import open_storage
from windlass.testing import s3 as real
from windlass.testing.environments import Unavailable
from windlass.testing.s3 import S3Server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with real.imported(), S3Server(tmp_path_factory.mktemp("s3")) as server:
            yield server
    except Unavailable as why:
        pytest.skip(f"no S3 here: {why}")


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.frameworks)])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    """An empty one."""
    if request.param == "folder":
        (tmp_path / "there").mkdir()
        return open_storage(str(tmp_path / "there"))
    server: S3Server = request.getfixturevalue("s3")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return open_storage(server.url(secrets.token_hex(8)))
