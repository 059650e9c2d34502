"""`windlass node`: where jobs run, and what is free there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import output
from windlass.cli.session import LISTS, Session, verb
from windlass.client.nodes import Node

HEAD = ["NAME", "ENGINE", "STATE", "CPUS", "MEMORY", "GPUS", "SLOTS", "LEVEL", "JOBS"]
SPARE = ("LEVEL", "ENGINE", "SLOTS")
"""What is left out first where the terminal is narrow."""


@click.group("node")
def command() -> None:
    """Where jobs run, and what is free there."""


@verb("ls", outputs=LISTS, group=command)
def ls(session: Session) -> None:
    """The nodes: free of all."""
    nodes = session.client.nodes.list()
    head, rows = HEAD, [row(node) for node in nodes]
    if any(node.reason for node in nodes):
        head = [*HEAD, "REASON"]
        words = [node.reason.removeprefix("the node has ") for node in nodes]
        rows = [[*cells, why] for cells, why in zip(rows, words, strict=True)]
    session.items([node.data for node in nodes], head, rows, SPARE)


def row(node: Node) -> list[Any]:
    def share(kind: str, one: Any) -> str:
        return f"{one(node.free.get(kind, 0))}/{one(node.capacity.get(kind, 0))}"

    return [
        node.name, node.engine, node.state, share("cpus_milli", cpus),
        share("memory_bytes", lambda size: f"{size / 2**30:.1f}G"),
        share("gpus", str), share("slots", str), node.isolation.get("level", ""),
        len(node.jobs) or "",
    ]  # fmt: skip


def summary(nodes: Sequence[Node]) -> str:
    """All that is there, in one line; nodes that are gone are left out."""
    nodes = [node for node in nodes if node.state != "gone"]
    total: dict[str, int] = {}
    free: dict[str, int] = {}
    for node in nodes:
        _add(total, node.capacity)
        _add(free, node.free)
    words = [
        f"{cpus(total.get('cpus_milli', 0))} CPU",
        output.megabytes(total.get("memory_bytes", 0)),
    ]
    gpus = total.get("gpus", 0)
    if gpus and all(node.free for node in nodes):
        words.append(f"{free.get('gpus', 0)} of {gpus} GPU free")
    else:  # a server that has just started does not know yet what is free
        words.append(f"{gpus} GPU" if gpus else "no GPU")
    if len(nodes) != 1:
        words.insert(0, f"{len(nodes)} nodes")
    return " · ".join(words)


def cpus(milli: int) -> str:
    return f"{milli / 1000:g}"


def _add(into: dict[str, int], amounts: Mapping[str, Any]) -> None:
    for kind, amount in amounts.items():
        if isinstance(amount, int):
            into[kind] = into.get(kind, 0) + amount
