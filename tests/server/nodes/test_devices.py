"""GPUs one by one: whose they are, and which rank's samples are of which."""

from __future__ import annotations

from typing import Any

from windlass.core.jobs import JobSpec
from windlass.server.nodes.devices import Device, Live, devices, of_node


def live(job: str, spec: dict[str, Any], *placed: tuple[str, int, str, list[str]]) -> Live:
    placement = [
        {"role": role, "index": index, "node": node, "gpu_ids": gpus}
        for role, index, node, gpus in placed
    ]
    return Live(job, job, "p", JobSpec.model_validate({"run": "true", **spec}), placement)


def test_ranks_are_counted_over_roles_and_members() -> None:
    job = live(
        "a", {"roles": {"worker": {"count": 2, "gpus": 2}, "chief": {"count": 1, "gpus": 1}}},
        ("worker", 1, "n2", ["0", "1"]), ("worker", 0, "n1", ["1", "2"]),
        ("chief", 0, "n1", ["0"]),
    )  # fmt: skip
    # The chief is rank 0; then each worker has two ranks, and each of them tells of both GPUs.
    sampled = {
        "a": {
            0: {"gpu0_percent": 10.0, "node_memory_bytes": 5.0, "node_cpu_percent": 150.0},
            1: {"gpu0_percent": 20.0, "gpu1_percent": 30.0, "gpu1_celsius": 60.0},
            4: {"gpu0_percent": 40.0, "gpu1_memory_bytes": 7.0},
        }
    }
    found = devices([job], sampled)
    assert {where: device.seen for where, device in found.items()} == {
        ("n1", "0"): {"percent": 10.0}, ("n1", "1"): {"percent": 20.0},
        ("n1", "2"): {"percent": 30.0, "celsius": 60.0}, ("n2", "0"): {"percent": 40.0},
        ("n2", "1"): {"memory_bytes": 7.0},
    }  # fmt: skip
    assert of_node([job], sampled, "n1") == {"node_memory_bytes": 5.0, "node_cpu_percent": 150.0}
    assert of_node([job], sampled, "n2") == {}


def test_a_shared_one_has_several_and_a_silent_one_says_nothing() -> None:
    one = live("a", {"roles": {"worker": {"gpu_share": 0.5}}}, ("worker", 0, "n1", ["0"]))
    other = live("b", {"roles": {"worker": {"gpu_share": 0.5}}}, ("worker", 0, "n1", ["0"]))
    assert devices([one, other], {}) == {("n1", "0"): Device((one, other), {})}
