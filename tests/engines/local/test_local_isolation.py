"""What this machine can give, as files and programs say it, and what a launch is then told."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput
from windlass.core.resources import Resources
from windlass.engines.local import gpus, inventory, isolation
from windlass.engines.local.isolation import Able, Policy
from windlass.worker import cgroups

HOME = Path("/srv/windlass")
FULL = Able(level=1, network=True)
NONE = Able(missing=("bubblewrap is not installed (apt install bubblewrap)",))


@pytest.mark.parametrize(
    ("wish", "asked", "able", "level"),
    [
        ("auto", {}, FULL, 0),
        ("auto", {"shared": True}, FULL, 1),
        ("auto", {"shared": True}, NONE, 0),
        ("auto", {"level": 1}, FULL, 1),
        ("0", {"shared": True}, FULL, 0),
        ("0", {"level": 1}, FULL, 1),
        ("1", {}, FULL, 1),
        # Never less than the job demands: where it cannot be had, the worker refuses.
        ("auto", {"level": 1}, NONE, 1),
    ],
)
def test_the_level_in_force(wish: str, asked: dict[str, object], able: Able, level: int) -> None:
    told = Policy(wish).told(asked, able, HOME, ["/dev/nvidia0"])
    assert told == {
        "level": level, "network": "host", "uids": [200_000, 265_535],
        "hidden": ["/srv/windlass"], "devices": ["/dev/nvidia0"],
    }  # fmt: skip


def test_a_demand_of_the_operator_that_cannot_be_met_says_what_is_missing() -> None:
    Policy("1").check(FULL)
    Policy("auto").check(NONE)
    with pytest.raises(InvalidInput, match="cannot be had on this machine: bubblewrap is not"):
        Policy("1").check(NONE)


@pytest.mark.parametrize("uids", [(0, 65535), (5000, 4000), (1 << 31, 1 << 32)])
def test_a_range_that_could_be_somebodys_is_refused(uids: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput):
        Policy("auto", uids)


def test_a_node_offers_what_it_can_in_words_of_the_scheduler() -> None:
    machine = inventory.Machine(4000, 8 << 30)
    (node,) = inventory.nodes_of(machine, reserve=Resources(), able=FULL)
    assert node.labels == ("isolation-1", "network-none") and node.isolation["level"] == "1"
    (node,) = inventory.nodes_of(machine, reserve=Resources(), able=NONE)
    assert node.labels == () and node.isolation["level"] == "0"


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_limits_of_version_1_are_found_by_controller(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/own\n3:pids:/\n0::/\n",
            "sys/fs/cgroup/memory/own/tasks": "",
            "sys/fs/cgroup/pids/tasks": "",
        },
    )
    found = isolation.limits_of(tmp_path)
    assert found == {"memory": "v1", "pids": "v1", "cpu": "none"}


def test_limits_of_version_2_come_from_a_group_above_that_passes_them_on(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/session.scope\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory pids",
            "sys/fs/cgroup/cgroup.subtree_control": "cpu memory pids",
            "sys/fs/cgroup/user.slice/cgroup.subtree_control": "memory pids",
            "sys/fs/cgroup/user.slice/session.scope/cgroup.subtree_control": "",
        },
    )
    assert set(isolation.limits_of(tmp_path).values()) == {"v2"}
    # The worker makes its groups in the nearest such group.
    mount = str(tmp_path / "sys/fs/cgroup")
    assert cgroups.passing_on(mount, f"{mount}/user.slice/session.scope") == f"{mount}/user.slice"


def test_without_cgroups_there_are_no_limits(tmp_path: Path) -> None:
    assert set(isolation.limits_of(tmp_path).values()) == {"none"}
    (tmp_path / "x").mkdir()
    assert cgroups.passing_on(str(tmp_path), str(tmp_path / "x")) == str(tmp_path / "x")


def test_only_the_granted_gpus_have_a_device_by_the_drivers_own_number(tmp_path: Path) -> None:
    cards = [gpus.Gpu("0", "A", "GPU-aaaa"), gpus.Gpu("1", "A", "GPU-bbbb")]
    lay(
        tmp_path,
        {
            "0000:01:00.0/information": "Model: \t A\nGPU UUID: \t GPU-aaaa\nDevice Minor: \t 3\n",
            "0000:02:00.0/information": "GPU UUID: GPU-bbbb\nDevice Minor: \t 1\n",
        },
    )
    minors = gpus.minors(cards, tmp_path)
    assert minors == {"0": 3, "1": 1}
    nodes = isolation.device_nodes(["0"], minors)
    assert "/dev/nvidia3" in nodes and "/dev/nvidiactl" in nodes and "/dev/nvidia1" not in nodes
    assert isolation.device_nodes([], minors) == []
    # A driver that does not tell: the id is taken for it.
    assert gpus.minors(cards, tmp_path / "none") == {"0": 0, "1": 1}
