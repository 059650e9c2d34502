"""What the cluster's nodes offer, in our words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from windlass.core.engines import IMAGES
from windlass.core.resources import Node, Resources

Object = Mapping[str, Any]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_UNITS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]{0,2})")
_RACKS = ("windlass.dev/rack", "topology.kubernetes.io/rack")
_BLOCKS = (
    "windlass.dev/block",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
)
# Of every node another, or said twice: nobody chooses a node by them.
_DULL = ("kubernetes.io/hostname", "beta.kubernetes.io/")


@dataclass(frozen=True)
class Toleration:
    key: str = ""
    value: str | None = None
    effect: str = ""

    def covers(self, taint: Object) -> bool:
        return (
            self.key in ("", taint.get("key"))
            and self.value in (None, taint.get("value") or "")
            and self.effect in ("", taint.get("effect"))
        )

    def manifest(self) -> dict[str, str]:
        found = {"key": self.key} if self.key else {}
        found |= {"operator": "Exists"} if self.value is None else {"value": self.value}
        return found | ({"effect": self.effect} if self.effect else {})


@dataclass(frozen=True)
class Choice:
    """Which nodes are handed to us."""

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


def quantity(text: object) -> Decimal:
    """`100m`, `1.5`, `2Gi`, `1e3`; 0 for what is none."""
    found = _QUANTITY.fullmatch(str(text if text is not None else "0"))
    if found is None or found[2] not in _UNITS:
        return Decimal(0)
    try:
        return Decimal(found[1]) * _UNITS[found[2]]
    except InvalidOperation:
        return Decimal(0)


def refusal(node: Object, choice: Choice) -> str:
    """Why pods of ours are not sent there; empty: they may be."""
    name, spec = node["metadata"]["name"], node.get("spec") or {}
    if not _NAME.fullmatch(name):
        return f"node {name} has a name of more than 63 characters"
    labels = node["metadata"].get("labels") or {}
    for key, value in choice.selector:
        if labels.get(key) != value:
            return f"node {name} does not have the label {key}={value}"
    if why := silence(node):
        return why
    if spec.get("unschedulable"):
        return f"node {name} takes no new pods (cordoned)"
    for taint in spec.get("taints") or ():
        if taint.get("effect") == "PreferNoSchedule":
            continue
        if not any(each.covers(taint) for each in choice.tolerations):
            what = f"{taint.get('key')}={taint.get('value') or ''}:{taint.get('effect')}"
            return f"node {name} has the taint {what}"
    return ""


def silence(node: Object | None) -> str:
    """Why a node may not be asked: it does not answer the cluster, or is gone. Else empty."""
    if node is None:
        return "the cluster has that node no more"
    name = node["metadata"]["name"]
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            if each.get("status") == "True":
                return ""
            lost = each.get("status") == "Unknown"
            said = (
                "does not answer the cluster" if lost else (each.get("message") or "is not ready")
            )
            return f"node {name} is NotReady: {said}"
    return f"node {name} is NotReady: it never was"


def gpu_resource(node: Object, wanted: str) -> str:
    """Under which name the node counts its GPUs: the operator's, else any that ends in `/gpu`."""
    there = (node.get("status") or {}).get("allocatable") or {}
    if wanted:
        return wanted if wanted in there else ""
    named = sorted(key for key in there if key.endswith("/gpu"))
    return next((key for key in named if quantity(there[key]) > 0), named[0] if named else "")


def requested(pod: Object) -> dict[str, Decimal]:
    """What a pod holds of its node: its containers together, or the greediest that runs before
    them, and what running a pod costs by itself."""
    spec = pod.get("spec") or {}
    together: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        for key, value in _requests(container).items():
            together[key] = together.get(key, Decimal(0)) + value
    for container in spec.get("initContainers") or ():
        for key, value in _requests(container).items():
            together[key] = max(together.get(key, Decimal(0)), value)
    for key, value in (spec.get("overhead") or {}).items():
        together[key] = together.get(key, Decimal(0)) + quantity(value)
    return together


def _requests(container: Object) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    found = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {key: quantity(value) for key, value in found.items()}


def node_of(node: Object, engine: str, foreign: Iterable[Object], gpu: str) -> Node:
    """`foreign`: the pods of others on it. What the system keeps, Kubernetes has taken off."""
    about, status = node["metadata"], node.get("status") or {}
    there = {key: quantity(value) for key, value in (status.get("allocatable") or {}).items()}
    taken: dict[str, Decimal] = {}
    count = 0
    for pod in foreign:
        count += 1
        for key, value in requested(pod).items():
            taken[key] = taken.get(key, Decimal(0)) + value

    def free(key: str) -> Decimal:
        return max(Decimal(0), there.get(key, Decimal(0)) - taken.get(key, Decimal(0)))

    name = gpu_resource(node, gpu)
    gpus = int(free(name)) if name else 0
    labels = about.get("labels") or {}
    return Node(
        name=about["name"],
        engine=engine,
        capacity=Resources(
            cpus_milli=int(free("cpu") * 1000),
            memory_bytes=int(free("memory")),
            gpus=gpus,
            slots=max(0, int(there.get("pods", Decimal(0))) - count),
        ),
        gpu_ids=tuple(str(number) for number in range(gpus)),
        gpu_model=_model(labels) if name else "",
        boot_id=str((status.get("nodeInfo") or {}).get("bootID") or ""),
        rack=_first(labels, _RACKS),
        block=_first(labels, _BLOCKS),
        pool=engine,
        labels=(IMAGES, *_plain(labels)),
    )


def offers(
    nodes: Sequence[Object], pods: Sequence[Object], engine: str, choice: Choice, gpu: str
) -> list[Node]:
    """`pods`: those of others that are not over."""
    at: dict[str, list[Object]] = {}
    for pod in pods:
        at.setdefault((pod.get("spec") or {}).get("nodeName") or "", []).append(pod)
    return [
        node_of(node, engine, at.get(node["metadata"]["name"], ()), gpu)
        for node in nodes
        if not refusal(node, choice)
    ]


def _model(labels: Mapping[str, str]) -> str:
    return next((labels[key] for key in sorted(labels) if key.endswith("/gpu.product")), "")


def _first(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")


def _plain(labels: Mapping[str, str]) -> list[str]:
    return [
        f"{key}={value}" if value else key
        for key, value in sorted(labels.items())
        if not key.startswith(_DULL)
    ]
