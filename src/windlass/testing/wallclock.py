"""A wall clock of a process's own, which a test sets.

    clock = WallClock(tmp_path)                      # raises LookupError without a C compiler
    Platform(home, env=clock.env())                  # its wall clock is the machine's,
    clock.set(days=1)                                # and now, while it runs, a day ahead

Only what the process reads as the time of day is moved, as by somebody who sets a clock: its
monotonic clock is the machine's, and so are the times of files, which another machine may have
written. The machine's own clock is never set.

Debian's faketime would do the same, but with FAKETIME_DONT_FAKE_MONOTONIC=1, without which a test
proves nothing, its version 0.9.10 makes every `time.sleep` of Python 3.11 fail (EINVAL).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from datetime import timedelta
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *ahead;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WALL_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (found == MAP_FAILED)
        abort();
    ahead = found;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, at);
    if (!failed && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        at->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
"""


class WallClock:
    """At first it shows what the machine's does."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "wallclock.so"
        self._ahead = folder / "wallclock"
        self._ahead.write_bytes(bytes(8))
        compiler = shutil.which("cc")
        if compiler is None:
            raise LookupError("there is no C compiler (Debian: apt install gcc libc6-dev)")
        command = [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(self._library)]
        subprocess.run([*command, "-ldl"], input=_SOURCE.encode(), check=True)

    def set(self, **ahead: float) -> None:
        """So far ahead of the machine's (`days=-1`: behind), from now on."""
        seconds = int(timedelta(**ahead).total_seconds())
        with self._ahead.open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", seconds))

    def env(self) -> dict[str, str]:
        """What a process is started with, to have this clock; its children have it too."""
        return {
            "LD_PRELOAD": str(self._library),
            "WALL_CLOCK_FILE": str(self._ahead),
        }
