"""The batch script of a gang, and what it asks Slurm for. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.engines.base import LaunchPlan, NodeLaunch

MIB = 2**20


@dataclass(frozen=True)
class Ask:
    """What the operator wants of every job: where it runs and for whom it counts."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Share:
    """What a gang needs of one node."""

    cpus: int
    mebibytes: int
    gpus: int

    @classmethod
    def of(cls, worker: NodeLaunch) -> Share:
        members = worker.launch.get("members", ())
        cpus = sum(each.get("cpus_milli", 0) for each in members)
        memory = sum(each.get("memory_bytes", 0) for each in members)
        gpus = sum(len(each.get("gpu_ids", ())) for each in members)
        return cls(max(1, -(-cpus // 1000)), -(-memory // MIB), gpus)


@dataclass(frozen=True)
class Batch:
    """One submission: options for sbatch, parted by `:` where nodes need unlike shares (a
    heterogeneous job, which Slurm starts whole as well), and the script."""

    options: tuple[str, ...]
    script: str


def batch(
    plan: LaunchPlan,
    name: str,
    folders: Mapping[str, str],
    command: Sequence[str],
    ask: Ask,
    environment: Mapping[str, str],
) -> Batch:
    """`folders`: each worker's directory by node."""
    shares: dict[Share, list[str]] = {}
    for worker in plan.nodes:
        shares.setdefault(Share.of(worker), []).append(worker.node)
    parts = [_options(share, nodes, ask) for share, nodes in shares.items()]
    first, *others = parts
    options = [
        f"--job-name={name}", "--no-requeue", "--output=/dev/null",
        "--open-mode=append", *first,
    ]  # fmt: skip
    for each in others:
        options += [":", *each]
    lines = ["#!/bin/sh"]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in sorted(environment.items())]
    for number, (share, nodes) in enumerate(shares.items()):
        for node in nodes:
            lines.append(_step(number if others else None, share, node, folders[node], command))
    lines += ["wait", ""]
    return Batch(tuple(options), "\n".join(lines))


def _options(share: Share, nodes: Sequence[str], ask: Ask) -> list[str]:
    found = [
        f"--nodelist={','.join(nodes)}",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={share.cpus}",
    ]
    if share.mebibytes:
        found.append(f"--mem={share.mebibytes}M")
    if share.gpus:
        found.append(f"--gres=gpu:{share.gpus}")
    for key in ("partition", "account", "qos"):
        if getattr(ask, key):
            found.append(f"--{key}={getattr(ask, key)}")
    return [*found, *ask.options]


def _step(group: int | None, share: Share, node: str, folder: str, command: Sequence[str]) -> str:
    """The worker of one node as a step named by it. How srun ended is written down, so that a
    worker that died before it could say anything is told from one that is still to come."""
    words = [
        "srun", f"--job-name={node}", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--overlap",
        f"--cpus-per-task={share.cpus}", "--mem=0", "--kill-on-bad-exit=0", "--quiet",
        f"--chdir={folder}", f"--output={folder}/worker.log", "--open-mode=append",
    ]  # fmt: skip
    if group is not None:
        words.append(f"--het-group={group}")
    if share.gpus:
        words.append(f"--gres=gpu:{share.gpus}")
    run = shlex.join([*words, *command, "run", folder])
    return f"({run}; echo $? > {shlex.quote(folder)}/srun.exit) &"
