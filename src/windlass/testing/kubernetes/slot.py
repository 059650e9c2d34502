"""The place of a cluster on this machine: a number of its own, from which every name and address
of it is made, so that two clusters never meet and what a killed run left behind is found.

    10.64.0.0/16          the network of slot 0; 10.65.0.0/16 that of slot 1, …
    10.64.255.1           the API server, on the bridge wlk0; also its service address
    10.64.0.11, .12, …    the nodes
    10.64.1.2, 10.64.2.2  the pods of the first node, of the second
    127.88.0.1            etcd, out of the pods' reach
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import signal
import time
from pathlib import Path
from typing import IO

from windlass.testing.kubernetes.programs import CGROUPS, CONTROLLERS, run

_LOCKS = Path("/run/windlass-kubernetes")
_SLOTS = 32
_SWEEP_SECONDS = 60.0


class Slot:
    def __init__(self, number: int, lock: IO[str]) -> None:
        self.number = number
        self._lock = lock
        self.bridge = f"wlk{number}"
        self.network = f"10.{64 + number}.0.0/16"
        self.api = f"10.{64 + number}.255.1"
        self.services = f"10.{64 + number}.255.0/24"
        self.loopback = f"127.88.{number}.1"
        self.cgroup = f"windlass-k{number}"

    def node(self, index: int) -> str:
        return f"10.{64 + self.number}.0.{10 + index}"

    def pods(self, index: int) -> tuple[str, str]:
        """First and last address of a node's pods."""
        return f"10.{64 + self.number}.{index}.2", f"10.{64 + self.number}.{index}.254"

    def link(self, index: int) -> str:
        """The machine's end of a node's cable."""
        return f"{self.bridge}n{index}"

    def namespace(self, index: int) -> str:
        return f"{self.bridge}-node{index}"

    def lay(self) -> None:
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self.api}/16", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    def sweep(self) -> None:
        """Remove all that carries this slot's name: pods, cgroups, namespaces, links."""
        end = time.monotonic() + _SWEEP_SECONDS
        while left := [folder for folder in self._cgroups() if not _removed(folder)]:
            if time.monotonic() > end:
                raise RuntimeError(f"cgroups that cannot be removed: {left[:3]}")
            time.sleep(0.05)
        for path in Path("/run/netns").glob(f"{self.bridge}-*"):
            run("ip", "netns", "del", path.name)
        for link in json.loads(run("ip", "-j", "link", "show")):
            if link["ifname"] == self.bridge or link["ifname"].startswith(f"{self.bridge}n"):
                run("ip", "link", "del", link["ifname"], check=False)  # a pair goes at once

    def _cgroups(self) -> list[Path]:
        """Innermost first."""
        tops = [CGROUPS / name / self.cgroup for name in (*CONTROLLERS, "unified")]
        found = [inner for top in tops for inner in (top, *top.rglob("*")) if inner.is_dir()]
        return sorted(found, key=lambda path: len(path.parts), reverse=True)

    def is_free(self) -> bool:
        """No address of the machine lies in its network."""
        mine = ipaddress.ip_network(self.network)
        return not any(
            mine.overlaps(ipaddress.ip_network(f"{it['local']}/{it['prefixlen']}", strict=False))
            for link in json.loads(run("ip", "-j", "-4", "addr", "show"))
            for it in link["addr_info"]
        )

    def release(self) -> None:
        self._lock.close()


def claim() -> Slot:
    """The first slot that nobody holds. What a killed run left in any of them is removed."""
    _LOCKS.mkdir(mode=0o700, exist_ok=True)
    taken: Slot | None = None
    for number in range(_SLOTS):
        path = _LOCKS / f"{number}.lock"
        if taken is not None and not path.exists():
            break
        lock = path.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        slot = Slot(number, lock)
        slot.sweep()
        if taken is None and slot.is_free():
            taken = slot
        else:
            slot.release()
    if taken is None:
        raise RuntimeError(f"no network of 10.64.0.0/16 to 10.{63 + _SLOTS}.0.0/16 is free here")
    return taken


def _removed(cgroup: Path) -> bool:
    try:
        for pid in (cgroup / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        cgroup.rmdir()
    except (FileNotFoundError, ProcessLookupError):
        return not cgroup.exists()
    except OSError:
        return False  # its processes are on their way out
    return True
