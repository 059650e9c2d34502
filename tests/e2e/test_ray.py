"""Jobs on a real Ray cluster, through a real server: the same commands, another engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.core.errors import InvalidInput
from windlass.testing import invariants
from windlass.testing.environments import Unavailable
from windlass.testing.platform import Platform, wait_for
from windlass.testing.ray import Cluster, processes_of

pytestmark = pytest.mark.slow
WIDE = {"worker": {"count": 2, "cpus": 20, "gpus": 1}}  # no two of them fit on one node
SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("sum", x.item(), "devices", os.environ["CUDA_VISIBLE_DEVICES"], "last line", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        made = Cluster(nodes=2, cpus=32, gpus=2)
    except Unavailable as why:
        pytest.skip(f"no Ray here: {why}")
    with made:
        yield made


@pytest.fixture(scope="module")
def platform(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("ray-platform") / "home") as running:
        running.client.engines.add(
            "ray", "ray", {**cluster.options, "poll": "0.5", "lease": "300"}
        )
        wait_for(
            lambda: any(each["nodes"] == 2 for each in running.client.engines.list()),
            120,
            "its nodes are offered",
        )
        yield running
        invariants.check(running)
        wait_for(lambda: not cluster.left(), 120, "nothing of ours is left in the cluster")


def attempts_of(platform: Platform, job: Job) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = platform.client.http.get(f"/jobs/{job.id}")["attempts"]
    return found


def test_the_check_says_what_is_well_and_what_is_not(
    platform: Platform, cluster: Cluster, tmp_path: Path
) -> None:
    done = platform.cli("engine", "check", "ray")
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("2 of 3 nodes", "the home is shared", "is reached from the nodes"):
        assert words in done.stdout
    wrong = tmp_path / "token"
    wrong.write_text("0" * 64)
    engines = platform.client.engines
    engines.add("closed", "ray", {**cluster.options, "token-file": str(wrong)})
    engines.add("rayless", "ray", {**cluster.options, "python": sys.executable})
    with pytest.raises(InvalidInput, match="options.address"):
        engines.add("other", "ray", {})
    try:
        for name, words in (("closed", "oken"), ("rayless", "No module named 'ray'")):
            done = platform.cli("engine", "check", name)
            assert done.returncode == 1 and "WRONG  cluster" in done.stdout
            assert words in done.stdout
    finally:
        engines.delete("closed")
        engines.delete("rayless")


def test_a_torch_gang_over_two_nodes_meets_and_its_last_line_is_kept(
    platform: Platform, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "sum.py").write_text(SUM)
    command = [sys.executable, str(tmp_path / "sum.py")]
    job = platform.submit(command, framework="pytorch", roles=WIDE, engine="ray")
    ended = platform.wait(job, 180)
    assert ended.state == "succeeded", platform.client.jobs.why(job.id)
    said = platform.logs(job)
    assert said.count("sum 3.0 devices") == 2 and said.count("last line") == 2
    [attempt] = attempts_of(platform, job)
    assert set(attempt["nodes"]) == {"r1", "r2"}


def test_a_killed_worker_is_missed_and_the_next_attempt_resumes(platform: Platform) -> None:
    job = platform.witness("train", 40, 0.1, engine="ray")
    wait_for(lambda: platform.client.jobs.checkpoints(job.id), 120, "a checkpoint")
    platform.kill_worker(job)
    assert platform.wait(job, 180).state == "succeeded"
    assert len(attempts_of(platform, job)) == 2


def test_a_server_that_comes_back_knows_what_ran(platform: Platform) -> None:
    gate = platform.gate("restart")
    job = platform.witness("until", gate, engine="ray")
    platform.wait_state(job, "running", seconds=120)
    platform.kill()
    platform.start()
    gate.touch()
    assert platform.wait(job, 120).state == "succeeded"
    assert len(attempts_of(platform, job)) == 1


def test_a_cluster_of_its_own_ends_with_its_engine(platform: Platform, cluster: Cluster) -> None:
    options = {"address": "local", "python": str(cluster.python)}
    platform.client.engines.add("own", "ray", options)
    token_file = platform.home / "ray" / "own" / "token"
    try:
        wait_for(
            lambda: any(
                each["name"] == "own" and each["nodes"] for each in platform.client.engines.list()
            ),
            180,
            "its node is offered",
        )
        job = platform.submit("echo hello", engine="own")
        assert platform.wait(job, 120).state == "succeeded", platform.client.jobs.why(job.id)
        assert attempts_of(platform, job)[0]["nodes"] == ["own-1"]
        assert processes_of(token_file)
    finally:
        platform.client.engines.delete("own")
    wait_for(lambda: not processes_of(token_file), 60, "its processes have ended")
    wait_for(lambda: not token_file.parent.exists(), 60, "its folder is gone")


def test_a_lost_node_is_fenced_before_the_job_starts_again(
    platform: Platform, cluster: Cluster
) -> None:
    """R-F18: Ray gives the node up while what our actor started there goes on. The witness holds
    a lock, so two attempts alive at once would be told as a violation."""
    gate = platform.gate("lost")
    job = platform.witness("until", gate, engine="ray", limits={"grace": "1s"})
    platform.wait_state(job, "running", seconds=120)
    [attempt] = attempts_of(platform, job)
    [node] = attempt["nodes"]
    cluster.fell(node)
    try:
        wait_for(lambda: len(attempts_of(platform, job)) == 2, 240, "the next attempt")
        platform.wait_state(job, "running", seconds=120)
        gate.touch()
        assert platform.wait(job, 120).state == "succeeded", platform.client.jobs.why(job.id)
        first, second = attempts_of(platform, job)
        assert node not in second["nodes"]
        assert "fenced" in first["reason"], "the old worker lived on, and ended at the fence"
        assert not platform.said(job, "violation")
    finally:
        cluster.boot(node)
