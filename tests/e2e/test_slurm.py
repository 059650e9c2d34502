"""Jobs on a real Slurm, through a real server: the same commands, only the engine differs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.core.errors import InvalidInput, NeverFits, NotFound
from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for
from windlass.testing.slurm import Cluster, missing

pytestmark = pytest.mark.slow
CPUS = 32
WIDE = {"worker": {"count": 2, "cpus": 20}}  # no two of them fit on one node
SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("sum", x.item(), "last line", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    with Cluster(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=CPUS, lost_seconds=3) as found:
        yield found


@pytest.fixture(scope="module")
def platform(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("slurm-platform") / "home"
    with Platform(home, env={"SLURM_CONF": str(cluster.conf)}) as running:
        running.client.engines.add("slurm", "slurm", {"poll": "0.5", "lease": "30"})
        wait_for(
            lambda: any(each["nodes"] == 2 for each in running.client.engines.list()),
            what="its nodes are offered",
        )
        yield running
        invariants.check(running)


def attempts_of(platform: Platform, job: Job) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = platform.client.http.get(f"/jobs/{job.id}")["attempts"]
    return found


def test_the_check_says_what_is_well(platform: Platform) -> None:
    done = platform.cli("engine", "check", "slurm")
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("2 of 2 nodes", "the home is shared", "is reached from the nodes"):
        assert words in done.stdout


def test_an_engine_that_cannot_be_is_refused_by_name(platform: Platform) -> None:
    engines = platform.client.engines
    with pytest.raises(InvalidInput, match="options.partiton"):
        engines.add("other", "slurm", {"partiton": "gpu"})
    with pytest.raises(InvalidInput, match="slurn"):
        engines.add("other", "slurn")
    with pytest.raises(NotFound, match="nowhere"):
        engines.check("nowhere")
    with pytest.raises(
        NeverFits, match="no engine nowhere offers a node .there are: local, slurm"
    ):
        platform.submit("true", engine="nowhere")


def test_a_torch_gang_over_two_nodes_meets_and_its_last_line_is_kept(
    platform: Platform, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "sum.py").write_text(SUM)
    command = [sys.executable, str(tmp_path / "sum.py")]
    job = platform.submit(command, framework="pytorch", roles=WIDE, engine="slurm")
    ended = platform.wait(job, 120)
    assert ended.state == "succeeded", platform.client.jobs.why(job.id)
    assert platform.logs(job).count("sum 3.0 last line") == 2
    [attempt] = attempts_of(platform, job)
    assert set(attempt["nodes"]) == {"n1", "n2"}


def test_a_failure_is_told_with_its_exit_code(platform: Platform) -> None:
    job = platform.witness("exit", 7, engine="slurm", retry={"times": 0})
    ended = platform.wait(job, 60)
    assert ended.state == "failed" and "7" in platform.client.jobs.why(job.id)["sentence"]


def test_a_stop_lets_it_save(platform: Platform) -> None:
    job = platform.witness("train", 1000, 0.05, engine="slurm")
    wait_for(lambda: platform.said(job, "saved") or platform.said(job, "step"), 60, "it trains")
    platform.client.jobs.stop(job.id)
    assert platform.wait(job, 60).state == "cancelled"


def test_a_killed_worker_is_missed_and_the_next_attempt_resumes(platform: Platform) -> None:
    job = platform.witness("train", 40, 0.1, engine="slurm")
    wait_for(lambda: platform.client.jobs.checkpoints(job.id), 60, "a checkpoint")
    platform.kill_worker(job)
    assert platform.wait(job, 120).state == "succeeded"
    attempts = attempts_of(platform, job)
    assert len(attempts) == 2


def test_a_server_that_comes_back_knows_what_ran(platform: Platform) -> None:
    gate = platform.gate("restart")
    job = platform.witness("until", gate, engine="slurm")
    platform.wait_state(job, "running", seconds=60)
    platform.kill()
    platform.start()
    gate.touch()
    assert platform.wait(job, 60).state == "succeeded"
    assert len(attempts_of(platform, job)) == 1


def test_a_controller_that_is_silent_stops_nothing_else(
    platform: Platform, cluster: Cluster
) -> None:
    """The job on the cluster goes on, the server starts without it, and local jobs run."""
    gate = platform.gate("silent")
    job = platform.witness("until", gate, engine="slurm")
    platform.wait_state(job, "running", seconds=60)
    cluster.silence()
    platform.kill()
    platform.start()
    try:
        local = platform.submit("true", engine="local")
        assert platform.wait(local, 60).state == "succeeded"
        told = wait_for(
            lambda: next(
                (
                    each
                    for each in platform.client.engines.list()
                    if each["name"] == "slurm" and each["state"] == "unreachable"
                ),
                None,
            ),
            60,
            "it is told to be unreachable",
        )
        assert told["reason"]
        done = platform.cli("engine", "check", "slurm")
        assert done.returncode == 1 and "WRONG  controller" in done.stdout
    finally:
        cluster.speak()
    gate.touch()
    assert platform.wait(job, 120).state == "succeeded"
    assert len(attempts_of(platform, job)) == 1


def test_a_lost_node_is_fenced_before_the_job_starts_again(
    platform: Platform, cluster: Cluster
) -> None:
    """R-F18: Slurm gives the node up while its processes go on. The witness holds a lock, so two
    attempts alive at once would be told as a violation."""
    job = platform.witness("train", 150, 0.1, engine="slurm", limits={"grace": "1s"})
    wait_for(lambda: platform.client.jobs.checkpoints(job.id), 60, "a checkpoint")
    [attempt] = attempts_of(platform, job)
    [node] = attempt["nodes"]
    cluster.fell(node)
    try:
        assert platform.wait(job, 180).state == "succeeded", platform.client.jobs.why(job.id)
        attempts = attempts_of(platform, job)
        assert len(attempts) == 2 and node not in attempts[-1]["nodes"]
        assert not platform.said(job, "violation")
    finally:
        cluster.boot(node)
        cluster.run("scontrol", "update", f"nodename={node}", "state=resume")


def test_an_engine_with_jobs_stays_and_one_without_goes(platform: Platform) -> None:
    gate = platform.gate("busy")
    job = platform.witness("until", gate, engine="slurm")
    platform.wait_state(job, "running", seconds=60)
    done = platform.cli("engine", "rm", "slurm")
    assert done.returncode != 0 and "1 job is at work" in done.stderr
    gate.touch()
    platform.wait(job, 60)
    platform.client.engines.delete("slurm")
    names = [each["name"] for each in platform.client.engines.list()]
    assert names == ["local"]
    assert cluster_is_empty(platform)


def cluster_is_empty(platform: Platform) -> bool:
    """Nothing of ours is left in Slurm's queue."""
    import subprocess

    left = subprocess.run(
        ["squeue", "-h", "-o", "%j %T"], env=platform.env, capture_output=True, text=True
    ).stdout.split()
    return not left
