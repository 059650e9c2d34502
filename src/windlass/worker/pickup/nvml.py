"""What NVIDIA's driver says of a GPU, through its own library: nothing to install, and no child
process each second. Where the library or the device is not there, there is nothing to say.
"""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

_LIBRARIES = ("libnvidia-ml.so.1", "libnvidia-ml.so")


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Nvml:
    """Raises OSError where there is no driver."""

    def __init__(self) -> None:
        self._library = _load()
        if self._library.nvmlInit_v2() != 0:
            raise OSError("NVIDIA's driver does not answer")
        self._handles: Dict[str, Optional[ctypes.c_void_p]] = {}

    def of(self, gpu: str) -> Dict[str, float]:
        """By name: percent busy, bytes used, watts, degrees; what the device does not tell is not
        there."""
        handle = self._handle(gpu)
        found: Dict[str, float] = {}
        if handle is None:
            return found
        call = self._library
        busy, memory, number = _Utilization(), _Memory(), ctypes.c_uint()
        if call.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(busy)) == 0:
            found["percent"] = float(busy.gpu)
        if call.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
            found["memory_bytes"] = float(memory.used)
        if call.nvmlDeviceGetPowerUsage(handle, ctypes.byref(number)) == 0:
            found["watts"] = number.value / 1000
        if call.nvmlDeviceGetTemperature(handle, 0, ctypes.byref(number)) == 0:
            found["celsius"] = float(number.value)
        return found

    def _handle(self, gpu: str) -> Optional[ctypes.c_void_p]:
        if gpu not in self._handles:
            handle, where = ctypes.c_void_p(), ctypes.byref
            if gpu.isdigit():
                number = ctypes.c_uint(int(gpu))
                answer = self._library.nvmlDeviceGetHandleByIndex_v2(number, where(handle))
            else:
                answer = self._library.nvmlDeviceGetHandleByUUID(gpu.encode(), where(handle))
            self._handles[gpu] = handle if answer == 0 else None
        return self._handles[gpu]


def _load() -> Any:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("NVIDIA's library is not there")
