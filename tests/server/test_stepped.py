"""A wall clock that was set while no server ran: timers move along with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windlass.engines.processes import boot_id, boot_seconds
from windlass.server import stepped

DAY = 86_400_000


def _now() -> int:
    """A wall clock that agrees with the machine's own."""
    return 1_800_000_000_000 + int(boot_seconds() * 1000)


@pytest.mark.parametrize("step", [DAY, -DAY, -3_600_000])
def test_a_step_between_two_servers_is_measured(tmp_path: Path, step: int) -> None:
    assert stepped.since_the_last(tmp_path, _now()) == 0, "nothing is known yet"
    assert abs(stepped.since_the_last(tmp_path, _now() + step) - step) < 1_000
    assert stepped.since_the_last(tmp_path, _now() + step + 1_000) == 0, "once"


def test_after_a_restart_of_the_machine_nobody_can_tell(tmp_path: Path) -> None:
    stepped.since_the_last(tmp_path, _now())
    path = tmp_path / stepped.FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "another"}))
    assert stepped.since_the_last(tmp_path, _now() + DAY) == 0
    assert json.loads(path.read_text())["boot_id"] == boot_id()


@pytest.mark.parametrize("text", ["", "[]", "null", '{"boot_id": 1}', '{"now_ms": true}'])
def test_a_file_that_says_nothing_moves_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / stepped.FILE).write_text(text)
    assert stepped.since_the_last(tmp_path, _now() + DAY) == 0
