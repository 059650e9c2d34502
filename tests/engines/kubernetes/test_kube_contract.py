"""Kubernetes passes the suite that every engine passes, on a real cluster."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_kit import PODS, KubeKit

from windlass.engines.base import LaunchPlan, NodeLaunch, Seen, Sight
from windlass.engines.kubernetes import kubeconfig
from windlass.engines.kubernetes.api import Api
from windlass.engines.kubernetes.engine import KubernetesEngine
from windlass.engines.kubernetes.pods import name_of
from windlass.engines.spawn import worker_command
from windlass.testing.engines import STUB_WORKER, EngineContract, Hints
from windlass.testing.kubernetes import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def engine_kit(tmp_path: Path, kubernetes: Cluster) -> Iterator[KubeKit]:
    kit = KubeKit(tmp_path, worker_command(STUB_WORKER), kubernetes)
    yield kit
    kit.clean()


class TestKubernetesEngine(EngineContract):
    """Every pod of it is a real one on a real node."""


def _plan(kit: KubeKit, node: str, **launch: Any) -> LaunchPlan:
    attempt_id = secrets.token_hex(16)
    facts = {**kit.launch(attempt_id, node), "stub": {"until": str(kit.gate())}, **launch}
    return LaunchPlan("0" * 32, attempt_id, 1, (NodeLaunch(node, facts, "token"),))


async def _seen(engine: KubernetesEngine, plan: LaunchPlan, *sights: Sight) -> Seen:
    """What is seen once it is one of these."""
    place = (plan.attempt_id, plan.nodes[0].node)
    async with asyncio.timeout(120):
        while True:
            [seen] = await engine.observe([place])
            if seen.sight in sights:
                return seen
            await asyncio.sleep(0.1)


async def _reason(engine: KubernetesEngine, plan: LaunchPlan, words: str) -> str:
    """What is said of it once that holds these words."""
    place = (plan.attempt_id, plan.nodes[0].node)
    async with asyncio.timeout(120):
        while True:
            [seen] = await engine.observe([place])
            if words in seen.reason:
                return seen.reason
            await asyncio.sleep(0.1)


def test_what_the_cluster_says_of_a_pod_is_told_and_kept(engine_kit: KubeKit) -> None:
    """A pod that fits nowhere, an image that is not there, memory that does not suffice; whoever
    is deleted by hand is missed."""

    async def run() -> dict[str, str]:
        engine = engine_kit.engine()
        huge = [{"cpus_milli": 1_000_000, "gpu_ids": []}]
        plans = {
            "cpu": _plan(engine_kit, "node1", members=huge),
            "gpu": _plan(engine_kit, "node1", members=[{"gpu_ids": list("01234")}]),
            "image": _plan(engine_kit, "node2", image="windlass.local/absent:1"),
            "deleted": _plan(engine_kit, "node2"),
        }
        for plan in plans.values():
            await engine.launch(plan)
        await _seen(engine, plans["deleted"], Sight.ALIVE)
        name = name_of(plans["deleted"].attempt_id, "node2")
        engine_kit.cluster.api.delete(f"{PODS}/{name}", gracePeriodSeconds=1)
        said = {
            "cpu": await _reason(engine, plans["cpu"], "Insufficient cpu"),
            "gpu": await _reason(engine, plans["gpu"], "Insufficient nvidia.com/gpu"),
            "image": await _reason(engine, plans["image"], "cannot be pulled"),
        }
        await _seen(engine, plans["deleted"], Sight.DEAD)
        for key, plan in plans.items():
            ended = await engine.end(plan.attempt_id, plan.nodes[0].node)
            assert ended.sight is Sight.ENDED and ended.record is not None
            said[f"{key} ended"] = ended.record["reason"]
            await engine.forget(plan.attempt_id)
        await engine.stop()
        return said

    said = asyncio.run(run())
    assert said["cpu"] == "its pod is not scheduled: 1 Insufficient cpu"
    assert "image windlass.local/absent:1" in said["image"]
    assert "Insufficient cpu" in said["cpu ended"]
    assert "its pod was" in said["deleted ended"]


def test_a_gang_of_many_is_laid_down_piece_by_piece_and_made_once(
    engine_kit: KubeKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes are many where one is few: each pod is made while the files of the next are laid
    down. What was made, and taken away meanwhile, is not made again."""
    monkeypatch.setattr("windlass.engines.kubernetes.engine._FEW", 1)

    async def run() -> tuple[list[Sight], list[Sight], list[str]]:
        engine = engine_kit.engine()
        each = [_plan(engine_kit, node).nodes[0] for node in engine_kit.nodes]
        plan = LaunchPlan("0" * 32, secrets.token_hex(16), 1, tuple(each))
        places = [(plan.attempt_id, node) for node in engine_kit.nodes]
        await engine.launch(plan)
        first = [seen.sight for seen in await engine.observe(places)]
        for _, node in places:
            path = f"{PODS}/{name_of(plan.attempt_id, node)}"
            engine_kit.cluster.api.delete(path, gracePeriodSeconds=0)
        await engine.launch(plan)
        again = [seen.sight for seen in await engine.observe(places)]
        listed = engine_kit.cluster.api.get(PODS)["items"]
        left = [pod["metadata"]["name"] for pod in listed if plan.attempt_id in str(pod)]
        await engine.stop()
        return first, again, left

    first, again, left = asyncio.run(run())
    assert set(first) <= {Sight.STARTING, Sight.ALIVE} and len(first) == 2
    assert set(again) == {Sight.DEAD} and not left


def test_what_a_config_map_holds_is_not_read_to_know_that_it_is_there(
    engine_kit: KubeKit,
) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    name = f"there-{secrets.token_hex(4)}"
    about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    engine_kit.cluster.api.post(maps, {**about, "data": {"much": "x" * 100_000}})

    async def run() -> tuple[bool, bool]:
        api = Api(lambda: kubeconfig.load(str(engine_kit.cluster.kubeconfig), ""))
        found = await api.has(maps, name), await api.has(maps, "absent")
        await api.close()
        return found

    try:
        assert asyncio.run(run()) == (True, False)
    finally:
        engine_kit.cluster.api.delete(f"{maps}/{name}")


def test_the_check_tries_a_pod_and_tells_what_is_wrong(engine_kit: KubeKit) -> None:
    async def run(**more: str) -> dict[str, tuple[bool, str]]:
        engine = engine_kit.engine(**more)
        found = await engine.check()
        await engine.stop()
        return {what: (well, said) for what, well, said in found}

    good = asyncio.run(run())
    assert {what for what, (well, _) in good.items() if well} == {
        "API server", "rights", "nodes", "pod", "files",
    }  # fmt: skip
    assert "2 of 2 nodes" in good["nodes"][1]
    bad = asyncio.run(run(image="windlass.local/absent:1", url="http://127.0.0.1:9"))
    assert not bad["pod"][0] and "windlass.local/absent:1 cannot be pulled" in bad["pod"][1]
    bad = asyncio.run(run(url="http://127.0.0.1:9", python="/no/python"))
    assert not bad["pod"][0] and "/no/python" in bad["pod"][1]
    bad = asyncio.run(run(url="http://127.0.0.1:9"))
    assert bad["files"][0] and not bad["server"][0]


def test_a_node_that_is_lost_is_fenced_before_its_end_is_said(engine_kit: KubeKit) -> None:
    """R-F5, R-F18: the node goes on and is not heard of."""

    async def run() -> tuple[str, Seen]:
        engine = engine_kit.engine(lease="5")
        plan = _plan(engine_kit, "node2")
        await engine.launch(plan)
        await _seen(engine, plan, Sight.ALIVE)
        engine_kit.cluster.partition("node2")
        dead = await _seen(engine, plan, Sight.DEAD)
        assert "node2" not in [node.name for node in await engine.nodes()]
        first = await engine.end(plan.attempt_id, "node2")
        assert first.sight is Sight.DEAD and "ends itself within" in first.reason
        async with asyncio.timeout(120):
            # the stub knows of no fence: it holds its lock, as one that cannot be reached
            os.kill(engine_kit.worker_pid(plan.attempt_id, "node2") or 0, signal.SIGKILL)
            while (seen := await engine.end(plan.attempt_id, "node2")).sight is not Sight.ENDED:
                await asyncio.sleep(0.2)
        await engine.stop()
        return dead.reason, seen

    try:
        reason, seen = asyncio.run(run())
    finally:
        engine_kit.cluster.heal("node2")
    assert "node node2 is NotReady: does not answer the cluster" in reason
    assert seen.record is not None and "its node was lost" in seen.record["reason"]


def test_the_watch_outlives_the_api_server(engine_kit: KubeKit) -> None:
    """What ends while it is away is heard of when it is back."""

    async def run() -> None:
        engine, hints = engine_kit.engine(), Hints()
        await engine.start(hints)
        plan = _plan(engine_kit, "node1")
        await engine.launch(plan)
        await _seen(engine, plan, Sight.ALIVE)
        engine_kit.cluster.restart_api()  # here: it ends with the thread that started it
        pid = engine_kit.worker_pid(plan.attempt_id, "node1")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await hints.of(plan.attempt_id)
        assert (await engine.end(plan.attempt_id, "node1")).sight is Sight.ENDED
        await engine.stop()

    asyncio.run(run())
