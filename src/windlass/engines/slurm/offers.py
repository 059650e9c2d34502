"""What Slurm's nodes offer, in our words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from windlass.core.resources import Node, Resources

MIB = 2**20
_UNUSABLE = ("DOWN", "DRAIN", "FAIL", "MAINT", "UNKNOWN", "NOT_RESPONDING", "POWER", "REBOOT")
_GPUS = re.compile(r"gpu(?::(?P<model>[^:,(]+))?:(?P<count>\d+)")


def usable(fields: Mapping[str, str]) -> bool:
    """Whether jobs may be sent there. `IDLE*` does not answer; flags stand behind a plus."""
    state = fields.get("State", "UNKNOWN")
    return "*" not in state and not any(word in state for word in _UNUSABLE)


def node_of(fields: Mapping[str, str], engine: str, reserve: Resources) -> Node:
    """A node of Slurm with all that it has, whatever others' jobs hold of it just now."""
    cpus = _whole(fields.get("CPUEfctv") or fields.get("CPUTot"))
    model, gpus = _gpus(fields.get("Gres", ""))
    whole = Resources(
        cpus_milli=cpus * 1000,
        memory_bytes=_whole(fields.get("RealMemory")) * MIB,
        gpus=gpus,
        slots=cpus,  # each worker's step holds a CPU at least
    )
    kept = Resources(
        cpus_milli=min(reserve.cpus_milli, whole.cpus_milli),
        memory_bytes=min(reserve.memory_bytes, whole.memory_bytes),
    )
    features = fields.get("AvailableFeatures", "")
    labels = [] if features in ("", "(null)") else features.split(",")
    return Node(
        name=fields["NodeName"],
        engine=engine,
        capacity=whole.minus(kept),
        reserve=kept,
        gpu_ids=tuple(str(number) for number in range(gpus)),
        gpu_model=model,
        boot_id=fields.get("BootTime", ""),
        pool=engine,
        labels=tuple(labels),
    )


def _gpus(gres: str) -> tuple[str, int]:
    """`gpu:a100:4(S:0-1),gpu:2`: the model of the first, and how many in all."""
    found = list(_GPUS.finditer(gres))
    model = next((each["model"] for each in found if each["model"]), "")
    return model, sum(int(each["count"]) for each in found)


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
