"""Claims about Kubernetes, against its own API server on this machine:

from submit to the first line of output takes at most 1.3 times what `kubectl create` of the same
pod by hand does; a gang of 100 workers is created at 0.7 times the rate at which the API server
takes those pods over as many connections; 200 pods whose states change cost the server a fifth of
a core.

The first is on a real node. The others are on nodes that are told to the API server and have no
kubelet, as their pods have no processes: they are made, scheduled, watched, changed and listed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx

from benchmarks import first_line
from benchmarks.measure import (
    Row,
    at_least,
    at_most,
    below,
    cpu_seconds,
    folder,
    interleave,
    median,
    milliseconds,
    per_second,
    script,
)
from windlass.engines.base import LaunchPlan, NodeLaunch
from windlass.engines.kubernetes import kubeconfig
from windlass.engines.kubernetes.api import Api
from windlass.engines.kubernetes.engine import KubernetesEngine
from windlass.engines.kubernetes.options import checked
from windlass.engines.kubernetes.pods import Setting, manifest
from windlass.testing.kubernetes import Cluster, missing
from windlass.testing.platform import Platform, wait_for

Object = dict[str, Any]

ROUNDS, GANG_ROUNDS = 11, 7
MEMBERS, TRACKED = 100, 200
CONNECTIONS = 16
CHANGES_PER_SECOND = 20
TRACK_SECONDS = 30.0
PODS = "/api/v1/namespaces/default/pods"
REAL, TOLD = "bench=real", "bench=told"


def measure(*, quick: bool = False) -> list[Row]:
    if why := missing():
        raise RuntimeError(f"no Kubernetes here: {why}")
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        cluster = stack.enter_context(Cluster(place / "kubernetes", nodes=1, lost_seconds=36_000))
        label(cluster, "node1", REAL)
        platform = stack.enter_context(server(cluster, place))
        rows = started(platform, cluster, place, 2 if quick else ROUNDS)
        names = tell_nodes(cluster, 10 if quick else MEMBERS)
        rows += created(cluster, place, names, 1 if quick else GANG_ROUNDS)
        rows += tracked(
            platform, cluster, len(names), 20 if quick else TRACKED, 2 if quick else TRACK_SECONDS
        )
        return rows


@contextmanager
def server(cluster: Cluster, place: Path) -> Iterator[Platform]:
    """A server with the engine `k8s` over the cluster's real node."""
    listen = ("--host", "0.0.0.0", "--insecure", "--allow-host", cluster.address)
    with Platform(place / "home", *listen) as platform:
        url = f"http://{cluster.address}:{platform.port}"
        first_line.add(platform, "k8s", "kubernetes", options(cluster, REAL, url=url), 1)
        yield platform


def options(cluster: Cluster, nodes: str, **more: str) -> dict[str, str]:
    return {
        "kubeconfig": str(cluster.kubeconfig), "image": cluster.image, "python": sys.executable,
        "volumes": ",".join(f"host:{path}:ro" for path in cluster.host_paths),
        "node-selector": nodes, **more,
    }  # fmt: skip


def label(cluster: Cluster, node: str, pair: str) -> None:
    key, _, value = pair.partition("=")
    cluster.api.patch(
        f"/api/v1/nodes/{node}", {"op": "add", "path": f"/metadata/labels/{key}", "value": value}
    )


# The first line


def started(platform: Platform, cluster: Cluster, place: Path, rounds: int) -> list[Row]:
    with httpx.Client(
        base_url=cluster.url, headers={"Authorization": f"Bearer {cluster.token}"},
        verify=kubeconfig.load(str(cluster.kubeconfig), "").address.tls or True,
        trust_env=False, timeout=first_line.LIMIT_SECONDS,
    ) as http:  # fmt: skip
        found = interleave(
            {
                "windlass": lambda: first_line.ours(platform, engine="k8s"),
                "kubectl": lambda: by_hand(cluster, http, place),
            },
            rounds,
        )
    first_line.tell(found)
    claim = "submit → first line on Kubernetes (kubectl create of such a pod)"
    return [at_most(claim, median(found["windlass"]), median(found["kubectl"]), 1.3, milliseconds)]


def by_hand(cluster: Cluster, http: httpx.Client, place: Path) -> float:
    """kubectl creates it; that it runs is watched for, so that its log is read as soon as there
    is one."""
    name = f"by-hand-{secrets.token_hex(4)}"
    path = place / "pod.json"
    path.write_text(json.dumps(plain_pod(cluster, name)))
    began = time.perf_counter()
    subprocess.run(
        ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "create", "-f", str(path)],
        check=True, capture_output=True,
    )  # fmt: skip
    query = {"watch": "true", "fieldSelector": f"metadata.name={name}"}
    with http.stream("GET", PODS, params=query) as events:
        for line in events.iter_lines():
            statuses = json.loads(line)["object"]["status"].get("containerStatuses") or [{}]
            if (statuses[0].get("state") or {}).keys() & {"running", "terminated"}:
                break
    with http.stream("GET", f"{PODS}/{name}/log", params={"follow": "true"}) as said:
        spent = next(
            time.perf_counter() - began for line in said.iter_lines() if first_line.MARK in line
        )
    wait_for(
        lambda: cluster.api.get(f"{PODS}/{name}")["status"]["phase"] == "Succeeded",
        what=f"pod {name} ends",
    )
    cluster.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
    return spent


def plain_pod(cluster: Cluster, name: str) -> Object:
    """The command in the same image, which needs this machine's Python."""
    paths = list(enumerate(cluster.host_paths))
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": cluster.image, "imagePullPolicy": "IfNotPresent",
                "command": first_line.COMMAND, "resources": {"requests": {"cpu": "10m"}},
                "volumeMounts": [
                    {"name": f"host-{at}", "mountPath": path, "readOnly": True}
                    for at, path in paths
                ],
            }],
            "volumes": [{"name": f"host-{at}", "hostPath": {"path": path}} for at, path in paths],
        },
    }  # fmt: skip


# A gang


def tell_nodes(cluster: Cluster, count: int) -> list[str]:
    """Nodes without a kubelet. That nobody hears of them matters to nobody for hours."""
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    names = [f"told-{number}" for number in range(count)]
    key, _, value = TOLD.partition("=")
    for name in names:
        cluster.api.post(
            "/api/v1/nodes",
            {
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {key: value}},
                "status": {
                    "capacity": room, "allocatable": room,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "Told"}],
                },
            },
        )  # fmt: skip
    wait_for(lambda: all(map(cluster.is_ready, names)), what="the nodes are ready")
    return names


def created(cluster: Cluster, place: Path, names: list[str], rounds: int) -> list[Row]:
    return asyncio.run(_created(cluster, place, names, rounds))


async def _created(cluster: Cluster, place: Path, names: list[str], rounds: int) -> list[Row]:
    home = place / "gangs"
    (home / "attempts").mkdir(parents=True)
    worker = place / "home" / "worker.pyz"
    given = checked(options(cluster, TOLD))
    engine = KubernetesEngine(home, [sys.executable, "-I", "-S", str(worker)], **given)
    api = Api(lambda: kubeconfig.load(str(cluster.kubeconfig), ""))
    setting = Setting("bare", home, "windlass-worker", worker.name, (), 60.0, 0, 0)
    rates: dict[str, list[float]] = {"windlass": [], "bare": []}
    await engine.start(lambda attempt_id: None)
    try:
        for number in range(rounds + 1):  # the first one warms up
            attempt = secrets.token_hex(16)
            plan = gang(attempt, names)
            began = time.perf_counter()
            await engine.launch(plan)
            ours = len(names) / (time.perf_counter() - began)
            await away(api)
            bare = secrets.token_hex(16)
            made = [
                manifest("job", bare, each, setting, given["ask"], "", len(names))
                for each in gang(bare, names).nodes
            ]
            theirs = len(names) / await posted(api, made)
            await away(api)
            if number:
                rates["windlass"].append(ours)
                rates["bare"].append(theirs)
    finally:
        await engine.stop()
        await api.close()
    claim = f"pods of a {len(names)}-worker gang a second (bare requests, {CONNECTIONS} at once)"
    return [at_least(claim, median(rates["windlass"]), median(rates["bare"]), 0.7, per_second)]


def gang(attempt_id: str, names: list[str]) -> LaunchPlan:
    member = {"role": "worker", "nproc": 1, "gpu_ids": [], "cpus_milli": 1000, "command": ["true"]}
    nodes = tuple(
        NodeLaunch(
            name,
            {"api": 1, "attempt_id": attempt_id, "attempt": 1, "node": name,
             "members": [{**member, "index": number}]},
            "token",
        )
        for number, name in enumerate(names)
    )  # fmt: skip
    return LaunchPlan("job", attempt_id, 1, nodes)


async def posted(api: Api, pods: list[Object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    await asked(api, [("POST", PODS, pod) for pod in pods])
    return time.perf_counter() - began


async def away(api: Api) -> None:
    """Every pod, at once: of a node without a kubelet nobody would say that it ended."""
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    while found := await api.items(PODS):
        await asked(
            api, [("DELETE", f"{PODS}/{each['metadata']['name']}", body) for each in found]
        )
    await asyncio.sleep(1.0)  # the cluster's other programs have heard of it


async def asked(api: Api, requests: list[tuple[str, str, Object]]) -> None:
    gate = asyncio.Semaphore(CONNECTIONS)

    async def one(method: str, path: str, body: Object) -> None:
        async with gate:
            await api.ask(method, path, body)

    await asyncio.gather(*(one(*each) for each in requests))


# States


def tracked(
    platform: Platform, cluster: Cluster, nodes: int, pods: int, seconds: float
) -> list[Row]:
    """What the server spends while jobs of one pod each start, and their pods' states change."""
    assert platform.process is not None
    url = f"http://{cluster.address}:{platform.port}"
    first_line.add(platform, "told", "kubernetes", options(cluster, TOLD, url=url), nodes)
    for _ in range(pods):
        platform.submit(first_line.COMMAND, engine="told", roles={"worker": {"cpus": 1}})
    wait_for(lambda: len(names_of(cluster)) == pods, 300, "their pods are made")
    names = names_of(cluster)
    for name in names:
        change(cluster, name, 0)
    pid = platform.process.pid
    idle, _ = share(cluster, pid, names, 0, seconds)
    busy, changes = share(cluster, pid, names, CHANGES_PER_SECOND, seconds)
    for name in names:
        cluster.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
    told = f"{pods} pods' states tracked, {changes:.0f} changes a second, a look at all every 10 s"
    return [
        below(f"{told}: share of a core", busy, 0.2, lambda value: f"{value:.3f}"),
        Row(f"{pods} pods, none changes: share of a core", f"{idle:.3f}", "", "", "", None),
    ]  # fmt: skip


def share(
    cluster: Cluster, pid: int, names: list[str], rate: float, seconds: float
) -> tuple[float, float]:
    """Of a core, that the process takes while so many states change a second; and how many did."""
    time.sleep(5.0)
    before, began = cpu_seconds(pid), time.perf_counter()
    number = 0
    for number, name in enumerate(islice(cycle(names), int(rate * seconds)), 1):
        change(cluster, name, number)
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
    time.sleep(max(0.0, began + seconds - time.perf_counter()))
    took = time.perf_counter() - began
    return (cpu_seconds(pid) - before) / took, number / took


def names_of(cluster: Cluster) -> list[str]:
    found = cluster.api.get(PODS)["items"]
    return [
        each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith("wl-")
    ]


def change(cluster: Cluster, name: str, number: int) -> None:
    """Its kubelet's word: it runs, and something about that is new."""
    at = "2026-01-01T00:00:00Z"
    cluster.api.patch(
        f"{PODS}/{name}/status",
        {"op": "add", "path": "/status/phase", "value": "Running"},
        {"op": "add", "path": "/status/message", "value": f"change {number}"},
        {"op": "add", "path": "/status/containerStatuses", "value": [{
            "name": "worker", "image": cluster.image, "imageID": "", "ready": True,
            "restartCount": 0, "state": {"running": {"startedAt": at}},
        }]},
    )  # fmt: skip


if __name__ == "__main__":
    script(lambda: measure(quick="--quick" in sys.argv))
