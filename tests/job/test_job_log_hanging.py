"""A disk that hangs: a training that logs to it goes on, and what is lost is counted and told."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.job import spool as spooling
from windlass.job.spool import Spool


class Disk:
    """A named pipe in the file's place: who writes to it waits until somebody reads."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self._end, fcntl.F_SETPIPE_SZ, 4096)
        self.text = b""

    def lines(self, last: int) -> list[dict[str, Any]]:
        """Read until the line of that step is here."""
        os.set_blocking(self._end, True)
        while f'"step":{last},'.encode() not in self.text:
            self.text += os.read(self._end, 65536)
        return [json.loads(line) for line in self.text.splitlines()]

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "spool-0.jsonl")
    yield made
    made.close()


def record(step: int) -> dict[str, Any]:
    return {"kind": "metric", "step": step, "values": {"loss": 0.5}}


def test_nobody_waits_for_a_disk_that_hangs_and_nothing_is_lost_while_the_queue_has_room(
    tmp_path: Path, disk: Disk
) -> None:
    spool = Spool(tmp_path / "spool-0.jsonl")
    began = time.monotonic()
    assert all([spool.append(record(step)) for step in range(2000)])
    took = time.monotonic() - began
    assert took < 5, f"{took:.1f} s for 2000 calls: one wait of {spooling.WAIT_SECONDS} s and work"
    found = disk.lines(1999)
    assert [line["step"] for line in found] == list(range(2000))


def test_what_the_queue_has_no_room_for_is_counted_and_told_when_the_disk_is_back(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spooling, "QUEUE_BYTES", 20_000)
    monkeypatch.setattr(spooling, "_said", set())
    spool = Spool(tmp_path / "spool-0.jsonl")
    kept = [spool.append(record(step)) for step in range(2000)]
    lost = kept.count(False)
    assert 0 < lost < 2000 and spool.dropped_lines == lost
    assert "the disk hangs" in capfd.readouterr().err
    last = 2000 - lost - 1
    assert kept == [True] * (last + 1) + [False] * lost, "those that came when it was full"
    disk.lines(last)
    assert spool.append(record(5000))
    found = disk.lines(5000)
    told = [line["lines"] for line in found if line["kind"] == "dropped"]
    assert sum(told) == lost
    steps = [line["step"] for line in found if line["kind"] == "metric"]
    assert steps == [*range(last + 1), 5000]


def test_a_program_ends_soon_though_the_disk_hangs_and_says_what_is_lost(job: Any) -> None:
    run = Path(job.environment()["WINDLASS_RUN_DIR"])
    run.mkdir(parents=True, exist_ok=True)
    disk = Disk(run / "spool-0.jsonl")
    began = time.monotonic()
    done = job.run(
        "import windlass\n"
        "for step in range(500): windlass.log(step=step, loss=1)\n"
        "print('trained')"
    )
    took = time.monotonic() - began
    disk.close()
    assert done.stdout == "trained\n"
    assert "lines that were logged last are lost" in done.stderr
    assert took < 20, took


def test_a_line_is_in_the_file_when_the_call_returns(job: Any) -> None:
    """So that a program which is killed right behind it has left it."""
    job.run(
        "import os, windlass\nfor step in range(50): windlass.log(step=step, loss=1)\nos._exit(0)"
    )
    assert [line["step"] for line in job.lines()] == list(range(50))
