"""The cluster: etcd, an API server, controllers and a scheduler of this machine, and its nodes.

    cluster.power_off("node2"); cluster.boot("node2")      a machine that dies, and comes back
    cluster.partition("node2"); cluster.heal("node2")      one that lives and is not reached
    cluster.silence(); cluster.speak()                     an API server that is away

A node that is not heard of for `lost_seconds` is NotReady. GPUs are numbers in the nodes' status:
pods that ask for them are placed by them, and get no device. There is no cluster DNS, and no
service address but the API server's own is reached.

Its processes end with the thread that started them: start it in one that lives as long.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import httpx

from windlass.testing.kubernetes import image, slot
from windlass.testing.kubernetes.api import Api
from windlass.testing.kubernetes.node import Node
from windlass.testing.kubernetes.programs import CGROUPS, PATH, built, missing, run

_WAIT_SECONDS = 180.0


class Cluster:
    image = image.HOST
    """Always with imagePullPolicy Never: there is no registry. It shows the machine's own Python
    where `host_paths` are mounted into it."""

    def __init__(
        self, folder: Path, nodes: int = 2, gpus: int = 0, lost_seconds: int = 12
    ) -> None:
        self.folder = folder
        self.names = tuple(f"node{index}" for index in range(1, nodes + 1))
        self.kubeconfig = folder / "kubeconfig"
        self.token = secrets.token_hex(16)
        self._gpus, self._lost_seconds = gpus, lost_seconds
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._nodes: dict[str, Node] = {}

    def __enter__(self) -> Cluster:
        if why := missing():
            raise RuntimeError(f"no Kubernetes here: {why}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._slot = slot.claim()
        try:
            self._bring_up()
        except BaseException:
            self._bring_down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bring_down()

    @property
    def address(self) -> str:
        """The machine's own, as nodes and pods reach it."""
        return self._slot.api

    @property
    def url(self) -> str:
        return f"https://{self._slot.api}:443"

    @property
    def host_paths(self) -> tuple[str, ...]:
        """What a pod mounts, each at its own path, to run this very Python with its packages."""
        source = Path(__file__).parents[3]
        wanted = ("/usr", sys.base_prefix, sys.prefix, str(source))
        kept: list[str] = []
        for path in sorted(set(wanted)):
            if not any(path == above or path.startswith(f"{above}/") for above in kept):
                kept.append(path)
        return tuple(kept)

    def power_off(self, node: str) -> None:
        """All its processes are gone; the cluster finds out by itself, later."""
        self._nodes[node].power_off()

    def boot(self, node: str) -> None:
        """A node that was off comes back with its disk, and is waited for."""
        self._nodes[node].boot()
        self.wait_ready(node)

    def partition(self, node: str) -> None:
        """It goes on, and neither hears of the rest of the cluster nor is heard."""
        self._nodes[node].partition()

    def heal(self, node: str) -> None:
        self._nodes[node].heal()
        self.wait_ready(node)

    def silence(self) -> None:
        """The API server is killed; what runs goes on."""
        process = self._processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    def speak(self) -> None:
        """The API server comes back with what it knew."""
        self._start_api()
        self._until(self._answers, "the API server")

    def restart_api(self) -> None:
        self.silence()
        self.speak()

    def kill_pod(self, name: str, namespace: str = "default") -> None:
        """Every process of its containers dies, from outside the pod."""
        found = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        for status in found["status"]["containerStatuses"]:
            inner = status["containerID"].partition("://")[2]
            for path in (CGROUPS / "pids" / self._slot.cgroup).rglob(f"{inner}/cgroup.procs"):
                for pid in path.read_text().split():
                    os.kill(int(pid), signal.SIGKILL)

    def set_gpus(self, node: str, count: int) -> None:
        path = f"/api/v1/nodes/{node}"
        change = {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": str(count)}
        self.api.patch(f"{path}/status", change)
        self._until(
            lambda: (
                self.api.get(path)["status"]["allocatable"].get("nvidia.com/gpu") == str(count)
            ),
            f"the GPUs of {node}",
        )

    def is_ready(self, node: str) -> bool:
        """What the cluster thinks of it."""
        try:
            found = self.api.get(f"/api/v1/nodes/{node}")
        except httpx.HTTPStatusError:
            return False  # it has not come yet
        conditions = found["status"].get("conditions", ())
        taints = found["spec"].get("taints", ())
        return not taints and any(
            each["type"] == "Ready" and each["status"] == "True" for each in conditions
        )

    def wait_ready(self, node: str) -> None:
        self._until(lambda: self.is_ready(node), node)

    def wait_lost(self, node: str) -> None:
        self._until(lambda: not self.is_ready(node), f"the loss of {node}")

    def _bring_up(self) -> None:
        programs = built()
        assert programs is not None
        self._programs = programs
        self._slot.lay()
        self._write_secrets()
        self.api = Api(self.url, self.token, self.folder / "api.crt")
        images = [image.write_pause(self.folder), image.write_host(self.folder)]
        at = f"http://{self._slot.loopback}"
        self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={at}:2379", f"--advertise-client-urls={at}:2379",
            f"--listen-peer-urls={at}:2380", f"--initial-advertise-peer-urls={at}:2380",
            f"--initial-cluster=default={at}:2380", "--unsafe-no-fsync",
        )  # fmt: skip
        self._start_api()
        for index, name in enumerate(self.names, 1):
            node = self._nodes[name] = Node(self._slot, index, self.folder)
            node.configure(programs / "kubelet", self.kubeconfig, images)
            node.boot()
        self._until(self._answers, "the API server")
        common = (
            f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0",
            f"--bind-address={self._slot.loopback}", f"--cert-dir={self.folder / 'certs'}",
        )  # fmt: skip
        self._start(
            "kube-controller-manager", *common, "--secure-port=10257",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--root-ca-file={self.folder / 'api.crt'}", "--node-monitor-period=1s",
            f"--node-monitor-grace-period={self._lost_seconds}s",
        )  # fmt: skip
        self._start("kube-scheduler", *common, "--secure-port=10259")
        self._until(self._has_accounts, "the first service account")
        for name in self.names:
            self.wait_ready(name)
            if self._gpus:
                self.set_gpus(name, self._gpus)

    def _bring_down(self) -> None:
        for node in self._nodes.values():
            if node.is_on:
                node.power_off()
        for process in self._processes.values():
            process.kill()  # nothing of theirs is kept
            process.wait()
        if hasattr(self, "api"):
            self.api.close()
        self._slot.sweep()
        self._slot.release()

    def _write_secrets(self) -> None:
        key, certificate = self.folder / "api.key", self.folder / "api.crt"
        run(
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "30", "-subj", "/CN=windlass-test", "-addext",
            f"subjectAltName=IP:{self._slot.api},DNS:kubernetes.default.svc",
            "-keyout", str(key), "-out", str(certificate),
        )  # fmt: skip
        run("openssl", "genrsa", "-out", str(self.folder / "accounts.key"), "2048")
        for name, text in (
            ("tokens.csv", f"{self.token},admin,admin,system:masters\n"),
            ("kubeconfig", self._kubeconfig(certificate)),
        ):
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_text(text)

    def _kubeconfig(self, certificate: Path) -> str:
        return f"""apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: {self.url}
    certificate-authority: {certificate}
users:
- name: admin
  user:
    token: {self.token}
contexts:
- name: test
  context:
    cluster: test
    user: admin
current-context: test
"""

    def _start_api(self) -> None:
        accounts = self.folder / "accounts.key"
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://{self._slot.loopback}:2379",
            f"--bind-address={self._slot.api}", "--secure-port=443",
            f"--advertise-address={self._slot.api}",
            f"--service-cluster-ip-range={self._slot.services}",
            f"--tls-cert-file={self.folder / 'api.crt'}",
            f"--tls-private-key-file={self.folder / 'api.key'}",
            f"--cert-dir={self.folder / 'certs'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}",
            f"--token-auth-file={self.folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
        )  # fmt: skip

    def _start(self, name: str, *arguments: str) -> None:
        program = name if name == "etcd" else str(self._programs / name)
        environment = {"PATH": PATH, "HOME": str(self.folder)}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, *arguments], env=environment,
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _answers(self) -> bool:
        try:
            return self.api.text("/readyz") == "ok"
        except httpx.HTTPError:
            return False

    def _has_accounts(self) -> bool:
        """Pods are refused before it."""
        try:
            found = self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except httpx.HTTPStatusError:
            return False
        return bool(found.get("secrets"))

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _WAIT_SECONDS
        while not ready():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended: {self._tail(name)}")
            for node in self._nodes.values():
                if words := node.ended():
                    raise RuntimeError(f"{node.name} ended: {words}")
            if time.monotonic() > end:
                raise TimeoutError(f"not within {_WAIT_SECONDS} s: {what} (logs: {self.folder})")
            time.sleep(0.05)

    def _tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]
