"""What this machine offers, whole or split into fake nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput
from windlass.core.resources import Resources
from windlass.engines.local import container, inventory
from windlass.engines.local.gpus import Gpu, parse_listing, visible
from windlass.engines.local.inventory import Machine, nodes_of, reserve_of

GIB = 2**30
TWO = (Gpu("0", "NVIDIA H200", "GPU-aaaa"), Gpu("1", "NVIDIA H200", "GPU-bbbb"))


def test_this_machine_is_one_node_with_a_reserve() -> None:
    [node] = nodes_of(inventory.look())
    assert node.name == node.engine == "local"
    assert node.capacity.cpus_milli > 0 and node.capacity.memory_bytes > 0
    assert node.capacity.slots >= 4
    assert node.reserve.memory_bytes >= 512 * 2**20
    assert node.boot_id


@pytest.mark.parametrize(
    ("cpus_milli", "memory", "reserve"),
    [
        (2000, 24 * GIB, (500, 24 * GIB // 20)),
        (1000, 2 * GIB, (0, GIB // 2)),
        (64000, 512 * GIB, (500, 512 * GIB // 20)),
        (2000, GIB // 2, (500, GIB // 4)),
    ],
)
def test_the_reserve_grows_with_the_machine(
    cpus_milli: int, memory: int, reserve: tuple[int, int]
) -> None:
    found = reserve_of(Machine(cpus_milli, memory))
    assert (found.cpus_milli, found.memory_bytes) == reserve


def test_capacity_is_net_of_the_reserve_and_slots_are_four_per_core() -> None:
    [node] = nodes_of(Machine(8000, 64 * GIB, TWO))
    assert node.capacity == Resources(
        cpus_milli=7500, memory_bytes=64 * GIB - 64 * GIB // 20, gpus=2, slots=32
    )
    assert node.gpu_ids == ("0", "1") and node.gpu_model == "NVIDIA H200"


def test_fake_nodes_share_the_machine_evenly() -> None:
    nodes = nodes_of(Machine(2000, 24 * GIB, TWO), fake_nodes=3, fake_gpus=8)
    assert [node.name for node in nodes] == ["fake-0", "fake-1", "fake-2"]
    assert {node.gpu_ids for node in nodes} == {tuple("01234567")}
    assert {node.gpu_model for node in nodes} == {"fake"}
    assert {node.capacity.slots for node in nodes} == {4}
    assert sum(node.capacity.cpus_milli for node in nodes) == 1500
    whole = sum(node.capacity.memory_bytes + node.reserve.memory_bytes for node in nodes)
    assert 24 * GIB - 6 <= whole <= 24 * GIB


def test_fake_gpus_alone_stand_on_the_one_node() -> None:
    [node] = nodes_of(Machine(2000, 24 * GIB), fake_gpus=2)
    assert (node.name, node.gpu_ids, node.gpu_model) == ("local", ("0", "1"), "fake")


def test_a_reserve_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="leaves nothing"):
        nodes_of(Machine(2000, GIB), reserve=Resources(memory_bytes=GIB))


def test_nvidia_smi_is_understood() -> None:
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5a6b0d1e-0000-1111-2222-333344445555)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-8e3b0c1d-0000-1111-2222-333344445555)\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-6a6b0d1e-0000-1111-2222-333344445555)\n"
    )
    assert [(gpu.id, gpu.model) for gpu in parse_listing(text)] == [
        ("0", "NVIDIA H100 80GB HBM3"),
        ("1", "NVIDIA H100 80GB HBM3"),
    ]


@pytest.mark.parametrize(
    ("border", "ids"),
    [(None, "01"), ("", ""), ("1", "1"), ("1,0", "01"), ("GPU-bb", "1"), ("0,7,1", "0")],
)
def test_gpus_outside_our_own_border_are_not_offered(border: str | None, ids: str) -> None:
    assert "".join(gpu.id for gpu in visible(list(TWO), border)) == ids


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_a_cgroup_v2_limit_anywhere_above_counts(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/box/memory.max": "1073741824\n",
            "sys/fs/cgroup/pod/memory.max": "max\n",
        },
    )
    assert container.cpu_limit_milli(root) == 1500
    assert container.memory_limit_bytes(root) == GIB


def test_a_cgroup_v1_limit_counts(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "536870912\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
        },
    )
    assert container.cpu_limit_milli(root) == 500
    assert container.memory_limit_bytes(root) == GIB // 2


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert container.cpu_limit_milli(tmp_path) is None
    assert container.memory_limit_bytes(tmp_path) is None
