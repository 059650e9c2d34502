"""The pods that gangs become, against a golden file (run this file as a program to write it anew).
Pod groups are checked here alone, on no live operator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from windlass.engines.base import NodeLaunch
from windlass.engines.kubernetes.bringing import packed
from windlass.engines.kubernetes.options import checked
from windlass.engines.kubernetes.pods import (
    Ask,
    Setting,
    group_path,
    manifest,
    name_of,
    pod_group,
    renumbered,
)

GOLDEN = Path(__file__).with_name("pods.json")
GIB = 2**30
ATTEMPT, JOB = "a" * 32, "b" * 32
SETTING = Setting(
    server="5e4f",
    home=Path("/shared/windlass"),
    worker="windlass-worker-0123",
    file="worker.pyz",
    arguments=("-I", "-S"),
    lease_seconds=60.0,
    user=1000,
    group=1000,
)
LAUNCH: dict[str, Any] = {
    "members": [
        {"index": 0, "cpus_milli": 2000, "memory_bytes": GIB, "gpu_ids": ["4", "7"]},
        {"index": 1, "cpus_milli": 500, "memory_bytes": GIB + 1, "gpu_ids": ["5"]},
    ],
    "grace_ms": 30_000,
    "checkpoint_dir": "/shared/windlass/checkpoints/b",
}
OPTIONS = {
    "plain": {"image": "windlass.local/train:1"},
    "everything": {
        "image": "windlass.local/train:1", "image-pull-secret": "one,two", "python": "/opt/python",
        "share": "nfs:files.example:/export:/shared", "service-account": "trainer",
        "priority-class": "low", "node-selector": "kind=gpu",
        "tolerations": "nvidia.com/gpu,kind=train:NoSchedule", "devices": "rdma/hca=1",
        "volumes": "host:/data:ro,pvc:sets:/sets,nfs:files.example:/x:/x",
        "owner": "apps/v1/Deployment/windlass/6f1c",
    },
    "claim": {"image": "i", "share": "pvc:home"},
    "nothing": {"image": "i", "share": "none"},
    "volcano": {"image": "i", "pod-group": "volcano", "queue": "train"},
    "coscheduling": {"image": "i", "pod-group": "coscheduling"},
    "kueue": {"image": "i", "pod-group": "kueue", "queue": "train"},
}  # fmt: skip


def _ask(name: str) -> Ask:
    ask: Ask = checked({"namespace": "jobs", **OPTIONS[name]})["ask"]
    return ask


def _pod(ask: Ask, launch: dict[str, Any] = LAUNCH, gpu: str = "nvidia.com/gpu") -> Any:
    worker = renumbered(NodeLaunch("node1", launch, "token"))
    return manifest(JOB, ATTEMPT, worker, SETTING, ask, gpu, members=2)


def _made() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in OPTIONS:
        ask = _ask(name)
        made[name] = {"pod": _pod(ask)}
        if group_path(ask):
            made[name] |= {"path": group_path(ask), "group": pod_group(ATTEMPT, "5e4f", ask, 2)}
    return made


@pytest.mark.parametrize("name", OPTIONS)
def test_a_pod_is_asked_for_as_it_was(name: str) -> None:
    assert _made()[name] == json.loads(GOLDEN.read_text())[name]


def test_a_name_follows_from_attempt_and_node() -> None:
    long = "ip-10-0-0-1." + "x" * 200
    assert name_of(ATTEMPT, "node1") == name_of(ATTEMPT, "node1") != name_of(ATTEMPT, "node2")
    assert len(name_of(ATTEMPT, long)) == len(name_of(ATTEMPT, "n")) <= 63


def test_the_image_of_a_job_wins() -> None:
    [container] = _pod(_ask("plain"), {**LAUNCH, "image": "mine:2"})["spec"]["containers"]
    assert container["image"] == "mine:2"


def test_devices_are_counted_from_nought_in_a_pod() -> None:
    worker = renumbered(NodeLaunch("node1", LAUNCH, "token"))
    assert [each["gpu_ids"] for each in worker.launch["members"]] == [["0", "1"], ["2"]]


def test_gpus_go_by_the_name_that_their_node_has_for_them() -> None:
    [container] = _pod(_ask("plain"), gpu="amd.com/gpu")["spec"]["containers"]
    assert container["resources"]["limits"]["amd.com/gpu"] == "3"


def test_of_the_home_a_pod_sees_its_own_attempt_and_checkpoints_alone() -> None:
    [container] = _pod(_ask("plain"))["spec"]["containers"]
    seen = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "share"]
    assert seen == [f"/shared/windlass/attempts/{ATTEMPT}", "/shared/windlass/checkpoints/b"]


def test_the_worker_fits_a_configmap_and_still_runs(tmp_path: Path) -> None:
    built = tmp_path / "worker.pyz"
    subprocess.run([sys.executable, "-m", "windlass.worker.pack", str(built)], check=True)
    worker = packed(built)
    assert worker == packed(built) and len(worker.content) < 2**20
    brought = tmp_path / "brought.pyz"
    brought.write_bytes(worker.content)
    done = subprocess.run([sys.executable, "-I", "-S", brought], capture_output=True, text=True)
    assert done.returncode == 2 and "worker.pyz run DIR" in done.stderr


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(_made(), indent=1) + "\n")
