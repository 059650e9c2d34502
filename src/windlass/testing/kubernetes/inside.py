"""A node from inside: the first process of its process, network and mount namespaces. It lays out
what a machine has (addresses, cgroups, kernel settings), starts containerd and the kubelet, and
buries whom they leave. When it dies, everything on the node dies, as when the power goes.

    python -m windlass.testing.kubernetes.inside node.json
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass.testing.kubernetes.programs import CGROUPS, CONTROLLERS, run

_KUBELET = Path("/var/lib/kubelet")
"""Where the kubelet looks for device plugins, whatever it is told."""
_SETTINGS = {"kernel/panic": "10", "kernel/panic_on_oops": "1", "vm/overcommit_memory": "1"}
"""What a kubelet sets for the whole machine. It finds its values in files of its own instead."""
_START_SECONDS = 120.0


def main(plan: dict[str, Any]) -> int:
    folder = Path(plan["folder"])
    _mount(folder)
    _connect(plan)
    _limit(plan["cgroup"])
    containerd = _start(folder, "containerd", "--config", str(folder / "containerd.toml"))
    _until(lambda: _answers(plan["socket"]), "containerd")
    for image in plan["images"]:
        run("ctr", "-a", plan["socket"], "-n", "k8s.io", "images", "import", image)
    _until(lambda: _listens(plan["api"]), "the API server")
    kubelet = _start(
        folder,
        plan["kubelet"],
        f"--config={folder / 'kubelet.yaml'}",
        f"--kubeconfig={plan['kubeconfig']}",
        f"--root-dir={_KUBELET}",
        f"--cert-dir={folder / 'certs'}",
        f"--hostname-override={plan['name']}",
        f"--node-ip={plan['address']}",
        "--container-runtime=remote",
        f"--container-runtime-endpoint=unix://{plan['socket']}",
    )
    while True:
        pid, status = os.wait()
        if pid in (containerd, kubelet):
            print(f"{'kubelet' if pid == kubelet else 'containerd'} ended: {status}", flush=True)
            return 1


def _mount(folder: Path) -> None:
    """/run is the node's own, so that sockets, locks and pods' namespaces end with it; so is
    /var/log, where every kubelet removes the logs of pods that it does not know."""
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name, seen in (("kubelet", str(_KUBELET)), ("log", "/var/log")):
        (folder / name).mkdir(exist_ok=True)
        run("mount", "--bind", str(folder / name), seen)
    for key, value in _SETTINGS.items():
        own = folder / key.replace("/", ".")
        own.write_text(f"{value}\n")
        run("mount", "--bind", str(own), f"/proc/sys/{key}")


def _connect(plan: dict[str, Any]) -> None:
    """The node's bridge holds its address, its cable to the machine, and its pods."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "wl0", "type", "bridge")
    run("ip", "link", "set", "up0", "master", "wl0", "up")
    run("ip", "addr", "add", f"{plan['address']}/16", "dev", "wl0")
    run("ip", "link", "set", "wl0", "up")
    run("ip", "route", "add", "default", "via", plan["gateway"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _limit(cgroup: str) -> None:
    """The kubelet wants its root to exist in every hierarchy."""
    for controller in CONTROLLERS:
        within = CGROUPS / controller
        for part in Path(cgroup).parts:
            above, within = within, within / part
            within.mkdir(exist_ok=True)
            if controller == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (within / file).write_text((above / file).read_text())


def _start(folder: Path, *command: str) -> int:
    program = shutil.which(command[0]) or command[0]
    with (folder / f"{Path(program).name}.log").open("ab") as log:
        return subprocess.Popen(
            [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ).pid


def _answers(path: str) -> bool:
    return subprocess.run(["ctr", "-a", path, "version"], capture_output=True).returncode == 0


def _listens(address: str) -> bool:
    try:
        socket.create_connection((address, 443), timeout=5).close()
    except OSError:
        return False
    return True


def _until(ready: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not start within {_START_SECONDS} s")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
