"""How much memory this process has held at most."""

from __future__ import annotations

import sys
from pathlib import Path

import torch


def peak_bytes(device: torch.device) -> int:
    """On a GPU what torch held there, otherwise what the process held in main memory."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return _peak_of_this_process()


def _peak_of_this_process() -> int:
    """Not getrusage alone: after a vfork it begins with the peak of whoever started us."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
