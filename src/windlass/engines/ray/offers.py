"""Ray's nodes in our words, and our shares in Ray's. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.resources import Node, Resources
from windlass.engines.base import NodeLaunch

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SLOTS_PER_CPU = 4
_TOUCH = 0.0001
"""Of the resource `node:ADDRESS` that each node has: a group must ask for something."""
_OWN_LABELS = "ray.io/"


def by_name(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Those that live and take work, by the name that we know them by: theirs, or with the
    beginning of their id where several have the same. A node without CPUs and GPUs (often the
    head) was not meant to be worked on."""
    living = [
        each
        for each in nodes
        if each["alive"] and (each["resources"].get("CPU") or each["resources"].get("GPU"))
    ]
    names = Counter(_name(each) for each in living)
    found = {}
    for each in living:
        name = _name(each)
        found[name if names[name] == 1 else f"{name[:50]}-{each['id'][:8]}"] = each
    return found


def _name(node: Mapping[str, Any]) -> str:
    name = str(node["name"])
    return name if _PLAIN.fullmatch(name) else f"ray-{node['id'][:12]}"


def node_of(name: str, node: Mapping[str, Any], engine: str) -> Node:
    """With all that it has, whatever others hold of it just now."""
    has = node["resources"]
    cpus, gpus = float(has.get("CPU", 0)), int(has.get("GPU", 0))
    labels = [
        f"{key}={value}"
        for key, value in node["labels"].items()
        if not key.startswith(_OWN_LABELS)
    ]
    kinds = [
        key for key in has
        if key not in ("CPU", "GPU", "memory", "object_store_memory")
        and not key.startswith(("node:", "accelerator_type:"))
    ]  # fmt: skip
    return Node(
        name=name,
        engine=engine,
        capacity=Resources(
            cpus_milli=int(cpus * 1000),
            memory_bytes=int(has.get("memory", 0)),
            gpus=gpus,
            slots=max(_SLOTS_PER_CPU, int(cpus * _SLOTS_PER_CPU)),
        ),
        gpu_ids=tuple(str(number) for number in range(gpus)),
        gpu_model=_model(node),
        boot_id=node["id"],
        pool=engine,
        labels=tuple(sorted([*labels, *kinds])),
    )


def _model(node: Mapping[str, Any]) -> str:
    told = node["labels"].get("ray.io/accelerator-type")
    named = (key.partition(":")[2] for key in node["resources"] if key.startswith("accelerator_t"))
    return str(told or next(named, ""))


def bundle(worker: NodeLaunch, node: Mapping[str, Any]) -> dict[str, float]:
    """What a gang needs of one node. Members that ask for no CPU share what is there."""
    members = worker.launch.get("members", ())
    cpus = sum(each.get("cpus_milli", 0) for each in members) / 1000
    memory = sum(each.get("memory_bytes", 0) for each in members)
    gpus = sum(len(each.get("gpu_ids", ())) for each in members)
    asked = {"CPU": cpus, "memory": memory, "GPU": gpus, f"node:{node['address']}": _TOUCH}
    return {key: amount for key, amount in asked.items() if amount}


def lacking(asked: Mapping[str, float], node: Mapping[str, Any]) -> list[str]:
    """What the node will never have of it: Ray would wait for that without a word."""
    has = node["resources"]
    return [
        f"{amount:g} {key} of {has.get(key, 0):g}"
        for key, amount in asked.items()
        if amount > has.get(key, 0)
    ]
