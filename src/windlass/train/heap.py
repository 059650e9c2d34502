"""How a member's memory comes from the system: kept, once it was had.

A step frees its gradients and activations, and the next one wants as much. What the C library
gives back in between comes again page by page, each of them a fault and full of zeros. glibc
learns to keep more from what was freed, up to these two numbers; until it has seen a tensor of
32 MB it gives back a few megabytes of each step. So it is told at once what it would come to.
"""

from __future__ import annotations

import ctypes
import os
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST = 32 << 20  # from here on by itself, and given back by itself
_KEPT = 2 * _LARGEST


def keep_freed() -> bool:
    """False: it is another C library, or somebody has told it otherwise."""
    told = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if told or platform.libc_ver()[0] != "glibc":
        return False
    change = ctypes.CDLL(None).mallopt
    return bool(change(_MMAP_THRESHOLD, _LARGEST)) and bool(change(_TRIM_THRESHOLD, _KEPT))
