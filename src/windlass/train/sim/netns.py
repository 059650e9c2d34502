"""Ranks on slow links, on one machine: a network namespace each, on a bridge in one of its own.

    rank 0  10.77.0.1 ─ veth ─┐
    rank 1  10.77.0.2 ─ veth ─┼─ bridge (in the hub's namespace; the machine's own sees nothing)
    rank 2  10.77.0.3 ─ veth ─┘

Both ends of each veth are held to the rate by a token bucket (`tbf`), so a link is as fast one way
as the other. Needs root and the tools `ip` and `tc`; `unable()` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from windlass.core.errors import InvalidInput, TrainingFailed

_BURST_BYTES = 128 * 1024  # above the largest piece that a veth hands over at once
_QUEUE_BYTES = 4 * 1024 * 1024
_PORT = 29500
_PATIENCE_SECONDS = 5.0


def unable() -> str:
    """Why links cannot be made here, or nothing."""
    if os.name != "posix" or os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}` here (package iproute2)"
    name = f"windlass-{os.getpid()}-try"
    found = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if found.returncode:
        return f"network namespaces cannot be made here: {found.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return ""


class Links:
    """`with Links(2, mbit=200) as links: links.run([sys.executable, "rank.py"])`."""

    def __init__(self, count: int, *, mbit: float) -> None:
        why = unable()
        if why:
            raise InvalidInput(why)
        self.count = count
        self.mbit = mbit
        self._name = f"windlass-{os.getpid()}"
        self._made: list[str] = []
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def address(self, rank: int) -> str:
        return f"10.77.0.{rank + 1}"

    def run(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = 120.0,
    ) -> list[str]:
        """The same command on each rank, with the environment that `torchrun` would give; what
        each printed. Raises TrainingFailed with the last lines of one that failed; all are ended
        when it returns."""
        run = f"{self._name}-{time.monotonic_ns()}"
        with tempfile.TemporaryDirectory(prefix="windlass-links-") as folder:
            files = [Path(folder) / f"{rank}.txt" for rank in range(self.count)]
            processes = []
            try:
                for rank, file in enumerate(files):
                    env = {
                        **os.environ, "OMP_NUM_THREADS": "1", **(environment or {}),
                        "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(self.count),
                        "MASTER_ADDR": self.address(0), "MASTER_PORT": str(_PORT),
                        "TORCHELASTIC_RUN_ID": run,
                    }  # fmt: skip
                    with file.open("wb") as out:
                        processes.append(
                            subprocess.Popen(
                                ["ip", "netns", "exec", self._space(rank), *words],
                                env=env,
                                stdin=subprocess.DEVNULL,
                                stdout=out,
                                stderr=out,
                            )  # fmt: skip
                        )
                self._await(processes, files, timeout_seconds)
                return [file.read_text(errors="replace") for file in files]
            finally:
                for process in processes:
                    if process.poll() is None:
                        process.kill()
                    process.wait()

    def close(self) -> None:
        """What is in a namespace goes with it."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self._made.clear()

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _await(
        processes: Sequence[subprocess.Popen[bytes]], files: Sequence[Path], seconds: float
    ) -> None:
        ends = time.monotonic() + seconds
        while any(each.poll() is None for each in processes) and time.monotonic() < ends:
            time.sleep(0.02)
            if any(each.poll() for each in processes):  # the others may have more to say of it
                ends = min(ends, time.monotonic() + _PATIENCE_SECONDS)
        said = []
        for rank, (process, file) in enumerate(zip(processes, files, strict=True)):
            code = process.poll()
            if code != 0:
                how = "did not end in time" if code is None else f"ended with {code}"
                said.append(f"rank {rank}: it {how}\n{_tail(file)}")
        if said:
            raise TrainingFailed("\n".join(said))

    def _space(self, rank: int) -> str:
        return f"{self._name}-{rank}"

    def _make(self) -> None:
        hub = f"{self._name}-hub"
        self._add(hub)
        _ip("-n", hub, "link", "add", "hub", "type", "bridge")
        _ip("-n", hub, "link", "set", "hub", "up")
        for rank in range(self.count):
            space, port = self._space(rank), f"port{rank}"
            self._add(space)
            _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "eth0", "netns", space)
            _ip("-n", hub, "link", "set", port, "master", "hub", "up")
            _ip("-n", space, "address", "add", f"{self.address(rank)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "link", "set", "eth0", "up")
            for where, device in ((hub, port), (space, "eth0")):
                _run(
                    "tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf",
                    "rate", f"{self.mbit:g}mbit", "burst", str(_BURST_BYTES),
                    "limit", str(_QUEUE_BYTES),
                )  # fmt: skip

    def _add(self, name: str) -> None:
        _ip("netns", "add", name)
        self._made.append(name)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    found = subprocess.run(words, capture_output=True, text=True)
    if found.returncode:
        raise TrainingFailed(f"{' '.join(words)}: {found.stderr.strip()}")


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-40:])
