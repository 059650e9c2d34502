"""What Ray's nodes offer, what a gang asks of them, and what an operator may say: pure."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.errors import InvalidInput
from windlass.engines.base import NodeLaunch
from windlass.engines.ray.offers import bundle, by_name, lacking, node_of
from windlass.engines.ray.options import checked

GIB = 2**30
ADDRESS = "10.0.0.5:6379"


def _node(number: int, name: str = "10.0.0.5", **changes: Any) -> dict[str, Any]:
    return {
        "id": f"{number:056x}"[::-1], "name": name, "alive": True, "address": "10.0.0.5",
        "host": "g5", "labels": {"ray.io/node-id": "x", "zone": "a"},
        "resources": {
            "CPU": 8.0, "GPU": 2.0, "memory": float(4 * GIB), "object_store_memory": 1e9,
            "node:10.0.0.5": 1.0, "accelerator_type:A100": 1.0, "fpga": 1.0,
        },
        **changes,
    }  # fmt: skip


def _worker(*members: dict[str, Any]) -> NodeLaunch:
    return NodeLaunch("n", {"members": list(members)}, "token")


def test_a_node_is_read_with_its_devices_and_labels() -> None:
    node = node_of("g5", _node(1), "ray")
    assert node.capacity.cpus_milli == 8000 and node.capacity.memory_bytes == 4 * GIB
    assert node.capacity.slots == 32
    assert node.capacity.gpus == 2 and node.gpu_ids == ("0", "1") and node.gpu_model == "A100"
    assert node.labels == ("fpga", "zone=a")


def test_only_nodes_that_live_and_have_something_are_offered() -> None:
    head = _node(1, "head", resources={"memory": 1e9, "node:10.0.0.5": 1.0})
    dead = _node(2, "dead", alive=False)
    assert list(by_name([head, dead, _node(3, "good")])) == ["good"]


def test_nodes_of_one_name_are_told_apart_by_their_ids() -> None:
    assert list(by_name([_node(1), _node(2), _node(3, "else")])) == [
        "10.0.0.5-10000000", "10.0.0.5-20000000", "else",
    ]  # fmt: skip


def test_a_name_that_would_be_a_path_is_not_used() -> None:
    assert list(by_name([_node(1, "../x")])) == ["ray-100000000000"]


def test_a_share_is_the_sum_of_the_members_on_a_node() -> None:
    asked = bundle(
        _worker(
            {"cpus_milli": 1500, "memory_bytes": GIB, "gpu_ids": ["0"]},
            {"cpus_milli": 1000, "memory_bytes": GIB, "gpu_ids": ["1"]},
        ),
        _node(1),
    )
    assert (asked["CPU"], asked["memory"], asked["GPU"]) == (2.5, 2 * GIB, 2)
    assert not lacking(asked, _node(1))


def test_who_asks_for_no_cpu_holds_none() -> None:
    """Ray would else refuse on a full node what our scheduler has room for there."""
    asked = bundle(_worker({"cpus_milli": 0, "memory_bytes": 0, "gpu_ids": []}), _node(1))
    assert list(asked) == ["node:10.0.0.5"] and asked["node:10.0.0.5"] * 1000 <= 1


def test_what_a_node_never_has_is_told_before_ray_waits_for_it() -> None:
    asked = bundle(_worker({"cpus_milli": 9000, "gpu_ids": ["0", "1", "2"]}), _node(1))
    assert lacking(asked, _node(1)) == ["9 CPU of 8", "3 GPU of 2"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "options.address"),
        ({"address": "auto"}, "options.address"),
        ({"address": "10.0.0.5"}, "options.address"),
        ({"address": "http://10.0.0.5:6379"}, "options.address"),
        ({"address": "local", "token-file": "/t"}, "options.token-file"),
        ({"address": ADDRESS, "adress": "x"}, "options.adress"),
        ({"address": ADDRESS, "python": "python3"}, "options.python"),
        ({"address": ADDRESS, "token-file": "token"}, "options.token-file"),
        ({"address": ADDRESS, "url": "ftp://x"}, "options.url"),
        ({"address": ADDRESS, "together": "maybe"}, "options.together"),
        ({"address": ADDRESS, "poll": "nan"}, "options.poll"),
        ({"address": ADDRESS, "wait": "1"}, "options.wait"),
        ({"address": ADDRESS, "lease": "soon"}, "options.lease"),
    ],
)
def test_what_cannot_be_is_told_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        checked(given)


def test_options_are_read_as_they_are_meant() -> None:
    found = checked({"address": "ray://head:10001", "wait": "60", "python": "/opt/ray/bin/python"})
    assert found == {
        "address": "ray://head:10001", "wait_seconds": 60.0, "python": "/opt/ray/bin/python"
    }  # fmt: skip
