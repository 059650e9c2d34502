"""Everything that works at isolation level 0 works at level 1: the same tests, once more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.engines.local import isolation

ROOT = Path(__file__).parents[2]
ABLE = isolation.look()
TESTS = (
    "tests/e2e/test_jobs.py",
    "tests/e2e/test_debug.py",
    "tests/e2e/test_roles.py",
    "tests/e2e/test_services.py",
    "tests/e2e/test_stream.py",
    "tests/frameworks/test_mpi.py",
)


@pytest.mark.soak
@pytest.mark.skipif(ABLE.level < 1, reason="isolation level 1: " + "; ".join(ABLE.missing or "?"))
@pytest.mark.parametrize("path", TESTS)
def test_the_same_holds_in_a_room(path: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path]
    done = subprocess.run(
        [*words, f"--basetemp={tmp_path / 'run'}"],
        cwd=ROOT,
        env={**os.environ, "WINDLASS_ISOLATION": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-4000:]
