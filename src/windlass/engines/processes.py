"""A process named so that no other can be mistaken for it: (boot id, pid, start time).

A pid alone is recycled. All signals go through a pidfd that was opened *before* the start time
was compared: if the process that has the pid now started when ours did, it has had the pid ever
since, so the pidfd is ours too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from windlass.engines import needs

_PROC = Path("/proc")
# What a zombie or a process being torn down shows: it runs no code and holds no lock any more.
_GONE_STATES = ("Z", "X", "x")


@dataclass(frozen=True)
class Identity:
    pid: int
    start_time: int
    boot_id: str

    @staticmethod
    def read(value: dict[str, Any] | None) -> Identity | None:
        """From what a worker or we wrote; None when it names no process one could look for."""
        if value is None:
            return None
        pid, start_time, boot_id = (value.get(key) for key in ("pid", "start_time", "boot_id"))
        if type(pid) is not int or type(start_time) is not int or not isinstance(boot_id, str):
            return None
        if pid <= 1:
            return None
        return Identity(pid, start_time, boot_id)


@functools.cache
def boot_id() -> str:
    """This boot of this machine."""
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"booted-{int(psutil.boot_time())}"


def boot_seconds() -> float:
    """Seconds since boot, the same for every process, whatever the wall clock does."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def identify(pid: int) -> Identity | None:
    """The process that has this pid now."""
    found = _look(pid)
    return None if found is None else Identity(pid, found[1], boot_id())


def lives(identity: Identity) -> bool:
    """Whether this very process still runs (a zombie does not)."""
    if identity.boot_id != boot_id():
        return False
    found = _look(identity.pid)
    if found is None:
        return False
    state, start_time = found
    return start_time == identity.start_time and state not in _GONE_STATES


def _look(pid: int) -> tuple[str, int] | None:
    """(state, start time) of a pid: fields 3 and 22 of its stat line."""
    if not _PROC.joinpath("self").exists():
        try:
            return "R", int(psutil.Process(pid).create_time())
        except psutil.Error:
            return None
    try:
        line = (_PROC / str(pid) / "stat").read_bytes()
    except OSError as err:
        if needs.of(err):
            raise  # we could not look: that is no sign of its end
        return None
    # The command's name may hold spaces and parentheses; the last one closes it.
    fields = line.rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[19])


def open_pidfd(identity: Identity) -> int | None:
    """A descriptor of this very process, dead or alive as long as it can be waited for; None
    when it is gone. Raises NotImplementedError where the kernel has none."""
    if not hasattr(os, "pidfd_open"):
        raise NotImplementedError("no pidfd on this system")
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    found = _look(identity.pid)
    if found is None or found[1] != identity.start_time or identity.boot_id != boot_id():
        os.close(pidfd)
        return None
    return pidfd


def collect(pidfd: int) -> None:
    """Take a dead child's exit status, so that no zombie stays. Nothing happens to others'."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)


def kill(identity: Identity, timeout_seconds: float) -> bool:
    """SIGKILL this very process and wait until it is gone. False when it is still there after
    the timeout (it sits in the kernel): the caller must not wait for ever."""
    try:
        pidfd = open_pidfd(identity)
    except NotImplementedError:
        return _kill_without_pidfd(identity, timeout_seconds)
    if pidfd is None:
        return True
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if not poller.poll(timeout_seconds * 1000):
            return False
        collect(pidfd)
        return True
    finally:
        os.close(pidfd)


def _kill_without_pidfd(identity: Identity, timeout_seconds: float) -> bool:
    try:
        process = psutil.Process(identity.pid)
        if int(process.create_time()) != identity.start_time:
            return True
        process.kill()
        process.wait(timeout_seconds)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def holders(path: Path) -> list[Identity]:
    """Every other process, of those we may look into, that has this file open."""
    try:
        wanted = path.stat()
    except OSError:
        return []
    found: list[Identity] = []
    for entry in _PROC.glob("[0-9]*"):
        if int(entry.name) != os.getpid() and _has_open(entry / "fd", wanted):
            identity = identify(int(entry.name))
            if identity is not None:
                found.append(identity)
    return found


def _has_open(descriptors: Path, wanted: os.stat_result) -> bool:
    try:
        names = os.listdir(descriptors)
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(descriptors / name), wanted):
                return True
    return False
