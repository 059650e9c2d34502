"""Jobs on a real Kubernetes, through a real server: the same commands, only the engine differs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from windlass.client import Job
from windlass.testing import invariants
from windlass.testing.kubernetes import Cluster
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow
PODS = "/api/v1/namespaces/default/pods"
WIDE = {"worker": {"count": 2, "cpus": 0.6 * (os.cpu_count() or 1)}}  # no two fit on one node
SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("sum", x.item(), "by", os.environ["MASTER_ADDR"], "last line", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def platform(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Its engine's pods see the home, what the witnesses write, and this Python."""
    home = tmp_path_factory.mktemp("kubernetes-platform") / "home"
    listen = ("--host", "0.0.0.0", "--insecure", "--allow-host", kubernetes.address)
    with Platform(home, *listen) as running:
        running.evidence.mkdir()
        volumes = [f"host:{path}:ro" for path in kubernetes.host_paths]
        options = {
            "kubeconfig": str(kubernetes.kubeconfig), "image": kubernetes.image,
            "python": sys.executable, "volumes": ",".join([*volumes, f"host:{running.evidence}"]),
            "url": f"http://{kubernetes.address}:{running.port}", "poll": "1", "lease": "15",
        }  # fmt: skip
        running.client.engines.add("k8s", "kubernetes", options)
        wait_for(
            lambda: any(each["nodes"] == 2 for each in running.client.engines.list()),
            what="its nodes are offered",
        )
        yield running
        invariants.check(running)


def attempts_of(platform: Platform, job: Job) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = platform.client.http.get(f"/jobs/{job.id}")["attempts"]
    return found


def pods_of(cluster: Cluster, job: Job) -> list[str]:
    found = cluster.api.get(PODS, labelSelector=f"windlass.dev/job={job.id}")["items"]
    return [each["metadata"]["name"] for each in found]


def test_the_check_says_what_is_well(platform: Platform) -> None:
    done = platform.cli("engine", "check", "k8s")
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("2 of 2 nodes", "the home is shared", "is reached from the pods"):
        assert words in done.stdout


def test_a_torch_gang_over_two_nodes_meets_by_the_pods_addresses(platform: Platform) -> None:
    pytest.importorskip("torch")
    script = platform.evidence / "sum.py"
    script.write_text(SUM)
    job = platform.submit(
        [sys.executable, str(script)], framework="pytorch", roles=WIDE, engine="k8s"
    )
    ended = platform.wait(job, 180)
    assert ended.state == "succeeded", platform.client.jobs.why(job.id)
    said = platform.logs(job)
    assert said.count("sum 3.0") == said.count("last line") == 2
    assert "by 127." not in said
    [attempt] = attempts_of(platform, job)
    assert set(attempt["nodes"]) == {"node1", "node2"}


def test_a_failure_is_told_with_its_exit_code(platform: Platform) -> None:
    job = platform.witness("exit", 7, engine="k8s", retry={"times": 0})
    ended = platform.wait(job)
    assert ended.state == "failed" and "7" in platform.client.jobs.why(job.id)["sentence"]


def test_a_stop_lets_it_save_and_leaves_no_pod(platform: Platform, kubernetes: Cluster) -> None:
    job = platform.witness("train", 100000, 0.05, engine="k8s", limits={"grace": "30s"})
    wait_for(lambda: platform.said(job, "saved"), 60, "it trains")
    platform.client.jobs.stop(job.id)
    assert platform.wait(job).state == "cancelled"
    assert platform.said(job, "asked to stop")
    wait_for(lambda: not pods_of(kubernetes, job), what="its pod is gone")


def test_a_killed_pod_is_missed_and_the_next_attempt_resumes(
    platform: Platform, kubernetes: Cluster
) -> None:
    job = platform.witness("train", 40, 0.1, engine="k8s")
    wait_for(lambda: platform.client.jobs.checkpoints(job.id), 60, "a checkpoint")
    [pod] = pods_of(kubernetes, job)
    kubernetes.kill_pod(pod)
    assert platform.wait(job, 120).state == "succeeded"
    assert len(attempts_of(platform, job)) == 2
    assert not platform.said(job, "violation")


def test_a_server_and_an_api_server_that_come_back_know_what_ran(
    platform: Platform, kubernetes: Cluster
) -> None:
    """First the one is away, then the other; the job's only attempt goes on under both."""
    gate = platform.gate("restart")
    job = platform.witness("until", gate, engine="k8s")
    platform.wait_state(job, "running", seconds=60)
    platform.kill()
    platform.start()
    kubernetes.silence()
    try:
        local = platform.submit("true", engine="local")
        assert platform.wait(local).state == "succeeded"
        told = wait_for(
            lambda: next(
                (
                    each
                    for each in platform.client.engines.list()
                    if each["name"] == "k8s" and each["state"] == "unreachable"
                ),
                None,
            ),
            what="it is told to be unreachable",
        )
        assert told["reason"]
    finally:
        kubernetes.speak()
    gate.touch()
    assert platform.wait(job, 120).state == "succeeded"
    assert len(attempts_of(platform, job)) == 1


def test_a_dead_node_is_fenced_before_the_job_resumes_on_another(
    platform: Platform, kubernetes: Cluster
) -> None:
    """R-F18: dead or only out of reach is not to be told apart from here. The witness holds a
    lock, so two attempts alive at once would be told as a violation."""
    job = platform.witness("train", 100, 0.1, engine="k8s", limits={"grace": "1s"})
    wait_for(lambda: platform.client.jobs.checkpoints(job.id), 60, "a checkpoint")
    [attempt] = attempts_of(platform, job)
    [node] = attempt["nodes"]
    kubernetes.power_off(node)
    try:
        assert platform.wait(job, 240).state == "succeeded", platform.client.jobs.why(job.id)
    finally:
        kubernetes.boot(node)
    attempts = attempts_of(platform, job)
    assert len(attempts) == 2 and node not in attempts[-1]["nodes"]
    assert platform.said(job, "resumed")[-1]["step"] > 0
    assert not platform.said(job, "violation")


def test_what_runs_on_a_node_out_of_reach_ends_before_it_starts_elsewhere(
    platform: Platform, kubernetes: Cluster
) -> None:
    """R-F19: nobody can tell the node anything; its worker ends by itself."""
    gate = platform.gate("partition")
    job = platform.witness("until", gate, engine="k8s", limits={"grace": "1s"})
    wait_for(lambda: platform.said(job, "began"), 60, "it runs")
    [attempt] = attempts_of(platform, job)
    [node] = attempt["nodes"]
    kubernetes.partition(node)
    try:
        wait_for(lambda: len(platform.said(job, "began")) == 2, 240, "it runs elsewhere")
        gate.touch()
        assert platform.wait(job).state == "succeeded", platform.client.jobs.why(job.id)
    finally:
        kubernetes.heal(node)
    attempts = attempts_of(platform, job)
    assert len(attempts) == 2 and node not in attempts[-1]["nodes"]
    assert not platform.said(job, "violation")


def test_an_engine_with_jobs_stays_and_one_without_goes(
    platform: Platform, kubernetes: Cluster
) -> None:
    gate = platform.gate("busy")
    job = platform.witness("until", gate, engine="k8s")
    platform.wait_state(job, "running", seconds=60)
    done = platform.cli("engine", "rm", "k8s")
    assert done.returncode != 0 and "1 job is at work" in done.stderr
    gate.touch()
    platform.wait(job)
    wait_for(lambda: not pods_of(kubernetes, job), what="its pod is gone")
    platform.client.engines.delete("k8s")
    assert [each["name"] for each in platform.client.engines.list()] == ["local"]
