"""The server dies at each point of a clean-up: nothing torn is left, and the next one goes on."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from windlass.client import Job
from windlass.job.manifest import in_order, newest, verify
from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for

PLACES = (
    "after-checkpoint-rename",
    pytest.param("after-checkpoint-mark", marks=pytest.mark.soak),
    pytest.param("after-checkpoint-files", marks=pytest.mark.soak),
)
TRAIN = """
import sys, time, windlass
from pathlib import Path
for step in range(1, 5):
    with windlass.checkpoint(step) as path:
        (path / "model").write_bytes(b"x" * 1000)
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def folder_of(platform: Platform, job: Job) -> Path:
    return platform.home / "jobs" / job.id / "checkpoints"


def nothing_torn(platform: Platform, job: Job) -> None:
    """R-I5: what has a checkpoint's name is whole, and the newest is there."""
    folder = folder_of(platform, job)
    for path in in_order(folder):
        verify(path)
    found = newest(folder).newest
    assert found is not None and found.step >= 3


def agreed(platform: Platform, job: Job) -> bool:
    """What was saved while it was away is told by the worker, and cleaned up after."""
    rows = {Path(each["path"]).name for each in platform.client.checkpoints.list(job.id)}
    return {path.name for path in folder_of(platform, job).iterdir()} == rows


def dead(platform: Platform) -> bool:
    assert platform.process is not None
    return platform.process.poll() is not None


@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_any_point_of_a_clean_up_is_made_good(tmp_path: Path, place: str) -> None:
    gate = tmp_path / "gate"
    with Platform(tmp_path / "home", env={"WINDLASS_FAILPOINT": f"{place}:kill"}) as platform:
        command = [sys.executable, "-c", TRAIN, str(gate)]
        job = platform.submit(command, outputs={"keep": 2})
        wait_for(partial(dead, platform), what=f"it dies {place}")
        nothing_torn(platform, job)
        platform.kill()
        platform.env.pop("WINDLASS_FAILPOINT")
        platform.start()
        wait_for(partial(agreed, platform, job), what=f"rows and files agree after {place}")
        nothing_torn(platform, job)
        gate.touch()
        assert platform.wait(job).state == "succeeded"
        invariants.check(platform)
