"""The programs that a cluster is made of, and why there can be none here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
_INSTALLED = (
    "containerd", "ctr", "runc", "etcd", "gcc", "ip", "iptables", "mount", "nsenter", "openssl",
    "setpriv", "unshare",
)  # fmt: skip
CNI = Path("/usr/lib/cni")
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = (
    "cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd",
)  # fmt: skip
_TRIED = "ip link add p0 type bridge; ip link add p1 type veth peer name p2"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> str:
    """Why there can be no Kubernetes here, in words; empty when there can."""
    if os.geteuid() != 0:
        return "only root can make its nodes' namespaces"
    absent = [name for name in _INSTALLED if not shutil.which(name, path=PATH)]
    if not (CNI / "bridge").exists():
        absent.append("the CNI plugins")
    if absent:
        return f"not installed: {', '.join(absent)} (tools/kubernetes-build installs them)"
    if built() is None:
        return f"not built: no kubelet under {_cache()} (tools/kubernetes-build builds it)"
    if lacking := [name for name in CONTROLLERS if not (CGROUPS / name / "tasks").exists()]:
        return f"its kubelet needs cgroups of version 1; not mounted here: {', '.join(lacking)}"
    tried = subprocess.run(
        ["unshare", "-n", "-m", "-p", "-f", "sh", "-ec", _TRIED],
        env={**os.environ, "PATH": PATH}, capture_output=True, text=True,
    )  # fmt: skip
    return f"no namespaces with a network: {tried.stderr.strip()}" if tried.returncode else ""


def built() -> Path | None:
    """The folder with the four programs; the newest, where several were built."""
    whole = [
        folder
        for folder in _cache().glob("[0-9]*")
        if all(os.access(folder / name, os.X_OK) for name in BUILT)
    ]
    return max(whole, key=lambda folder: folder.stat().st_mtime, default=None)


def _cache() -> Path:
    root = os.environ.get("WINDLASS_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "windlass") / "kubernetes"


def run(*command: str, check: bool = True) -> str:
    """Output of a command. What it complained of is in the error, when it is `check`ed."""
    done = subprocess.run(
        command, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, timeout=60
    )
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
