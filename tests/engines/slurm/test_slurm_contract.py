"""Slurm passes the suite that every engine passes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_kit import SlurmKit

from windlass.engines.base import LaunchFailed, LaunchPlan, NodeLaunch, Sight
from windlass.engines.slurm.commands import Slurm
from windlass.engines.spawn import worker_command
from windlass.testing.engines import STUB_WORKER, EngineContract
from windlass.testing.slurm import Cluster, missing


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := missing():
        pytest.skip(f"no Slurm here: {why} (make system installs it)")
    with Cluster(tmp_path_factory.mktemp("slurm"), nodes=3) as found:
        yield found


def _facts(home: Path, attempt_id: str, node: str) -> dict[str, Any]:
    return {
        "api": 1, "attempt_id": attempt_id, "attempt": 1, "node": node, "cgroups": False,
        "members": [
            {"role": "worker", "index": 0, "nproc": 1, "gpu_ids": [], "command": ["true"]}
        ],
        "cache_dir": str(home / "cache"),
    }  # fmt: skip


class TestSlurmEngine(EngineContract):
    @pytest.fixture
    def engine_kit(self, tmp_path: Path, cluster: Cluster) -> Iterator[SlurmKit]:
        kit = SlurmKit(tmp_path, worker_command(STUB_WORKER), cluster, _facts)
        yield kit
        kit.clean()


def test_a_batch_gets_the_least_environment_and_waits_for_no_login_shell(
    tmp_path: Path, cluster: Cluster
) -> None:
    """Slurm ran one for each job, for most of a second, when it was told to pass on nothing."""
    slurm = Slurm({**cluster.environment, "OUR_SECRET": "x", "SBATCH_ACCOUNT": "nobody"})
    said = tmp_path / "said"
    script = f"#!/bin/sh\nenv > {said}.new\nmv {said}.new {said}\n"

    async def run() -> None:
        await slurm.submit(script, ["--job-name=least", "--output=/dev/null"], str(tmp_path))
        async with asyncio.timeout(120):
            while not said.exists():
                await asyncio.sleep(0.05)

    asyncio.run(run())
    names = {line.partition("=")[0] for line in said.read_text().splitlines()}
    assert {"PATH", "SLURM_JOB_ID"} <= names and not {"OUR_SECRET", "SBATCH_ACCOUNT"} & names
    told = logs(cluster)
    assert "Launching batch job" in told and "get env for user" not in told


def logs(cluster: Cluster) -> str:
    return "".join((cluster.folder / f"slurmd-{each}.log").read_text() for each in cluster.names)


def test_jobs_of_several_people_start_only_where_that_was_allowed(
    tmp_path: Path, cluster: Cluster
) -> None:
    kit = SlurmKit(tmp_path, worker_command(STUB_WORKER), cluster, _facts)
    launch = {**_facts(tmp_path, "a" * 32, "n1"), "isolation": {"shared": True}}
    plan = LaunchPlan("0" * 32, "a" * 32, 1, (NodeLaunch("n1", launch, "token"),))
    with pytest.raises(LaunchFailed, match="together=yes") as caught:
        asyncio.run(kit.engine().launch(plan))
    assert not caught.value.transient
    assert not (tmp_path / "attempts" / ("a" * 32)).exists()


def test_what_died_on_a_drained_node_ends_when_its_lease_is_over(
    tmp_path: Path, cluster: Cluster
) -> None:
    """Nothing can be started there to clean up, and it may take days until something can."""
    kit = SlurmKit(tmp_path, worker_command(STUB_WORKER), cluster, _facts)
    launch = {**_facts(tmp_path, "b" * 32, "n1"), "stub": {"until": str(kit.gate())}}
    plan = LaunchPlan("0" * 32, "b" * 32, 1, (NodeLaunch("n1", launch, "token"),))
    place = (plan.attempt_id, "n1")

    async def drained() -> list[str]:
        engine = kit.engine(lease_seconds=1.0)
        await engine.launch(plan)
        while (pid := kit.worker_pid(*place)) is None:
            await asyncio.sleep(0.05)
        cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
        os.kill(pid, signal.SIGKILL)
        while (await engine.observe([place]))[0].sight is not Sight.DEAD:
            await asyncio.sleep(0.05)
        while "wl-" in cluster.run("squeue", "-h", "-o", "%j"):
            await asyncio.sleep(0.05)
        said = []
        while (seen := await engine.end(*place)).sight is not Sight.ENDED:
            said.append(seen.reason)
            await asyncio.sleep(0.2)
        return said

    try:
        said = asyncio.run(asyncio.wait_for(drained(), 120))
    finally:
        cluster.run("scontrol", "update", "nodename=n1", "state=resume")
        kit.clean()
    assert said and "n1 takes no jobs" in said[0] and "ends itself within" in said[0]
