"""The pod of a worker, as it is asked for. Pure.

The node is ours to choose, yet the pod goes through the cluster's scheduler, bound to that node by
affinity: what the node really has left, and who may take what from whom, stays the cluster's word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from windlass.engines.base import NodeLaunch
from windlass.engines.kubernetes.offers import Choice

Object = dict[str, Any]

GROUPS = ("volcano", "coscheduling", "kueue")
BROUGHT = "/opt/windlass/worker"
LAUNCH = "/opt/windlass/launch"
WORK = "/opt/windlass/work"
CACHE = "/var/cache/windlass"
_LABEL = "windlass.dev/"
_SMALLEST_CPU = 10
_MIB = 2**20


@dataclass(frozen=True)
class Share:
    """The storage that the server's home lies on, as pods see it: `host`, `pvc` or `nfs`; or
    `none`: they see nothing of it, and send what the server would read (engines/mirroring.py)."""

    kind: str
    source: str = ""
    """The claim's name; for nfs `SERVER:/PATH`."""
    root: str = ""
    """Where its top is on the server; empty: it is the home itself."""

    @property
    def is_none(self) -> bool:
        return self.kind == "none"

    def volume(self, home: str) -> Object:
        if self.kind == "pvc":
            return {"persistentVolumeClaim": {"claimName": self.source}}
        if self.kind == "nfs":
            server, _, path = self.source.partition(":")
            return {"nfs": {"server": server, "path": path}}
        return {"hostPath": {"path": self.root or home, "type": "Directory"}}


@dataclass(frozen=True)
class Volume:
    """More that every pod sees: `host`, `pvc` or `nfs` at a path."""

    share: Share
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class Ask:
    """What the operator wants of every pod."""

    namespace: str = ""
    image: str = ""
    pull_secrets: tuple[str, ...] = ()
    python: str = "python3"
    share: Share = Share("host")
    service_account: str = ""
    priority_class: str = ""
    choice: Choice = Choice()
    gpu_resource: str = ""
    devices: tuple[tuple[str, int], ...] = ()
    """More extended resources that every pod gets: RDMA and the like."""
    volumes: tuple[Volume, ...] = ()
    group: str = ""
    queue: str = ""
    owner: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Setting:
    """What all pods of one server have in common."""

    server: str
    home: Path
    worker: str
    """The name of the ConfigMap with the worker in it."""
    file: str
    """The worker's file in it."""
    arguments: tuple[str, ...]
    """Between the interpreter and the file."""
    lease_seconds: float
    user: int
    group: int


def name_of(attempt_id: str, node: str) -> str:
    """The same whenever it is asked for: whoever makes it a second time is told that it is there.
    A node's name may be too long to be a part of it."""
    return f"wl-{attempt_id}-{hashlib.sha256(node.encode()).hexdigest()[:10]}"


def labels_of(server: str, **more: str) -> dict[str, str]:
    return {_LABEL + key: value for key, value in {"server": server, **more}.items()}


def label(pod: Mapping[str, Any], key: str) -> str:
    return str(((pod.get("metadata") or {}).get("labels") or {}).get(_LABEL + key) or "")


def selector(server: str) -> str:
    return f"{_LABEL}server={server}"


def renumbered(worker: NodeLaunch) -> NodeLaunch:
    """In a pod the devices that it was given are there alone, counted from 0."""
    number = 0
    members = []
    for member in worker.launch.get("members", ()):
        count = len(member.get("gpu_ids", ()))
        ids = [str(each) for each in range(number, number + count)]
        number += count
        members.append({**member, "gpu_ids": ids} if count else member)
    return replace(worker, launch={**worker.launch, "members": members})


def manifest(
    job_id: str,
    attempt_id: str,
    worker: NodeLaunch,
    setting: Setting,
    ask: Ask,
    gpu: str,
    members: int,
) -> Object:
    """`gpu`: the name of the node's GPUs, where it has some; `members`: how many pods the gang
    has."""
    launch = worker.launch
    # After its ranks it says the last: without a shared home it sends their checkpoints too.
    last_seconds = 90 if ask.share.is_none else 10
    grace_seconds = -(-int(launch.get("grace_ms") or 0) // 1000) + last_seconds
    name = name_of(attempt_id, worker.node)
    if ask.share.is_none:
        folders = [WORK, LAUNCH]
        mounts: list[Object] = [
            {"name": "work", "mountPath": WORK},
            {"name": "launch", "mountPath": LAUNCH, "readOnly": True},
        ]
    else:
        folders = [str(setting.home / "attempts" / attempt_id / worker.node)]
        seen = [setting.home / "attempts" / attempt_id]
        seen += [Path(path) for path in (launch.get("checkpoint_dir"),) if path]
        read = [Path(path) for path in (launch.get("blob_dir"),) if path and Path(path).is_dir()]
        mounts = [*_shared(setting, ask, seen, False), *_shared(setting, ask, read, True)]
    pod = plain(
        name,
        labels_of(setting.server, job=job_id, attempt=attempt_id, node=worker.node),
        worker.node,
        [*setting.arguments, f"{BROUGHT}/{setting.file}", "run", *folders],
        setting,
        ask,
        image=launch.get("image") or ask.image,
        mounts=mounts,
        resources=_resources(launch.get("members", ()), ask, gpu),
    )
    pod["spec"]["terminationGracePeriodSeconds"] = grace_seconds
    if ask.share.is_none:
        pod["spec"]["volumes"] += [
            {"name": "work", "emptyDir": {}},
            {"name": "launch", "secret": {"secretName": name}},
        ]
    _in_group(pod, ask, attempt_id, members)
    return pod


def plain(
    name: str,
    labels: Mapping[str, str],
    node: str,
    arguments: Sequence[str],
    setting: Setting,
    ask: Ask,
    *,
    image: str,
    mounts: Sequence[Object],
    resources: Object,
) -> Object:
    """A pod of ours: it ends once, runs as who the server runs as, and may become nobody else."""
    volumes: list[Object] = []
    if not ask.share.is_none:
        volumes.append({"name": "share", **ask.share.volume(str(setting.home))})
    volumes += [
        {"name": "worker", "configMap": {"name": setting.worker}},
        {"name": "cache", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},  # the default of 64 MB is too small
    ]
    seen: list[Object] = [
        *mounts,
        {"name": "worker", "mountPath": BROUGHT, "readOnly": True},
        {"name": "cache", "mountPath": CACHE},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    for number, each in enumerate(ask.volumes):
        volumes.append({"name": f"more-{number}", **each.share.volume(each.path)})
        mount = {"name": f"more-{number}", "mountPath": each.path}
        seen.append(mount | ({"readOnly": True} if each.read_only else {}))
    spec: Object = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(ask.service_account),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node]}
            ]}]
        }}},
        "tolerations": [
            *(each.manifest() for each in ask.choice.tolerations),
            *(_patience(key, setting.lease_seconds) for key in ("not-ready", "unreachable")),
        ],
        "securityContext": {
            "runAsUser": setting.user, "runAsGroup": setting.group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            "name": "worker",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": [ask.python],
            "args": list(arguments),
            "resources": resources,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": seen,
        }],
        "volumes": volumes,
    }  # fmt: skip
    if ask.pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in ask.pull_secrets]
    if ask.service_account:
        spec["serviceAccountName"] = ask.service_account
    if ask.priority_class:
        spec["priorityClassName"] = ask.priority_class
    about: Object = {"name": name, "labels": dict(labels)}
    if ask.owner:
        about["ownerReferences"] = [dict(ask.owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def secret(job_id: str, attempt_id: str, worker: NodeLaunch, server: str) -> Object:
    """What its worker is told, where it cannot read that at home."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name_of(attempt_id, worker.node),
            "labels": labels_of(server, job=job_id, attempt=attempt_id, node=worker.node),
        },
        "stringData": {"launch.json": json.dumps(worker.launch), "token": worker.token},
    }


def shared_mount(setting: Setting, ask: Ask, path: Path, read_only: bool = False) -> Object:
    """A folder of the home at its own path, and nothing else of the home."""
    root = Path(ask.share.root) if ask.share.root else setting.home
    mount: Object = {
        "name": "share",
        "mountPath": str(path),
        "subPath": str(PurePosixPath(path.resolve().relative_to(root))),
    }
    return mount | ({"readOnly": True} if read_only else {})


def _shared(setting: Setting, ask: Ask, paths: Sequence[Path], read_only: bool) -> list[Object]:
    root = Path(ask.share.root) if ask.share.root else setting.home
    return [
        shared_mount(setting, ask, path, read_only)
        for path in paths
        if path.resolve().is_relative_to(root)
    ]


def _patience(key: str, seconds: float) -> Object:
    """So long a silent node keeps its pod; the default would be five minutes."""
    return {
        "key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": max(1, int(seconds)),
    }  # fmt: skip


def _resources(members: Sequence[Mapping[str, Any]], ask: Ask, gpu: str) -> Object:
    """CPUs are a share and may be more while nobody else wants them; memory and devices are a
    limit. A member that names no CPUs still asks for a little: it would be the first to go."""
    cpus = sum(each.get("cpus_milli", 0) for each in members)
    memory = sum(each.get("memory_bytes", 0) for each in members)
    gpus = sum(len(each.get("gpu_ids", ())) for each in members)
    requests = {"cpu": f"{max(_SMALLEST_CPU, cpus)}m"}
    limits: dict[str, str] = {}
    if memory:
        requests["memory"] = limits["memory"] = f"{-(-memory // _MIB)}Mi"
    if gpus:
        limits[gpu] = str(gpus)
    limits |= {name: str(count) for name, count in ask.devices}
    return {"requests": requests} | ({"limits": limits} if limits else {})


def _in_group(pod: Object, ask: Ask, attempt_id: str, members: int) -> None:
    """For a cluster whose operator wants gangs admitted whole by one of these."""
    about, spec = pod["metadata"], pod["spec"]
    group = group_name(attempt_id)
    if ask.group == "volcano":
        spec["schedulerName"] = "volcano"
        about["annotations"] = {"scheduling.k8s.io/group-name": group}
    elif ask.group == "coscheduling":
        about["labels"]["scheduling.x-k8s.io/pod-group"] = group
    elif ask.group == "kueue":
        about["labels"] |= {
            "kueue.x-k8s.io/queue-name": ask.queue or "windlass",
            "kueue.x-k8s.io/pod-group-name": group,
        }
        about["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(members)}


def group_name(attempt_id: str) -> str:
    return f"wl-{attempt_id}"


_GROUP_APIS = {
    "volcano": "scheduling.volcano.sh/v1beta1",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1",
}


def group_path(ask: Ask) -> str:
    """Where groups are made; empty: none is needed (Kueue makes its own)."""
    api = _GROUP_APIS.get(ask.group)
    return f"/apis/{api}/namespaces/{ask.namespace}/podgroups" if api else ""


def pod_group(attempt_id: str, server: str, ask: Ask, members: int) -> Object:
    spec: Object = {"minMember": members}
    if ask.group == "volcano":
        spec |= {"queue": ask.queue} if ask.queue else {}
        spec |= {"priorityClassName": ask.priority_class} if ask.priority_class else {}
    return {
        "apiVersion": _GROUP_APIS[ask.group],
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(attempt_id),
            "labels": labels_of(server, attempt=attempt_id),
        },
        "spec": spec,
    }
