"""How long what was given up is waited for, and how long a start: by no clock that people set."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest

from windlass.engines.base import NodeLaunch, Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.fence import end_by_fence
from windlass.engines.processes import boot_id, boot_seconds
from windlass.testing import stub_worker

LEASE_SECONDS = 600.0
DAY = 86_400.0


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    made = Directory(tmp_path, "a" * 32, "node1")
    launch = {"attempt_id": "a" * 32, "attempt": 1, "node": "node1", "grace_ms": 1000}
    made.create(NodeLaunch("node1", launch, "token"))
    return made


def _end(place: Directory) -> Seen:
    command = [sys.executable, str(stub_worker.__file__)]
    return asyncio.run(end_by_fence(place, "its node is silent", LEASE_SECONDS, command))


@pytest.mark.parametrize("step", [DAY, -DAY, -3600.0])
def test_a_wall_clock_that_is_set_brings_no_end_nearer(place: Directory, step: float) -> None:
    """R-F17: the end of a lease that was said a day early let a second attempt start beside what
    still ran. To files, a clock that is set ahead looks as if they were older."""
    assert _end(place).sight is Sight.DEAD
    for name in ("fence", "launch.json", "spawn.json"):
        os.utime(place.path / name, (time.time() - step,) * 2)
    seen = _end(place)
    assert seen.sight is Sight.DEAD and "ends itself within" in seen.reason
    assert place.laid_seconds() < 300, "it was begun just now"


def test_its_end_is_said_when_the_lease_and_the_grace_are_over(place: Directory) -> None:
    assert _end(place).sight is Sight.DEAD
    _stood(place, LEASE_SECONDS - 100)
    assert _end(place).sight is Sight.DEAD
    _stood(place, LEASE_SECONDS + 100)
    seen = _end(place)
    assert seen.sight is Sight.ENDED and seen.record is not None


def test_after_a_restart_of_the_servers_machine_it_is_counted_anew(place: Directory) -> None:
    assert _end(place).sight is Sight.DEAD
    _stood(place, 2 * LEASE_SECONDS, boot="another boot")
    assert _end(place).sight is Sight.DEAD
    assert place.fenced_seconds() < 300


def _stood(place: Directory, seconds: float, boot: str = "") -> None:
    mark = {"boot_id": boot or boot_id(), "boot_seconds": boot_seconds() - seconds}
    (place.path / "fence").write_text(json.dumps(mark))
