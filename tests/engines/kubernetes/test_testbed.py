"""The Kubernetes that other tests rely on is one: its pods run, meet, and die with their node."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from windlass.testing.kubernetes import Cluster, slot
from windlass.testing.kubernetes.programs import missing, run
from windlass.testing.platform import wait_for

pytestmark = pytest.mark.slow
PODS = "/api/v1/namespaces/default/pods"
SUM = """
import sys, torch, torch.distributed as dist
rank, master = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://{master}:29500", rank=rank, world_size=2)
x = torch.ones(1) * (rank + 1)
dist.all_reduce(x)
print("sum", x.item(), flush=True)
dist.destroy_process_group()
"""


class Bed:
    """Pods of one test; they are removed after it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.api = cluster, cluster.api
        self._made: list[str] = []

    def run(self, node: str, *words: str, gpus: int = 0) -> str:
        name = f"bed-{secrets.token_hex(4)}"
        paths = self.cluster.host_paths
        container: dict[str, Any] = {
            "name": "it",
            "image": self.cluster.image,
            "imagePullPolicy": "Never",
            "command": [sys.executable, *words],
            "volumeMounts": [
                {"name": f"at{n}", "mountPath": path, "readOnly": True}
                for n, path in enumerate(paths)
            ],
        }
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        spec = {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
            "volumes": [
                {"name": f"at{n}", "hostPath": {"path": path}} for n, path in enumerate(paths)
            ],
        }
        self.api.post(PODS, {"metadata": {"name": name}, "spec": spec})
        self._made.append(name)
        return name

    def status(self, pod: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"{PODS}/{pod}")["status"]
        return found

    def until(self, pod: str, *phases: str) -> dict[str, Any]:
        wait_for(lambda: self.status(pod)["phase"] in phases, what=f"{pod} is {phases}")
        return self.status(pod)

    def logs(self, pod: str) -> str:
        return self.api.text(f"{PODS}/{pod}/log")

    def clear(self) -> None:
        for name in self._made:
            self.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)


@pytest.fixture
def bed(kubernetes: Cluster) -> Iterator[Bed]:
    made = Bed(kubernetes)
    yield made
    made.clear()


def processes(mark: str) -> list[int]:
    """Of the whole machine: a node's are seen from outside too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_torch_gang_of_two_nodes_meets_by_the_pods_addresses(bed: Bed) -> None:
    pytest.importorskip("torch")
    first = bed.run("node1", "-c", SUM, "0", "0.0.0.0")
    wait_for(lambda: bed.status(first).get("podIP"), what="its address")
    address = bed.status(first)["podIP"]
    second = bed.run("node2", "-c", SUM, "1", address)
    assert bed.until(second, "Succeeded", "Failed")["phase"] == "Succeeded", bed.logs(second)
    assert bed.until(first, "Succeeded", "Failed")["phase"] == "Succeeded", bed.logs(first)
    for pod in (first, second):
        assert bed.logs(pod).endswith("sum 3.0\n")
    assert bed.status(first)["hostIP"] != bed.status(second)["hostIP"]


def test_an_exit_code_is_told_and_gpus_are_counted(bed: Bed) -> None:
    failing = bed.run("node1", "-c", "raise SystemExit(7)", gpus=3)
    waiting = bed.run("node1", "-c", "pass", gpus=5)
    [container] = bed.until(failing, "Failed", "Succeeded")["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 7
    condition = wait_for(lambda: bed.status(waiting).get("conditions"), what="it cannot be placed")
    assert "Insufficient nvidia.com/gpu" in condition[0]["message"]


def test_a_pod_with_an_account_reaches_the_api_server(bed: Bed) -> None:
    """By what is in every pod: the service's address, the account's token, the authority."""
    ask = """
import os, ssl, urllib.request
at = "/var/run/secrets/kubernetes.io/serviceaccount/"
url = "https://%(KUBERNETES_SERVICE_HOST)s:%(KUBERNETES_SERVICE_PORT)s/version" % os.environ
token, trusted = open(at + "token").read(), ssl.create_default_context(cafile=at + "ca.crt")
asked = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
print(urllib.request.urlopen(asked, context=trusted).status)
"""
    pod = bed.run("node2", "-c", ask)
    assert bed.until(pod, "Succeeded", "Failed")["phase"] == "Succeeded", bed.logs(pod)
    assert bed.logs(pod).strip() == "200"


def test_what_runs_outlives_the_api_server(bed: Bed) -> None:
    mark = secrets.token_hex(8)
    pod = bed.run("node1", "-c", "import signal; signal.pause()", mark)
    bed.until(pod, "Running")
    pids = processes(mark)
    bed.cluster.silence()
    with pytest.raises(httpx.ConnectError):
        bed.api.get(f"{PODS}/{pod}")
    bed.cluster.speak()
    assert bed.status(pod)["phase"] == "Running"
    assert processes(mark) == pids and len(pids) == 1


def test_a_partitioned_node_is_missed_while_its_processes_go_on(bed: Bed) -> None:
    mark = secrets.token_hex(8)
    pod = bed.run("node2", "-c", "import signal; signal.pause()", mark)
    bed.until(pod, "Running")
    bed.cluster.partition("node2")
    try:
        bed.cluster.wait_lost("node2")
        assert len(processes(mark)) == 1
    finally:
        bed.cluster.heal("node2")
    bed.cluster.wait_ready("node1")
    assert len(processes(mark)) == 1


def test_a_node_without_power_takes_its_processes_with_it(bed: Bed) -> None:
    mark = secrets.token_hex(8)
    pod = bed.run("node2", "-c", "import signal; signal.pause()", mark)
    bed.until(pod, "Running")
    assert len(processes(mark)) == 1
    bed.cluster.power_off("node2")
    try:
        assert processes(mark) == []
        bed.cluster.wait_lost("node2")
        bed.cluster.wait_ready("node1")
    finally:
        bed.cluster.boot("node2")
    bed.until(bed.run("node2", "-c", "pass"), "Succeeded")


@pytest.mark.engines
def test_what_a_killed_run_left_is_removed_by_the_next() -> None:
    if why := missing():
        pytest.skip(f"no Kubernetes here: {why}")
    mark = secrets.token_hex(8)
    holder = """
import subprocess, sys
from windlass.testing.kubernetes import slot
from windlass.testing.kubernetes.programs import CGROUPS, run
mine = slot.claim()
mine.lay()
run("ip", "netns", "add", mine.namespace(1))
inner = CGROUPS / "memory" / mine.cgroup / "node1"
inner.mkdir(parents=True)
pod = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", sys.argv[1]])
(inner / "cgroup.procs").write_text(str(pod.pid))
print(mine.number, flush=True)
pod.wait()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", holder, mark], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    number = int(process.stdout.readline())
    other = slot.claim()
    assert other.number != number  # held by one that lives
    other.release()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(processes(mark)) == 1
    mine = slot.claim()
    try:
        assert mine.number == number
        assert processes(mark) == []
        assert not list(Path("/sys/fs/cgroup").glob(f"*/{mine.cgroup}"))
        assert not list(Path("/run/netns").glob(f"{mine.bridge}-*"))
        names = [link["ifname"] for link in json.loads(run("ip", "-j", "link", "show"))]
        assert mine.bridge not in names
    finally:
        mine.release()
