"""Claim: `ps:async` makes more updates a second than a parameter server written on
torch.distributed.rpc, one of Ray's actors, and Elephas.

One server, two workers, batches of 32 of scikit-learn's digits, plain SGD with one rate, as many
updates: a network of 19 kB, where a message costs most, and one of 26 MB, where moving it does.
Each contestant lives in processes of its own that stay up; they take turns, and only the updates
are timed, not what they need to begin. CPU time is of all processes of a contestant together, with
what a platform needs beside the training. The loss over all data after the last update stands
beside it: as many updates from as many samples should do as well.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import psutil
from sklearn.datasets import load_digits

from benchmarks.measure import CACHE, ROOT, Row, folder, script
from benchmarks.peers import network

REPEATS = 5
UPDATES = {"small": 400, "large": 24}
"""Of each worker in one run."""
SHOWN = {"small": "19 kB", "large": "26 MB"}
PEERS = ("torch RPC", "torch RPC, one call", "Ray actors", "Elephas")
TORCH = "torch==2.13.0"  # the CPU's build: see CONTRIBUTING.md
SILENCE_SECONDS = 240


@dataclass(frozen=True)
class Found:
    rate: float
    """Updates a second."""
    cpu: float
    """CPU milliseconds of an update."""
    loss: float
    moved: float | None
    """Bytes of an update, where they are counted."""


class Unavailable(Exception):
    """A peer that cannot run here, and why."""


class Contestant:
    """A program of `benchmarks/peers` in an interpreter of its own."""

    def __init__(self, python: Path, module: str, *words: str, env: dict[str, str]) -> None:
        self._said: deque[str] = deque(maxlen=30)
        self.process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.peers.{module}", *words], cwd=ROOT, env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace",
        )  # fmt: skip
        self._drain = Thread(target=self._keep_errors, daemon=True)
        self._drain.start()
        self._answer()

    def run(self, size: str) -> Found:
        before = self._cpu_seconds()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"size": size, "updates": UPDATES[size]}) + "\n")
        self.process.stdin.flush()
        told = self._answer()
        spent = self._cpu_seconds() - before
        moved = told.get("bytes")
        return Found(
            told["updates"] / told["seconds"], spent / told["updates"] * 1e3, told["loss"],
            None if moved is None else moved / told["updates"],
        )  # fmt: skip

    def close(self) -> None:
        """It ends when nobody asks any more; what it leaves is ended."""
        family = self._family()
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        for each in family:
            with suppress(psutil.Error):
                each.kill()
        self.process.wait(10)
        self._drain.join(5)
        self.process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("@@ "):
                found: dict[str, Any] = json.loads(line[3:])
                return found
            self._said.append(line)
        self._drain.join(2)
        told = [line.strip() for line in self._said if "Error" in line] or ["it ended"]
        raise Unavailable(told[-1][:300])

    def _keep_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self._said.extend(lines)

    def _family(self) -> list[psutil.Process]:
        try:
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu_seconds(self) -> float:
        spent = 0.0
        for each in self._family():
            with suppress(psutil.Error):
                times = each.cpu_times()
                spent += times.user + times.system + times.children_user + times.children_system
        return spent


def measure(peers: Sequence[str] = PEERS, repeats: int = REPEATS) -> list[Row]:
    with folder() as place, ExitStack() as stack:
        env = _environment(place)
        here = Path(sys.executable)
        names: dict[str, Contestant] = {"windlass": Contestant(here, "ours", env=env)}
        stack.callback(names["windlass"].close)
        absent = {}
        for name in peers:
            try:
                names[name] = stack.enter_context(_peer(name, env))
            except Unavailable as err:
                absent[name] = str(err)
        found = {(name, size): [] for name in names for size in UPDATES}  # type: dict[tuple[str, str], list[Found]]
        for size in UPDATES:
            for number in range(repeats + 1):
                for name, each in names.items():
                    result = each.run(size)
                    if number:  # the first is not measured
                        found[name, size].append(result)
    rows = [
        row for size in UPDATES for name in peers if name in names
        for row in _rows(size, name, found["windlass", size], found[name, size])
    ]  # fmt: skip
    return rows + [Row(f"{name} as a peer", "", why, "", "", None) for name, why in absent.items()]


def _rows(size: str, name: str, ours: list[Found], theirs: list[Found]) -> list[Row]:
    what = f"{SHOWN[size]} ({name})"
    rate, other = [each.rate for each in ours], [each.rate for each in theirs]
    middle = statistics.median(rate) / statistics.median(other)
    told = f"{middle:.2f}x ({min(rate) / max(other):.2f}…{max(rate) / min(other):.2f})"
    speed = Row(
        f"updates a second, {what}", f"{statistics.median(rate):,.0f}/s",
        f"{statistics.median(other):,.0f}/s", told, "> 1x", middle > 1,
    )  # fmt: skip
    cpu, spent = (statistics.median(each.cpu for each in arm) for arm in (ours, theirs))
    loss, least = (statistics.median(each.loss for each in arm) for arm in (ours, theirs))
    moved = ours[0].moved
    carried = "" if moved is None else f"; {moved / 1e6:,.3g} MB moved"
    return [
        speed,
        Row(
            f"an update's CPU time; the loss at the end, {what}",
            f"{cpu:.1f} ms; {loss:.3f}{carried}", f"{spent:.1f} ms; {least:.3f}",
            f"{cpu / spent:.2f}x", "", None,
        ),
    ]  # fmt: skip


def _environment(place: Path) -> dict[str, str]:
    x, y = load_digits(return_X_y=True)
    np.savez(place / "digits.npz", x=(x / 16).astype(np.float32), y=y.astype(np.int64))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WINDLASS_", "RAY_"))}
    return {
        **kept,
        network.DATA: str(place / "digits.npz"),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT),
    }


# -- peers --------------------------------------------------------------------------------------


@contextmanager
def _peer(name: str, env: dict[str, str]) -> Iterator[Contestant]:
    with ExitStack() as stack:
        if name == "torch RPC":
            found = Contestant(Path(sys.executable), "rpc", "server", _port(), env=env)
        elif name == "torch RPC, one call":
            words = ("server", _port(), "--fused")
            found = Contestant(Path(sys.executable), "rpc", *words, env=env)
        elif name == "Ray actors":
            # Not below the checkout: the path of a Unix socket may have about 100 characters.
            temporary = f"/tmp/ray-peers-{os.getpid()}"
            stack.callback(shutil.rmtree, temporary, ignore_errors=True)
            python = _installed("ray-venv", ["ray[default]"], [TORCH, "numpy"])
            env = {**env, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
            found = Contestant(python, "ray_actors", temporary, env=env)
        else:
            if shutil.which("java") is None:
                raise Unavailable("Spark needs Java, and there is none")
            python = _installed("elephas-venv", *ELEPHAS)
            found = Contestant(python, "elephas_async", env=_spark(env, python))
        stack.callback(found.close)
        yield found


ELEPHAS = (
    ["tensorflow-cpu==2.21.0", "pyspark==4.3.0", "flask", "six", "h5py"],
    ["--no-deps", "elephas==7.3.0"],
)


def _spark(env: dict[str, str], python: Path) -> dict[str, str]:
    return {
        **env, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python),
        "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "",
        "KERAS_BACKEND": "tensorflow",
    }  # fmt: skip


def _installed(name: str, *wanted: list[str]) -> Path:
    """The Python of an environment that has all of it; made at the first time."""
    python = CACHE / name / "bin" / "python"
    stamp = CACHE / name / "peers.stamp"
    if stamp.exists() and stamp.read_text() == repr(wanted):
        return python
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(CACHE / name)], check=True)
    for words in wanted:
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", *words], capture_output=True, text=True
        )
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            raise Unavailable(f"pip install {' '.join(words)}: {' '.join(last)}"[:300])
    stamp.write_text(repr(wanted))
    return python


def _port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return str(found.getsockname()[1])


if __name__ == "__main__":
    script(measure)
