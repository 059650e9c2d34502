from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_lab import Lab

from windlass.worker.pack import pack


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "worker.pyz"
    pack(str(path))
    return path


@pytest.fixture
def lab(tmp_path: Path, archive: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, archive)
    yield made
    made.close()
