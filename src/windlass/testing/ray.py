"""A real Ray cluster on this machine for tests: a head without CPUs and a raylet for each node, in
a folder of its own, with a token of its own.

Ray comes from an environment that is made once (`testing/environments.py`). The nodes are one
machine under several names; they offer more CPUs than it has.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from windlass.engines.ray.cluster import environment as environment_of
from windlass.testing.environments import environment

RAY = "ray==2.60.0"
_READY_SECONDS = 180.0

# Run with Ray's Python: a line in, a line out, until the input ends.
_PROGRAM = """
import json, os, sys
out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
import ray, ray._private.utils
from ray.cluster_utils import Cluster
ray._private.utils.write_ray_address = lambda *given, **more: None  # one place for all clusters
folder, cpus, gpus, memory = sys.argv[1], *map(int, sys.argv[2:])
cluster = Cluster()
nodes = {}
cluster.add_node(
    num_cpus=0, node_name="head", include_dashboard=False, temp_dir=folder,
    _system_config={"health_check_period_ms": 1000, "health_check_initial_delay_ms": 1000},
)
out.write(json.dumps({"address": cluster.address}) + "\\n")
for line in sys.stdin:
    what, name = line.split()
    if what == "boot":
        nodes[name] = cluster.add_node(
            wait=False, num_cpus=cpus, num_gpus=gpus, memory=memory, node_name=name,
            labels={"zone": "z-" + name},
        )
    elif what == "ready":
        cluster.wait_for_nodes(timeout=170)
    else:
        cluster.remove_node(nodes.pop(name), allow_graceful=False)
    out.write(json.dumps({what: name}) + "\\n")
cluster.shutdown()
"""


def python() -> Path:
    """A Python with Ray. Raises Unavailable."""
    return environment("ray", RAY)


class Cluster:
    def __init__(self, nodes: int = 2, cpus: int = 32, gpus: int = 0) -> None:
        self.python = python()
        self.names = tuple(f"r{number}" for number in range(1, nodes + 1))
        self.address = ""
        # Not a test's own folder: Ray lays sockets into it, whose paths must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="wl-ray-"))
        self.token_file = self.folder / "token"
        self._size = (cpus, gpus, 64 * 2**30)
        self._process: subprocess.Popen[str] | None = None

    @property
    def options(self) -> dict[str, str]:
        """For `windlass engine add`."""
        return {
            "address": self.address, "python": str(self.python), "token-file": str(self.token_file)
        }  # fmt: skip

    def __enter__(self) -> Cluster:
        self.token_file.write_text(secrets.token_hex(32))
        self.token_file.chmod(0o600)
        log = open(self.folder / "cluster.out", "wb")
        with log:
            self._process = subprocess.Popen(
                [self.python, "-I", "-c", _PROGRAM, str(self.folder / "t"),
                 *map(str, self._size)],
                env={**environment_of(str(self.token_file)), "RAY_DEDUP_LOGS": "0"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1,
                start_new_session=True,
            )  # fmt: skip
        self.address = self._answer()["address"]
        for name in self.names:
            self._ask("boot", name)
        self._ask("ready", "all")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._end_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def boot(self, node: str) -> None:
        self._ask("boot", node)
        self._ask("ready", "all")

    def fell(self, node: str) -> None:
        """The node's raylet dies; what our actor started goes on, as on a real node whose network
        is gone."""
        self._ask("fell", node)

    def left(self) -> list[str]:
        """What of ours is in the cluster: named actors, and groups that were not removed."""
        program = (
            "import json, sys, ray\n"
            "ray.init(address=sys.argv[1], namespace='windlass', log_to_driver=False,"
            " configure_logging=False)\n"
            "groups = ray.util.placement_group_table().values()\n"
            "print(json.dumps(ray.util.list_named_actors()"
            " + [each['name'] for each in groups if each['state'] != 'REMOVED']))\n"
        )
        done = subprocess.run(
            [self.python, "-I", "-c", program, self.address],
            env=environment_of(str(self.token_file)), check=True, capture_output=True, text=True,
            timeout=_READY_SECONDS,
        )  # fmt: skip
        found: list[str] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _ask(self, what: str, name: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{what} {name}\n")
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _READY_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            words = (self.folder / "cluster.out").read_text(errors="replace")[-3000:]
            raise AssertionError(f"no Ray cluster: {words}")
        told: dict[str, Any] = json.loads(line)
        return told

    def _end_all(self) -> None:
        ends = time.monotonic() + _READY_SECONDS
        while found := processes_of(self.token_file):
            assert time.monotonic() < ends, f"Ray's processes do not end: {found}"
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)


def processes_of(token_file: Path) -> list[int]:
    """Ray's processes are known by their token, which is one cluster's alone."""
    mark = f"RAY_AUTH_TOKEN_PATH={token_file}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile, or is not ours to look at
    return found


if __name__ == "__main__":
    print(python(), file=sys.stderr)
