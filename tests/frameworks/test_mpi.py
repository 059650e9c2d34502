"""Open MPI for real, over two fake nodes, with our worker as its remote shell."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.client import Job
from windlass.testing.environments import Unavailable, environment
from windlass.testing.platform import Platform, runs, wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "mpi"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed"),
]


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return environment("mpi", "mpi4py==4.1.2")
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[Platform]:
    """Two fake nodes with a GPU each, so that two members that ask for one stand on different
    nodes, and a user who has activated the environment with mpi4py."""
    active = {"VIRTUAL_ENV": str(python.parents[1])}
    home = tmp_path_factory.mktemp("mpi") / "home"
    with Platform(home, "--fake-nodes", "2", "--fake-gpus", "1", env=active) as platform:
        yield platform


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"loss=([0-9.]+)", text)]


def calls(platform: Platform, job: Job) -> list[str]:
    """The calls that the agents of a job wrote down."""
    logs = (folder / "debug" / "ranks" / "agent.log" for folder in platform.attempts(job))
    lines = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    return [line for line in lines if re.search(r" call \d+ of ", line)]


def pids_of(platform: Platform, job: Job, what: bytes) -> dict[int, str]:
    """By pid, the node whose mark it carries: the processes of a job that run `what`."""
    folders = {
        f"WINDLASS_RUN_DIR={each}/run".encode(): each.name for each in platform.attempts(job)
    }
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if what not in (entry / "cmdline").read_bytes().split(b"\0"):
                continue
            marks = set((entry / "environ").read_bytes().split(b"\0")) & set(folders)
        except OSError:
            continue
        for mark in marks:
            found[int(entry.name)] = folders[mark]
    return found


def test_one_command_trains_two_ranks_on_two_nodes_through_our_agent(platform: Platform) -> None:
    flags = ("--framework", "mpi", "--workers", "2", "--gpus", "1")
    done = platform.cli("run", *flags, "train.py", cwd=EXAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        assert len(re.findall(f"rank {rank} of 2 is here", done.stdout)) == 1
    found = losses(done.stdout)
    assert len(found) == 10 and found[-1] < found[0] / 100
    job = platform.client.jobs.list()[0]
    assert job.state == "succeeded" and job.attempt == 1
    called = calls(platform, job)
    assert len(called) == 1 and "worker-1" in called[0] and "orted" in called[0]


def test_a_launcher_of_its_own_reaches_every_worker_through_an_agent(platform: Platform) -> None:
    done = platform.cli("run", "-f", str(EXAMPLE / "job.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"rank (\d) of 4 is here", done.stdout)) == ["0", "1", "2", "3"]
    called = calls(platform, platform.client.jobs.list()[0])
    assert sorted(re.findall(r"worker-\d", " ".join(called))) == ["worker-0", "worker-1"]


def test_a_remote_rank_that_is_killed_ends_the_gang(platform: Platform, python: Path) -> None:
    script = EXAMPLE / "train.py"
    job = platform.submit(
        ["python", str(script), "--epochs", "100000", "--pause", "0.01"],
        framework="mpi",
        roles={"worker": {"count": 2, "gpus": 1}},
        environment={"python": str(python)},
        retry={"times": 0},
    )
    wait_for(lambda: "epoch 3 " in platform.logs(job), 30, "it trains")
    ranks = pids_of(platform, job, str(script).encode())
    remote = [pid for pid, node in ranks.items() if node == _node_of(platform, job, 1)]
    assert len(remote) == 1, ranks
    os.kill(remote[0], signal.SIGKILL)
    over = platform.wait(job)
    assert over.state == "failed" and "worker-0" in over.reason, over.reason
    wait_for(lambda: not any(runs(pid) for pid in ranks), 10, "nothing is left of it")


def test_a_node_that_is_lost_starts_the_whole_gang_again(platform: Platform, python: Path) -> None:
    job = platform.submit(
        ["python", str(EXAMPLE / "train.py"), "--epochs", "400", "--pause", "0.02"],
        framework="mpi",
        roles={"worker": {"count": 2, "gpus": 1}},
        environment={"python": str(python)},
    )
    wait_for(lambda: "epoch 3 " in platform.logs(job), 30, "it trains")
    lost = next(path for path in platform.attempts(job) if path.name == _node_of(platform, job, 1))
    worker = platform.worker_pid(lost)
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    over = platform.wait(job)
    assert over.state == "succeeded" and over.attempt == 2, over.reason
    assert platform.logs(job, attempt=2).count("of 2 is here") == 2


def test_a_job_that_is_stopped_leaves_no_rank_behind(platform: Platform, python: Path) -> None:
    script = EXAMPLE / "train.py"
    job = platform.submit(
        ["python", str(script), "--epochs", "100000", "--pause", "0.01"],
        framework="mpi",
        roles={"worker": {"count": 2, "gpus": 1}},
        environment={"python": str(python)},
    )
    wait_for(lambda: "epoch 3 " in platform.logs(job), 30, "it trains")
    ranks = pids_of(platform, job, str(script).encode())
    assert set(ranks.values()) == {"fake-0", "fake-1"}
    platform.client.jobs.stop(job.id)
    assert platform.wait(job).state == "cancelled"
    assert not any(runs(pid) for pid in ranks)


def _node_of(platform: Platform, job: Job, index: int) -> str:
    return next(
        folder.name
        for folder in platform.attempts(job)
        if f'"index": {index}' in (folder / "launch.json").read_text()
    )
