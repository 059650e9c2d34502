"""One node of the cluster: a process tree in namespaces of its own, ended by the end of one
process, and a cable to the machine that can be pulled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from windlass.testing.kubernetes.image import PAUSE
from windlass.testing.kubernetes.programs import CNI, PATH, run
from windlass.testing.kubernetes.slot import Slot

_SOCKET = "/run/containerd.sock"  # in a /run of the node's own


class Node:
    def __init__(self, slot: Slot, index: int, folder: Path) -> None:
        self.name = f"node{index}"
        self.address = slot.node(index)
        self._slot, self._index = slot, index
        self._folder = folder / self.name
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, kubelet: Path, kubeconfig: Path, images: list[Path]) -> None:
        folder = self._folder
        (folder / "cni").mkdir(parents=True)
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # nobody: refused at once
        (folder / "containerd.toml").write_text(_containerd(folder))
        (folder / "cni" / "10-wl.conflist").write_text(json.dumps(self._cni()))
        cgroup = f"{self._slot.cgroup}/{self.name}"
        (folder / "kubelet.yaml").write_text(json.dumps(self._kubelet(cgroup)))
        plan = {
            "name": self.name,
            "folder": str(folder),
            "address": self.address,
            "gateway": self._slot.api,
            "api": self._slot.api,
            "cgroup": cgroup,
            "socket": _SOCKET,
            "kubelet": str(kubelet),
            "kubeconfig": str(kubeconfig),
            "images": [str(image) for image in images],
        }
        (folder / "node.json").write_text(json.dumps(plan))

    def boot(self) -> None:
        assert self._process is None, f"{self.name} is on already"
        Path("/var/lib/kubelet").mkdir(exist_ok=True)
        namespace, link = self._slot.namespace(self._index), self._slot.link(self._index)
        run("ip", "netns", "add", namespace)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "up0", "netns", namespace)
        run("ip", "link", "set", link, "master", self._slot.bridge, "up")
        environment = {
            "PATH": PATH,
            "HOME": str(self._folder),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        command = [
            "setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{namespace}",
            "unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc", "--propagation=private",
            sys.executable, "-m", "windlass.testing.kubernetes.inside",
            str(self._folder / "node.json"),
        ]  # fmt: skip
        with (self._folder / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd="/", stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def power_off(self) -> None:
        """Every process of the node is gone when this returns."""
        assert self._process is not None, f"{self.name} is off already"
        process, self._process = self._process, None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        inner = children.read_text().split() if process.poll() is None else []
        for pid in inner or [str(process.pid)]:  # the kernel ends the rest with the first of them
            os.kill(int(pid), signal.SIGKILL)
        process.wait()
        run("ip", "netns", "del", self._slot.namespace(self._index))
        run("ip", "link", "del", self._slot.link(self._index), check=False)

    def partition(self) -> None:
        run("ip", "link", "set", self._slot.link(self._index), "down")

    def heal(self) -> None:
        run("ip", "link", "set", self._slot.link(self._index), "up")

    @property
    def is_on(self) -> bool:
        return self._process is not None

    def ended(self) -> str:
        """What it said at its end, when it ended by itself."""
        if self._process is None or self._process.poll() is None:
            return ""
        return (self._folder / "node.log").read_text(errors="replace")[-2000:] or "without a word"

    def _cni(self) -> dict[str, object]:
        first, last = self._slot.pods(self._index)
        return {
            "cniVersion": "0.4.0",
            "name": "wl",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "wl0",
                    "isGateway": False,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self._folder / "ipam"),
                        "ranges": [
                            [
                                {
                                    "subnet": self._slot.network,
                                    "rangeStart": first,
                                    "rangeEnd": last,
                                    "gateway": self.address,
                                }
                            ]
                        ],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }

    def _kubelet(self, cgroup: str) -> dict[str, object]:
        """Images cannot be pulled again, so none is ever collected, however full the disk."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": 10250,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": ["pods"],
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            "evictionHard": {
                "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "10s",
            "serializeImagePulls": False,
            "maxPods": 200,
            "resolvConf": str(self._folder / "resolv.conf"),
            "clusterDomain": "cluster.local",
        }  # fmt: skip


def _containerd(folder: Path) -> str:
    """Nothing here may lower an OOM score, where CAP_SYS_RESOURCE is not ours to give."""
    absent = ", ".join(
        f'"io.containerd.{name}"'
        for name in (
            "snapshotter.v1.aufs", "snapshotter.v1.btrfs", "snapshotter.v1.zfs",
            "snapshotter.v1.devmapper", "internal.v1.opt",
        )
    )  # fmt: skip
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{folder / "containerd"}"
state = "/run/containerd"
disabled_plugins = [{absent}]
[grpc]
  address = "{_SOCKET}"
[{cri}]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [{cri}.cni]
    bin_dir = "{CNI}"
    conf_dir = "{folder / "cni"}"
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
