"""What the driver says of a GPU: the real one where there is one, else one made of a page of C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from windlass.worker.pickup import nvml
from windlass.worker.pickup.nvml import Nvml

DRIVER = """
#include <string.h>
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned long long total, free, used; } bytes;
static int device;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **handle) {
    *handle = &device; return at ? 2 : 0;
}
int nvmlDeviceGetHandleByUUID(const char *id, void **handle) {
    *handle = &device; return strcmp(id, "GPU-1") ? 6 : 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, rates *to) {
    to->gpu = 37; to->memory = 5; return handle == &device ? 0 : 2;
}
int nvmlDeviceGetMemoryInfo(void *handle, bytes *to) {
    to->total = 80ull << 30; to->free = 60ull << 30; to->used = 20ull << 30; return 0;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *to) { *to = 12500; return 0; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *to) { return 3; }
"""


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_what_a_device_tells_is_read_and_what_it_does_not_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, library = tmp_path / "driver.c", tmp_path / "driver.so"
    source.write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setattr(nvml, "_LIBRARIES", ("no-such-library.so", str(library)))
    driver = Nvml()
    seen = {"percent": 37.0, "memory_bytes": 20.0 * 2**30, "watts": 12.5}
    assert driver.of("0") == driver.of("GPU-1") == seen
    assert driver.of("1") == driver.of("GPU-2") == {}


def test_without_a_driver_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_LIBRARIES", ("no-such-library.so",))
    with pytest.raises(OSError, match="is not there"):
        Nvml()


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no GPU")
def test_the_real_driver_says_what_its_own_tool_says() -> None:
    asked = ["nvidia-smi", "--id=0", "--format=csv,noheader,nounits"]
    asked += ["--query-gpu=uuid,memory.used"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    uuid, used = done.stdout.strip().split(", ")
    driver = Nvml()
    for name in ("0", uuid):
        found = driver.of(name)
        assert set(found) == {"percent", "memory_bytes", "watts", "celsius"}
        assert 0 <= found["percent"] <= 100 and 0 < found["celsius"] < 120 and found["watts"] > 0
        assert abs(found["memory_bytes"] / 2**20 - float(used)) < 2048
