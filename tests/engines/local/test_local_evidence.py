"""The verdict on a worker, as a table; and what forged or torn files do to it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.engines.base import NodeLaunch, Sight
from windlass.engines.directory import Directory
from windlass.engines.local.evidence import Evidence, gather, judge, see
from windlass.engines.processes import Identity, boot_id, identify, lives

WORKER = Identity(4242, 7, "this-boot")
RECORD = {"outcome": "failed"}


def _evidence(**facts: object) -> Evidence:
    start = {"boot_id": "this-boot", "spawn_boot_id": "this-boot", "waited_seconds": 1.0}
    return Evidence(**{**start, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("evidence", "sight"),
    [
        (Evidence(there=False), Sight.ABSENT),
        (_evidence(locked=True), Sight.ALIVE),
        (_evidence(locked=True, record=RECORD), Sight.ALIVE),
        # The worker may live in a pid namespace that we cannot see into.
        (_evidence(locked=True, worker=WORKER, worker_file=True), Sight.ALIVE),
        (_evidence(locked=True, worker=WORKER, worker_file=True, stray_holder=9), Sight.DEAD),
        (_evidence(worker=WORKER, worker_file=True, worker_lives=True), Sight.ALIVE),
        (_evidence(worker=WORKER, worker_lives=True, record=RECORD), Sight.ALIVE),
        (_evidence(worker=WORKER, worker_file=True, record=RECORD), Sight.ENDED),
        (_evidence(record=RECORD), Sight.ENDED),
        (_evidence(worker=WORKER, worker_file=True), Sight.DEAD),
        (_evidence(worker=Identity(4242, 7, "old"), worker_file=True), Sight.DEAD),
        (_evidence(worker_file=True), Sight.DEAD),
        (_evidence(), Sight.STARTING),
        (_evidence(spawned=WORKER, spawned_lives=True), Sight.STARTING),
        (_evidence(spawned=WORKER, spawned_lives=True, waited_seconds=30.0), Sight.DEAD),
        (_evidence(spawned=WORKER), Sight.DEAD),
        (_evidence(waited_seconds=30.0), Sight.DEAD),
        (_evidence(spawn_boot_id="old", waited_seconds=None), Sight.DEAD),
        (_evidence(spawn_boot_id=None, waited_seconds=None), Sight.DEAD),
    ],
)
def test_the_verdict_follows_from_the_evidence_alone(evidence: Evidence, sight: Sight) -> None:
    verdict, reason = judge(evidence, starting_seconds=30)
    assert verdict is sight
    assert bool(reason) == (sight is Sight.DEAD)


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    place = Directory(tmp_path, "ab" * 16, "local")
    place.create(NodeLaunch("local", {"api": 1}, "secret"))
    return place


def test_the_directory_is_private(place: Directory) -> None:
    modes = {name: (place.path / name).stat().st_mode & 0o777 for name in ("launch.json", "token")}
    assert modes == {"launch.json": 0o600, "token": 0o400}
    assert place.path.stat().st_mode & 0o777 == 0o700
    assert place.path.parent.stat().st_mode & 0o777 == 0o700


def test_it_is_laid_down_once(place: Directory) -> None:
    assert not place.create(NodeLaunch("local", {"api": 2}, "other"))
    assert json.loads((place.path / "launch.json").read_text()) == {"api": 1}
    assert os.listdir(place.path.parent) == ["local"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"attempt_id": NaN}', b"\xff", b"[" * 100_000, b'{"x": 1}'],
)
def test_an_exit_file_that_is_no_record_counts_for_nothing(
    place: Directory, content: bytes
) -> None:
    (place.path / "exit.json").write_bytes(content)
    assert place.record() is None
    assert place.put_aside_broken_record()
    assert not (place.path / "exit.json").exists()


def test_links_and_pipes_in_the_place_of_files_are_not_followed(
    place: Directory, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps({"attempt_id": place.attempt_id}))
    (place.path / "exit.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(place.path / "worker.json")
    place.lock.unlink()
    os.mkfifo(place.lock)
    seen, evidence = see(place, 30)
    assert evidence.record is None and evidence.worker is None
    assert seen.sight is Sight.DEAD  # there is a worker.json, so it will not start again


def test_a_look_at_the_lock_disturbs_nobody(place: Directory) -> None:
    place.lock.touch()
    assert not place.is_locked()
    with open(place.lock) as looking, open(place.lock) as held:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not place.is_locked()  # another look is no life
        fcntl.flock(looking, fcntl.LOCK_UN)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert place.is_locked()


def test_a_clock_that_jumps_declares_nobody_dead(
    place: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 4e9)
    os.utime(place.path / "launch.json", (0, 0))
    assert see(place, 30)[0].sight is Sight.STARTING


def test_a_zombie_does_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    identity = identify(child.pid)
    assert identity is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}").exists()
    assert not lives(identity)
    child.wait()


def test_a_lock_kept_by_what_the_worker_left_is_no_life(place: Directory) -> None:
    """A rank that inherited the lock's descriptor must not keep its dead worker alive."""
    keeper = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys\n"
            "lock = open(sys.argv[1], 'w')\n"
            "fcntl.flock(lock, fcntl.LOCK_EX)\n"
            "print(flush=True)\n"
            "sys.stdin.read()",
            str(place.lock),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        gone = {"pid": 2**22 + 1, "start_time": 1, "boot_id": boot_id(), "version": "x"}
        (place.path / "worker.json").write_text(json.dumps(gone))
        evidence = gather(place)
        assert evidence.locked and evidence.stray_holder == keeper.pid
        assert judge(evidence, 30)[0] is Sight.DEAD
        keeper.kill()
