"""What a gang asks Slurm for, and what an operator may say: pure."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from windlass.core.errors import InvalidInput
from windlass.core.resources import Resources
from windlass.engines.base import LaunchPlan, NodeLaunch
from windlass.engines.slurm.commands import _fields
from windlass.engines.slurm.offers import node_of, usable
from windlass.engines.slurm.options import checked
from windlass.engines.slurm.script import Ask, Share, batch

GIB = 2**30


def _member(cpus: int = 0, memory: int = 0, gpus: int = 0) -> dict[str, Any]:
    return {
        "role": "worker", "index": 0, "cpus_milli": cpus, "memory_bytes": memory,
        "gpu_ids": [str(number) for number in range(gpus)],
    }  # fmt: skip


def _plan(**nodes: list[dict[str, Any]]) -> LaunchPlan:
    workers = tuple(NodeLaunch(node, {"members": found}, "t") for node, found in nodes.items())
    return LaunchPlan("0" * 32, "a" * 32, 1, workers)


def _batch(plan: LaunchPlan, ask: Ask = Ask()) -> tuple[list[str], list[str]]:  # noqa: B008
    folders = {each.node: f"/home/it's {each.node}" for each in plan.nodes}
    made = batch(plan, "wl-x", folders, ["/opt/python", "w.pyz"], ask, {"PATH": "/bin:/my dir"})
    return list(made.options), made.script.splitlines()


def test_a_share_is_the_sum_of_the_members_on_a_node() -> None:
    plan = _plan(n1=[_member(1500, GIB, 1), _member(1000, GIB + 1, 2)])
    assert Share.of(plan.nodes[0]) == Share(cpus=3, mebibytes=2049, gpus=3)
    assert Share.of(_plan(n1=[_member()]).nodes[0]) == Share(cpus=1, mebibytes=0, gpus=0)


def test_nodes_alike_are_one_request() -> None:
    options, script = _batch(_plan(n1=[_member(2000)], n2=[_member(2000)]), Ask(partition="gpu"))
    assert ":" not in options
    assert "--nodelist=n1,n2" in options and "--nodes=2" in options
    assert "--partition=gpu" in options and "--no-requeue" in options
    steps = [line for line in script if line.startswith("(srun")]
    assert len(steps) == 2 and "--het-group" not in "".join(steps)


def test_nodes_that_need_unlike_shares_are_parts_of_one_job() -> None:
    options, script = _batch(_plan(n1=[_member(1000)], n2=[_member(1000, 0, 4)]))
    first, second = " ".join(options).split(" : ")
    assert "--nodelist=n1" in first and "--gres" not in first
    assert "--nodelist=n2" in second and "--gres=gpu:4" in second
    steps = [line for line in script if line.startswith("(srun")]
    assert "--het-group=0" in steps[0] and "--het-group=1" in steps[1]


def test_words_of_a_path_stay_one_word() -> None:
    _, script = _batch(_plan(n1=[_member()]))
    assert "export PATH='/bin:/my dir'" in script
    [step] = [line for line in script if line.startswith("(srun")]
    words = shlex.split(step.partition("; echo")[0].lstrip("("))
    assert words[-3:] == ["w.pyz", "run", "/home/it's n1"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"partiton": "gpu"}, "options.partiton"),
        ({"partition": "gpu; rm -rf /"}, "options.partition"),
        ({"url": "ftp://x"}, "options.url"),
        ({"poll": "0"}, "options.poll"),
        ({"together": "maybe"}, "options.together"),
        ({"poll": "nan"}, "options.poll"),
        ({"lease": "soon"}, "options.lease"),
        ({"sbatch": "--time='1"}, "options.sbatch"),
        ({"sbatch": "--job-name=x"}, "engine's own"),
        ({"sbatch": "-Jx"}, "engine's own"),
        ({"sbatch": "evil"}, "options.sbatch"),
    ],
)
def test_what_cannot_be_is_told_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        checked(given)


def test_options_are_read_as_they_are_meant() -> None:
    found = checked({"partition": "gpu", "poll": "5", "sbatch": "--time=60 --constraint='a&b'"})
    assert found == {
        "partition": "gpu", "poll_seconds": 5.0, "options": ["--time=60", "--constraint=a&b"],
    }  # fmt: skip


LINE = (
    "NodeName=g1 Arch=x86_64 CPUEfctv=62 CPUTot=64 AvailableFeatures=ib,a100 "
    "Gres=gpu:a100:4(S:0-1) NodeAddr=10.0.0.1 OS=Linux 6.1.0 #1 SMP RealMemory=512000 "
    "State=IDLE Partitions=gpu,all BootTime=2026-01-01T00:00:00"
)


def test_a_node_is_read_with_its_devices_and_features() -> None:
    fields = _fields(LINE)
    assert fields["OS"] == "Linux 6.1.0 #1 SMP"
    node = node_of(fields, "slurm", Resources(cpus_milli=2000))
    assert node.capacity.cpus_milli == 60_000 and node.reserve.cpus_milli == 2000
    assert node.capacity.gpus == 4 and node.gpu_model == "a100"
    assert node.labels == ("ib", "a100") and node.boot_id


@pytest.mark.parametrize(
    ("state", "good"),
    [
        ("IDLE", True), ("MIXED", True), ("ALLOCATED", True), ("IDLE*", False), ("DOWN", False),
        ("IDLE+DRAIN", False), ("MIXED+DRAIN", False), ("DOWN*+DRAIN", False),
        ("IDLE+MAINT", False),
    ],
)  # fmt: skip
def test_only_nodes_that_take_jobs_are_offered(state: str, good: bool) -> None:
    assert usable({"State": state}) is good
