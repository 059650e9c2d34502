"""Ray passes the suite that every engine passes."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_kit import RayKit

from windlass.engines.base import LaunchFailed, LaunchPlan, NodeLaunch, Seen, Sight
from windlass.engines.ray.engine import RayEngine
from windlass.engines.spawn import worker_command
from windlass.testing.engines import STUB_WORKER, EngineContract
from windlass.testing.environments import Unavailable
from windlass.testing.ray import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        made = Cluster(nodes=2)
    except Unavailable as why:
        pytest.skip(f"no Ray here: {why}")
    with made:
        yield made


def _facts(home: Path, attempt_id: str, node: str) -> dict[str, Any]:
    return {
        "api": 1, "attempt_id": attempt_id, "attempt": 1, "node": node, "cgroups": False,
        "members": [
            {"role": "worker", "index": 0, "nproc": 1, "gpu_ids": [], "command": ["true"]}
        ],
        "cache_dir": str(home / "cache"),
    }  # fmt: skip


class TestRayEngine(EngineContract):
    @pytest.fixture
    def engine_kit(self, tmp_path: Path, cluster: Cluster) -> RayKit:
        return RayKit(tmp_path, worker_command(STUB_WORKER), cluster, _facts)


def test_a_gang_without_room_is_given_up_with_the_reason(tmp_path: Path, cluster: Cluster) -> None:
    """Ray itself would wait for ever and say nothing."""
    kit = RayKit(tmp_path, worker_command(STUB_WORKER), cluster, _facts)
    big = {"cpus_milli": 20_000, "gpu_ids": []}

    def plan() -> LaunchPlan:
        attempt_id = secrets.token_hex(16)
        launch = {
            **_facts(tmp_path, attempt_id, "r1"), "members": [big],
            "stub": {"until": str(kit.gate())},
        }  # fmt: skip
        return LaunchPlan("0" * 32, attempt_id, 1, (NodeLaunch("r1", launch, "token"),))

    async def crowded() -> tuple[Seen, Seen]:
        engine = kit.engine()
        first, second = plan(), plan()
        try:
            await engine.launch(first)
            await _until(engine, first, Sight.ALIVE)
            await engine.launch(second)
            waiting = await _until(engine, second, Sight.STARTING)
            engine._wait_seconds = 0.0
            await _until(engine, second, Sight.DEAD)
            given_up = await engine.end(second.attempt_id, "r1")
            await engine.end(first.attempt_id, "r1")
        finally:
            await engine.stop()
        return waiting, given_up

    waiting, given_up = asyncio.run(crowded())
    assert "waits in Ray" in waiting.reason
    assert given_up.sight is Sight.ENDED and given_up.record is not None
    assert "no room" in given_up.record["reason"]


def test_a_bridge_that_died_is_built_again(tmp_path: Path, cluster: Cluster) -> None:
    kit = RayKit(tmp_path, worker_command(STUB_WORKER), cluster, _facts)

    async def again() -> int:
        engine = kit.engine()
        try:
            await engine.nodes()
            process = engine._cluster._process
            assert process is not None
            process.kill()
            await process.wait()
            return len(await engine.nodes())
        finally:
            await engine.stop()

    assert asyncio.run(again()) == 2


def test_jobs_of_several_people_start_only_where_that_was_allowed(
    tmp_path: Path, cluster: Cluster
) -> None:
    kit = RayKit(tmp_path, worker_command(STUB_WORKER), cluster, _facts)
    launch = {**_facts(tmp_path, "a" * 32, "r1"), "isolation": {"shared": True}}
    plan = LaunchPlan("0" * 32, "a" * 32, 1, (NodeLaunch("r1", launch, "token"),))

    async def refused() -> None:
        engine = kit.engine()
        try:
            await engine.launch(plan)
        finally:
            await engine.stop()

    with pytest.raises(LaunchFailed, match="together=yes") as caught:
        asyncio.run(refused())
    assert not caught.value.transient
    assert not (tmp_path / "attempts" / ("a" * 32)).exists()


def test_nothing_of_all_this_is_left_in_the_cluster(cluster: Cluster) -> None:
    ends = time.monotonic() + 60
    while left := cluster.left():
        assert time.monotonic() < ends, left


async def _until(engine: RayEngine, plan: LaunchPlan, sight: Sight) -> Seen:
    async with asyncio.timeout(120):
        while True:
            [seen] = await engine.observe([(plan.attempt_id, plan.nodes[0].node)])
            if seen.sight is sight:
                return seen
            await asyncio.sleep(0.05)
