"""A slower disk, for any process: a library, loaded before all others, in which each `fsync` and
`fdatasync` first sleeps. What it does then is real, and so is every wait for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int slowly(const char *name, int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *wait = getenv("SLOW_DISK_MICROSECONDS");
    if (wait) usleep((useconds_t)atoi(wait));
    return real(file);
}

int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
"""


def library(place: Path) -> Path | None:
    """The library, made in `place`; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, made = place / "slow_disk.c", place / "slow_disk.so"
    source.write_text(_SOURCE)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"], check=True
    )
    return made


def slower_by(milliseconds: float, made: Path | None) -> dict[str, str]:
    """The environment of a process whose syncs take so much longer; none for the disk itself."""
    if not milliseconds:
        return {}
    assert made is not None, "a disk is made slower by a library that had to be compiled"
    return {"LD_PRELOAD": str(made), "SLOW_DISK_MICROSECONDS": str(int(milliseconds * 1000))}
