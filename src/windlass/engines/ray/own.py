"""A Ray cluster of this machine alone, started by us for who has none. It outlives the server, as
what runs in it does, and ends when its engine is taken away.

`<home>/ray/<engine>/` holds its token and where it is. Its processes are known by that token's
path in their environment, so that nobody else's Ray is ever touched (`ray stop` ends every one).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from windlass.engines.processes import boot_id
from windlass.engines.ray.cluster import RayFailed, environment

_START_SECONDS = 120.0
_END_SECONDS = 30.0


class OwnCluster:
    def __init__(self, home: Path, name: str, python: str) -> None:
        self._folder = Path(home).absolute() / "ray" / name
        self._name, self._python = name, python

    @property
    def token_file(self) -> Path:
        return self._folder / "token"

    async def address(self) -> str:
        """Where it answers; it is started unless it runs. Raises RayFailed."""
        return await asyncio.to_thread(self._running)

    async def end(self) -> None:
        await asyncio.to_thread(self._end)

    def _running(self) -> str:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._turn():
                return self._known() or self._start()
        except OSError as err:
            raise RayFailed(f"no cluster can be started: {err}", unreachable=False) from err

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with open(self._folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _known(self) -> str:
        try:
            told = json.loads((self._folder / "cluster.json").read_text())
        except (OSError, ValueError):
            return ""
        lives = told["boot_id"] == boot_id() and any(
            b"gcs_server" in _command(pid) for pid in self._processes()
        )
        return str(told["address"]) if lives else ""

    def _start(self) -> str:
        self._kill_all()
        self.token_file.unlink(missing_ok=True)
        self.token_file.touch(0o600)
        self.token_file.write_text(secrets.token_hex(32))
        # Sockets lie there, and the path of a socket must be short.
        sockets = tempfile.mkdtemp(prefix="wl-ray-")
        port = _free_port()
        command = [
            self._python, "-I", "-m", "ray.scripts.scripts", "start", "--head",
            f"--port={port}", f"--node-name={self._name}-1", f"--temp-dir={sockets}",
            "--include-dashboard=false", "--disable-usage-stats",
            "--min-worker-port=0", "--max-worker-port=0",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, env=environment(str(self.token_file)), cwd="/",
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=_START_SECONDS, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self._kill_all()
            raise RayFailed(
                f"Ray did not start within {_START_SECONDS:g} s", unreachable=True
            ) from None
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise RayFailed(f"Ray did not start: {words[-1][:300] if words else '?'}",
                            unreachable=False)  # fmt: skip
        address = (Path(sockets) / "ray_current_cluster").read_text().strip()
        told = {"address": address, "sockets": sockets, "boot_id": boot_id()}
        fresh = self._folder / ".cluster.json"
        fresh.write_text(json.dumps(told))
        fresh.rename(self._folder / "cluster.json")
        return address

    def _end(self) -> None:
        if not self._folder.exists():
            return
        with self._turn():
            self._kill_all()
            with contextlib.suppress(OSError, ValueError, KeyError):
                told = json.loads((self._folder / "cluster.json").read_text())
                shutil.rmtree(told["sockets"], ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill_all(self) -> None:
        ends = time.monotonic() + _END_SECONDS
        while (found := self._processes()) and time.monotonic() < ends:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _processes(self) -> list[int]:
        mark = f"RAY_AUTH_TOKEN_PATH={self.token_file}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return [pid for pid in found if pid != os.getpid()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("", 0))
        port: int = tried.getsockname()[1]
        return port
