"""A worker at the limits of its node: what cannot start is no fault of the job, and what has ended
keeps its record on a disk that is full."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_lab import Lab, Worker, until

ORDINARY_USER = "54322"


def start_limited(worker: Worker, limit: str) -> None:
    """As an ordinary user: root is above a limit of processes. It may still read all."""
    keep = []
    if not os.geteuid():
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv (util-linux) is not there to give up root's rights")
        for path in (worker.directory.parent, *worker.directory.parent.rglob("*")):
            shutil.chown(path, int(ORDINARY_USER), int(ORDINARY_USER))
        kept = "+dac_read_search"
        keep = [
            "setpriv", "--reuid", ORDINARY_USER, "--regid", ORDINARY_USER, "--clear-groups",
            "--inh-caps", kept, "--ambient-caps", kept, "--bounding-set", "-all," + kept,
        ]  # fmt: skip
    run = [sys.executable, "-I", "-S", str(worker.archive), "run", str(worker.directory)]
    worker.process = subprocess.Popen(["prlimit", limit, *keep, *run])


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit (util-linux) is not there")
@pytest.mark.parametrize(
    ("limit", "need"), [("--nproc=1", "processes"), ("--nofile=16", "file descriptors")]
)
def test_a_worker_at_a_limit_says_what_its_node_lacks(lab: Lab, limit: str, need: str) -> None:
    changes = {"cache_dir": None, "checkpoint_dir": None, "cgroups": False}
    worker = lab.worker("print('ran')", nproc=4, **changes)
    start_limited(worker, limit)
    record = worker.end()
    assert (record["outcome"], record["need"]) == ("lost", need)
    assert record["reason"].startswith(f"the node has run out of {need}")
    assert lab.plane.wait_for("ended")["record"]["need"] == need


def held(lab: Lab) -> tuple[str, Path]:
    """Code that waits, and what lets it go on: not on the disk that is full."""
    gate = lab.folder / "gate"
    return f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n", gate


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "windlass", path],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")

    def fill(self) -> None:
        with (self.path / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError as err:
                    assert err.errno == errno.ENOSPC

    def empty(self) -> None:
        (self.path / "ballast").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Where the attempts are."""
    if os.geteuid():
        pytest.skip("only root may mount a tmpfs")
    disk = SmallDisk(tmp_path / "attempts")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk.path)], check=True)


@pytest.mark.parametrize("server", ["there", "away"])
def test_an_end_on_a_full_disk_keeps_its_record(disk: SmallDisk, lab: Lab, server: str) -> None:
    code, gate = held(lab)
    worker = lab.worker(code + "print('x' * 3_000_000)\nraise SystemExit(7)").start()
    lab.plane.wait_for("started")
    disk.fill()
    if server == "away":
        lab.plane.stop()
    gate.touch()
    record = worker.end()
    assert (record["outcome"], record["ranks"][0]["exit"]) == ("failed", 7)
    written = sum(path.stat().st_size for path in (worker.directory / "logs").glob("*out*.log"))
    dropped = record["ranks"][0]["dropped_bytes"]
    assert dropped and written + dropped >= 3_000_001, "what was not kept is counted"
    if server == "there":
        assert lab.plane.wait_for("ended")["record"]["ranks"][0]["exit"] == 7


def test_a_record_without_reserved_blocks_waits_for_room_with_its_lock_held(
    disk: SmallDisk, lab: Lab
) -> None:
    code, gate = held(lab)
    worker = lab.worker(code).start()
    lab.plane.wait_for("started")
    (worker.directory / "exit.reserve").unlink()
    disk.fill()
    lab.plane.stop()
    gate.touch()
    until((worker.directory / "exit.reserve").exists)  # it has tried
    assert worker.reap() == 3, "it lives: nobody may take it for dead"
    disk.empty()
    assert worker.end()["outcome"] == "succeeded"


def test_a_record_that_no_disk_takes_is_told(disk: SmallDisk, lab: Lab) -> None:
    code, gate = held(lab)
    worker = lab.worker(code).start()
    lab.plane.wait_for("started")
    (worker.directory / "exit.reserve").unlink()
    disk.fill()
    gate.touch()
    assert worker.process is not None
    assert lab.plane.wait_for("ended")["record"]["outcome"] == "succeeded"
    assert worker.process.wait(30) == 0
    assert not (worker.directory / "exit.json").exists()
