"""The local engine passes the suite that every engine passes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_kit import LocalKit

from windlass.engines.spawn import worker_command
from windlass.testing.engines import STUB_WORKER, EngineContract, WorkerContract


def _uvloop() -> asyncio.AbstractEventLoop:
    return pytest.importorskip("uvloop").new_event_loop()  # type: ignore[no-any-return]


class TestLocalEngine(EngineContract):
    @pytest.fixture(params=[None, _uvloop], ids=["asyncio", "uvloop"])
    def engine_kit(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalKit]:
        kit = LocalKit(tmp_path, worker_command(STUB_WORKER), loop_factory=request.param)
        yield kit
        kit.clean()


@pytest.fixture(scope="session")
def worker_zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("worker") / "worker.pyz"
    subprocess.run([sys.executable, "-m", "windlass.worker.pack", str(path)], check=True)
    return path


class TestLocalEngineWithTheRealWorker(WorkerContract):
    """There is no server, so the worker waits for one until it is ended by force."""

    @pytest.fixture
    def engine_kit(self, tmp_path: Path, worker_zipapp: Path) -> Iterator[LocalKit]:
        kit = LocalKit(tmp_path, worker_command(worker_zipapp))
        yield kit
        kit.clean()
