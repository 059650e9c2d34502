"""What nodes offer, and what pods say, from the JSON of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.engines.kubernetes import states
from windlass.engines.kubernetes.offers import Choice, Toleration, offers, quantity, refusal
from windlass.engines.kubernetes.states import Phase

GIB = 2**30


def node(
    name: str = "node1",
    ready: str = "True",
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    unschedulable: bool = False,
    **allocatable: str,
) -> dict[str, Any]:
    there = {"cpu": "8", "memory": "16Gi", "pods": "110"} | {
        key.replace("__", "/").replace("_", "."): value for key, value in allocatable.items()
    }
    return {
        "metadata": {"name": name, "uid": name, "labels": labels or {}},
        "spec": {"taints": taints, "unschedulable": unschedulable},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": there,
            "nodeInfo": {"bootID": "boot-1"},
        },
    }


def pod(at: str = "node1", *containers: dict[str, str], **spec: Any) -> dict[str, Any]:
    shown = [{"resources": {"requests": each}} for each in containers]
    return {"metadata": {"name": "x"}, "spec": {"nodeName": at, "containers": shown, **spec}}


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("100m", "0.1"), ("2", "2"), ("1.5", "1.5"), ("2Gi", str(2 * GIB)), ("1e3", "1000"),
        ("5k", "5000"), ("3M", "3000000"), (4, "4"), (None, "0"), ("", "0"), ("many", "0"),
        ("1Zi", "0"),
    ],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_writes_them(text: object, amount: str) -> None:
    assert quantity(text) == quantity(amount)


def test_a_node_offers_what_others_pods_leave_of_it() -> None:
    others = [
        pod("node1", {"cpu": "500m", "memory": "1Gi"}, {"cpu": "1"}),
        pod(
            "node1",
            {"cpu": "100m"},
            initContainers=[{"resources": {"requests": {"cpu": "2"}}}],
            overhead={"memory": "1Gi"},
        ),
        pod("node2", {"cpu": "8"}),
    ]
    [found] = offers([node()], others, "k8s", Choice(), "")
    assert found.engine == "k8s" and found.boot_id == "boot-1"
    assert found.capacity.cpus_milli == 4500
    assert found.capacity.memory_bytes == 14 * GIB
    assert found.capacity.slots == 108


def test_a_node_that_is_full_of_others_offers_nothing_and_no_less() -> None:
    [found] = offers([node()], [pod("node1", {"cpu": "12", "memory": "20Gi"})], "k", Choice(), "")
    assert found.capacity.cpus_milli == found.capacity.memory_bytes == 0


def test_gpus_are_found_under_any_name() -> None:
    one = node("a", nvidia_com__gpu="4", labels={"nvidia.com/gpu.product": "A100"})
    two = node("b", amd_com__gpu="2")
    three = node("c", example_com__npu="8")
    others = [{**pod("a"), "spec": {"nodeName": "a", "containers": [
        {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    ]}}]  # fmt: skip
    found = {each.name: each for each in offers([one, two, three], others, "k", Choice(), "")}
    assert found["a"].capacity.gpus == 3 and found["a"].gpu_ids == ("0", "1", "2")
    assert found["a"].gpu_model == "A100"
    assert found["b"].capacity.gpus == 2 and found["c"].capacity.gpus == 0
    [named] = offers([three], [], "k", Choice(), "example.com/npu")
    assert named.capacity.gpus == 8


def test_labels_and_places_come_from_the_node() -> None:
    labels = {
        "topology.kubernetes.io/zone": "z1", "windlass.dev/rack": "r7", "disk": "fast",
        "kubernetes.io/hostname": "node1", "node-role.kubernetes.io/worker": "",
    }  # fmt: skip
    [found] = offers([node(labels=labels)], [], "k", Choice(), "")
    assert (found.rack, found.block) == ("r7", "z1")
    assert "disk=fast" in found.labels and "node-role.kubernetes.io/worker" in found.labels
    assert not any("hostname" in each for each in found.labels)


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("found", "choice", "why"),
    [
        (node(), Choice(), ""),
        (node(ready="False"), Choice(), "NotReady"),
        (node(ready="Unknown"), Choice(), "does not answer the cluster"),
        (node(unschedulable=True), Choice(), "cordoned"),
        (node(taints=[TAINT]), Choice(), "taint gpu=yes:NoSchedule"),
        (node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), Choice(), ""),
        (node(taints=[TAINT]), Choice((), (Toleration("gpu"),)), ""),
        (node(taints=[TAINT]), Choice((), (Toleration("gpu", "no"),)), "taint"),
        (node(taints=[TAINT]), Choice((), (Toleration("gpu", "yes", "NoExecute"),)), "taint"),
        (node(), Choice((("pool", "ours"),)), "label pool=ours"),
        (node(labels={"pool": "ours"}), Choice((("pool", "ours"),)), ""),
        (node("n" * 64), Choice(), "63"),
    ],
)
def test_only_nodes_that_take_our_pods_are_offered(
    found: dict[str, Any], choice: Choice, why: str
) -> None:
    said = refusal(found, choice)
    assert (why in said) if why else not said
    assert bool(offers([found], [], "k", choice, "")) is not bool(why)


def _status(state: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    statuses = [] if state is None else [{"state": state}]
    return {
        "metadata": {},
        "spec": {"containers": [{"image": "mine:1"}]},
        "status": {"containerStatuses": statuses, **more},
    }


@pytest.mark.parametrize(
    ("seen", "phase", "words"),
    [
        (_status({"running": {}}), Phase.RUNS, ""),
        (
            _status({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}),
            Phase.STUCK, "image mine:1 cannot be pulled: Back-off",
        ),
        (_status({"waiting": {"reason": "ErrImageNeverPull"}}), Phase.STUCK, "mine:1"),
        (_status({"waiting": {"reason": "ContainerCreating"}}), Phase.WAITS, ""),
        (
            _status(phase="Pending", conditions=[{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match "
                "Pod's node affinity.",
            }]),
            Phase.WAITS, "not scheduled: 1 Insufficient cpu",
        ),
        (
            _status({"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
            Phase.OVER, "OOMKilled",
        ),
        (
            _status({"terminated": {"exitCode": 1, "message": "Trace\nNo such file\n"}}),
            Phase.OVER, "exit code 1: No such file",
        ),
        (
            _status(phase="Failed", reason="Evicted", message="low on memory"),
            Phase.OVER, "evicted: low on memory",
        ),
        (
            _status({"terminated": {"exitCode": 137}}, phase="Failed", reason="NodeLost"),
            Phase.OVER, "node was lost",
        ),
        (
            _status({"terminated": {"reason": "StartError", "exitCode": 128,
                                    "message": "exec: python9: not found"}}),
            Phase.OVER, "could not be started: exec: python9",
        ),
        (_status(phase="Succeeded"), Phase.OVER, ""),
    ],
)  # fmt: skip
def test_a_pod_is_told_in_plain_words(seen: dict[str, Any], phase: Phase, words: str) -> None:
    found = states.read(seen)
    assert found.phase is phase and words in found.reason
