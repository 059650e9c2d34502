"""The NVIDIA GPUs of this machine: by NVML, else by `nvidia-smi -L`, else none.

Ids are NVML's indexes, which follow the PCI bus; ranks therefore need
`CUDA_DEVICE_ORDER=PCI_BUS_ID`, or CUDA numbers the devices by speed. A `CUDA_VISIBLE_DEVICES`
that this process was itself given is a border: GPUs outside it are not offered.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/gpus")
_FACT = re.compile(r"^([^:\n]+):\s*(\S+)\s*$", re.MULTILINE)
_LISTED = re.compile(r"GPU (\d+): (.+) \(UUID: (GPU-[0-9a-fA-F-]+)\)")


@dataclass(frozen=True)
class Gpu:
    id: str
    model: str
    uuid: str


def find(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    found = by_nvml()
    if found is None:
        found = by_nvidia_smi()
    return visible(found or [], environ.get("CUDA_VISIBLE_DEVICES"))


def by_nvml() -> list[Gpu] | None:
    """None when NVML cannot be asked: no library, no driver."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # ImportError, or NVML's own error where there is no driver
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return [
            Gpu(str(index), _text(nvml.nvmlDeviceGetName(h)), _text(nvml.nvmlDeviceGetUUID(h)))
            for index, h in enumerate(handles)
        ]
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def by_nvidia_smi() -> list[Gpu] | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    try:
        listed = subprocess.run(
            [command, "-L"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_listing(listed.stdout)


def parse_listing(text: str) -> list[Gpu]:
    """`GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-…)`; lines of MIG slices are passed over."""
    matches = (_LISTED.match(line) for line in text.splitlines())
    return [Gpu(m[1], m[2], m[3]) for m in matches if m]


def minors(found: Sequence[Gpu], driver: Path = _DRIVER) -> dict[str, int]:
    """By id, the number in the name of each device's file, which need not be its id. The driver
    tells it by UUID; where it does not, the id is taken for it."""
    numbers: dict[str, int] = {}
    for path in driver.glob("*/information"):
        try:
            words = dict(_FACT.findall(path.read_text()))
            numbers[words["GPU UUID"]] = int(words["Device Minor"])
        except (OSError, KeyError, ValueError):
            continue
    return {gpu.id: numbers.get(gpu.uuid, int(gpu.id)) for gpu in found}


def visible(found: list[Gpu], border: str | None) -> list[Gpu]:
    """Those inside `CUDA_VISIBLE_DEVICES`. As in CUDA, the first name that fits none ends the
    list, and an empty one hides all."""
    if border is None:
        return found
    kept: list[Gpu] = []
    for name in (part.strip() for part in border.split(",")):
        match = next((gpu for gpu in found if _is(gpu, name)), None)
        if match is None:
            break
        kept.append(match)
    return sorted(set(kept), key=lambda gpu: int(gpu.id))


def _is(gpu: Gpu, name: str) -> bool:
    return name == gpu.id or (name.startswith("GPU-") and gpu.uuid.startswith(name))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
