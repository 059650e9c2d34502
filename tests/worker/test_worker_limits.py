"""R-F26, R-F27 on one worker: which limits end a job, alone and in words."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_lab import Lab, until
from worker_room import MIB, TELL, member, removed, said, whole

from windlass.worker import disk


@pytest.fixture(params=[0, pytest.param(1, marks=whole)])
def level(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


NEIGHBOUR = "import time\nstart = time.monotonic()\nwhile time.monotonic() - start < 600:"
NEIGHBOUR += " print('alive', flush=True); time.sleep(0.1)\n"


@contextlib.contextmanager
def neighbour(lab: Lab, level: int) -> Iterator[None]:
    """Another job, which must be alive and well afterwards."""
    plane = lab.plane
    beside = Lab(lab.folder / "beside", lab.archive)
    beside.folder.mkdir()
    try:
        worker = beside.worker(NEIGHBOUR, job_id="other", **beside.isolated(level)).start()
        until(lambda: worker.logs())
        yield
        before = len(worker.logs())
        until(lambda: len(worker.logs()) > before)
        assert worker.process is not None and worker.process.poll() is None
    finally:
        beside.close()
    assert plane is lab.plane


def needs_counting(lab: Lab, what: str) -> None:
    if lab.plane.wait_for("register")["isolation"][what] == "none":
        pytest.skip(f"no cgroup limits for {what} here")


@pytest.mark.slow
def test_a_job_over_its_memory_dies_alone_and_says_how_much(lab: Lab, level: int) -> None:
    hungry = "held = []\nwhile True: held.append(bytearray(8 << 20))\n"
    with neighbour(lab, level):
        worker = lab.worker("", members=member(96 * MIB, 1, hungry), **lab.isolated(level)).start()
        needs_counting(lab, "memory")
        record = worker.end(60)
    assert record["outcome"] == "oom" and record["ranks"][0]["oom"]
    assert record["reason"] == "worker-0-0 ran out of memory: used 96 MiB of 96 MiB"


@pytest.mark.slow
def test_a_fork_bomb_is_contained_and_named(lab: Lab, level: int) -> None:
    bomb = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.05)
"""
    with neighbour(lab, level):
        worker = lab.worker(TELL + bomb, max_processes=64, **lab.isolated(level)).start()
        needs_counting(lab, "pids")
        record = worker.end(60)
    assert record["outcome"] == "failed"
    assert record["reason"] == "worker-0 reached its limit of 64 processes (pids)"
    assert worker.pids() == [] and record["survivors"] == []


@pytest.mark.slow
def test_a_job_that_opens_without_end_runs_out_by_itself(lab: Lab, level: int) -> None:
    greedy = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as err:
    tell(error=err.strerror, held=len(held))
"""
    with neighbour(lab, level):
        worker = lab.worker(TELL + greedy, **lab.isolated(level)).start()
        assert worker.end(60)["outcome"] == "succeeded"
    found = said(worker)
    assert found["error"] == "Too many open files" and found["held"] <= 1 << 16


@whole
@pytest.mark.slow
def test_a_full_shared_memory_is_the_jobs_own_trouble(lab: Lab) -> None:
    greedy = """
with open("/dev/shm/all", "wb") as file:
    try:
        while True: file.write(bytes(4 << 20))
    except OSError as err:
        tell(error=err.strerror)
        raise
"""
    before = os.statvfs("/dev/shm").f_bfree
    with neighbour(lab, 1):
        worker = lab.worker("", members=member(64 * MIB, 1, greedy), **lab.isolated(1)).start()
        record = worker.end(60)
    # It meets the size of its /dev/shm or, with what else it holds, the limit of its memory.
    assert record["outcome"] in ("oom", "failed") and "worker-0-0" in record["reason"]
    assert os.statvfs("/dev/shm").f_bfree >= before - 1024


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to set a limit above the jobs")
@pytest.mark.parametrize("own_level", [0, pytest.param(1, marks=whole)])
def test_under_pressure_the_ranks_go_before_their_worker(lab: Lab, own_level: int) -> None:
    """R-F27: a limit above worker and ranks together, as a full machine is."""
    parent = _memory_group()
    if parent is None:
        pytest.skip("no cgroup for memory here that a test may make")
    try:
        (parent / "memory.limit_in_bytes").write_text(str(160 * MIB))
        hungry = "import time\nheld = []\ntell(ready=True)\n"
        hungry += "while True: held.append(bytearray(4 << 20)); time.sleep(0.001)\n"
        worker = lab.worker(TELL + hungry, **lab.isolated(own_level))
        # The worker, and all that it starts, inside: it begins as a child that went in first.
        words = f"echo $$ > {parent}/cgroup.procs; exec "
        words += f"{sys.executable} -I -S {worker.archive} run {worker.directory}"
        worker.process = subprocess.Popen(["sh", "-c", words])
        record = worker.end(60)
        assert record["outcome"] == "oom", record
        assert "the machine had no more" in record["reason"]
    finally:
        for folder in sorted(parent.glob("**/"), reverse=True):
            until(lambda folder=folder: removed(folder))  # type: ignore[misc]


def _memory_group() -> Path | None:
    top = Path("/sys/fs/cgroup/memory")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            made = top / path.strip("/") / f"windlass-test-{os.getpid()}"
            with contextlib.suppress(OSError):
                made.mkdir()
                return made
    return None


# Its disk

FILLS = """
import time
for number in range(64):
    with open("filled-%d" % number, "wb") as file: file.write(os.urandom(1 << 20))
tell(full=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_job_that_fills_the_disk_ends_alone_and_says_how_much(lab: Lab, level: int) -> None:
    with neighbour(lab, level):
        told = {"max_disk_bytes": 32 * MIB, **lab.isolated(level)}
        record = lab.worker(TELL + FILLS, **told).start().end(60)
    assert record["outcome"] == "failed", record
    used = re.match(r"used ([0-9.]+) MiB", record["reason"])
    assert used is not None and 32 < float(used[1]) < 70, record
    assert "limit of 32.0 MiB" in record["reason"]


def test_no_file_grows_over_the_limit_of_the_disk(lab: Lab, level: int) -> None:
    code = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with open("big", "wb", 0) as file:
        while True: file.write(bytes(1 << 20))
except OSError as err:
    tell(error=err.strerror, size=os.path.getsize("big"))
"""
    told = {"max_disk_bytes": 8 * MIB, **lab.isolated(level)}
    worker = lab.worker(TELL + code, **told).start()
    assert worker.end(60)["outcome"] == "succeeded"
    assert said(worker) == {"error": "File too large", "size": 8 * MIB}


def test_what_takes_room_is_added_up_and_no_link_is_followed(tmp_path: Path) -> None:
    def fill(path: Path) -> None:
        path.write_bytes(os.urandom(MIB))

    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine / "deep" / "er", other):
        folder.mkdir(parents=True)
    fill(other / "not-mine")
    before = disk.used([str(mine)])
    fill(mine / "one")
    fill(mine / "deep" / "er" / "two")
    os.link(mine / "one", mine / "deep" / "one-again")
    (mine / "link").symlink_to(other)
    (mine / "file-link").symlink_to(other / "not-mine")
    with open(mine / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert 2 * MIB <= disk.used([str(mine)]) - before < 2.1 * MIB
    assert disk.used([str(tmp_path / "gone")]) == 0


def test_folders_without_end_end_the_job(tmp_path: Path) -> None:
    """Else whoever nests them deeply enough is not counted."""
    opened = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=opened)
        inner = os.open("d", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = inner
    os.close(opened)
    told: list[str] = []
    watch = disk.DiskWatch([str(tmp_path)], MIB, told.append)
    watch.look()
    assert told == ["its folders are nested too deeply to add up (limits.disk)"]
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_an_attempt_weighs_as_much_as_its_ranks_would_outside(lab: Lab) -> None:
    """A group that is told nothing weighs as one process: under load two ranks got half of it."""
    code = """
line = next(l for l in open("/proc/self/cgroup") if "cpu" in l.split(":")[1].split(","))
own = "/sys/fs/cgroup/cpu" + line.strip().split(":")[2]
print(*(open(folder + "/cpu.shares").read().strip() for folder in (own, own + "/..")))
"""
    command = [sys.executable, "-c", code]
    members = [
        {"role": "worker", "index": 0, "nproc": 2, "command": command},
        {"role": "ps", "index": 0, "nproc": 1, "cpus_milli": 500, "command": command},
    ]
    worker = lab.worker("", members=members).start()
    record = worker.end()
    if lab.plane.wait_for("register")["isolation"].get("cpu") != "v1":
        pytest.skip("no CPU groups of version 1 here")
    assert record["outcome"] == "succeeded", worker.words()
    assert worker.logs("worker-0-1.out") == b"2048 2560\n"
    assert worker.logs("ps-0-0.out") == b"512 2560\n"
