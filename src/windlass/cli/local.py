"""The server of this machine as a process: start it apart from us, wait for it, end it.

What is true is asked of the server itself (`/health`) and of the process, never assumed from a
file: `server.json` may be left over from a server that was killed.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from windlass.cli import told as told_
from windlass.client.http import Http
from windlass.client.places import data_dir
from windlass.core.errors import Conflict, Internal, WindlassError

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 7400
START_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    pid: int
    url: str
    version: str
    home: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it was started with, as the flags of `up`."""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


def find() -> Server | None:
    """The server that answers for this home now."""
    home = data_dir()
    about = _about(home)
    if not about or not _same_process(about):
        return None  # and whatever answers at that address now is another home's
    try:
        with Http(about["url"], patience_seconds=0.0, timeout_seconds=5.0) as http:
            health = http.get("/health", signed=False)
    except WindlassError:
        return None
    if not isinstance(health, dict) or not health.get("ok"):
        return None
    settings = about.get("settings") if isinstance(about.get("settings"), dict) else {}
    return Server(about["pid"], about["url"], str(health.get("version", "")), home, settings or {})


def command(settings: Mapping[str, Any] | None = None) -> list[str]:
    """The words that start a server: with these settings, or with those that `up` kept."""
    told = {
        "host": DEFAULT_HOST,
        "port": DEFAULT_PORT,
        **(told_.kept() if settings is None else settings),
    }
    return [
        sys.executable, "-m", "windlass.server", "--home", str(data_dir()), *told_.flags(told)
    ]  # fmt: skip


def listener(host: str, port: int) -> str:
    """Who has a port, in words; empty: nobody."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as err:
            if err.errno != errno.EADDRINUSE:
                return err.strerror or str(err)
        else:
            return ""
    try:
        with Http(f"http://{host}:{port}", patience_seconds=0.0, timeout_seconds=2.0) as http:
            health = http.get("/health", signed=False)
    except WindlassError:
        health = None
    if isinstance(health, dict) and "version" in health:
        return f"another Windlass server (version {health['version']}, of another home)"
    return "another program"


def with_port(told: Mapping[str, Any], say: Callable[[str], None]) -> told_.Told:
    """The same with a port that can be had. Raises Conflict when the one that was asked for
    cannot."""
    host, port = told.get("host", DEFAULT_HOST), told.get("port")
    taken = listener(host, DEFAULT_PORT if port is None else port)
    if not taken:
        return dict(told)
    if port is not None:
        raise Conflict(
            f"--port {port}: {taken} listens there",
            hint="windlass up --port N for another, --port 0 for any free one",
        )
    say(f"port {DEFAULT_PORT}: {taken} listens there; this one takes a free port (--port chooses)")
    return {**told, "port": 0}


def begin(told: Mapping[str, Any]) -> Server:
    """Start with these settings, and keep them for the next time."""
    server = start(command(told))
    told_.keep(told if told.get("port") != 0 else {**told, "port": server.port})
    return server


def start(words: Sequence[str], *, timeout_seconds: float = START_SECONDS) -> Server:
    """Start the server detached and return once it answers. Raises Internal with the last lines
    of its log when it ends instead."""
    home = data_dir()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = home / "server.log"
    size = log.stat().st_size if log.exists() else 0
    with open(log, "ab") as file:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=home,
            close_fds=True,
            **_apart(),
        )
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        about = _about(home)
        if about and about["pid"] == process.pid:
            found = find()
            if found:
                process.returncode = 0  # it lives on without us: nobody is to wait for it
                return found
        if process.poll() is not None:
            found = find()  # two commands may start one at the same time: one of them wins
            if found:
                return found
            raise Internal(
                f"the server ended with code {process.returncode} at its start:\n"
                + tail(log, size),
                hint=f"the whole log: {log}; `windlass doctor` checks ports and disk",
            )
        time.sleep(0.01)
    process.terminate()
    process.wait()
    raise Internal(
        f"the server did not answer within {timeout_seconds:g} s; it wrote:\n" + tail(log, size),
        hint=f"the whole log: {log}",
    )


def stop(server: Server, *, timeout_seconds: float = 30.0) -> None:
    """End the server's process; running jobs go on. Raises Internal when it does not end."""
    import psutil

    try:
        process = psutil.Process(server.pid)
        process.terminate()
        process.wait(timeout_seconds)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        raise Internal(
            f"the server (pid {server.pid}) still runs after {timeout_seconds:g} s",
            hint=f"its log: {server.home / 'server.log'}",
        ) from None


def tail(path: Path, start: int = 0, lines: int = 12) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(start, path.stat().st_size - 8192))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return "  (no log)"
    return "\n".join("  " + line for line in text.splitlines()[-lines:]) or "  (it wrote nothing)"


def _about(home: Path) -> dict[str, Any] | None:
    try:
        about = json.loads((home / "server.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(about, dict) or not isinstance(about.get("pid"), int):
        return None
    return about if isinstance(about.get("url"), str) else None


def _same_process(about: dict[str, Any]) -> bool:
    """Whether the pid is still the process that wrote the file: pids are used again, and `down`
    must never end a stranger."""
    if sys.platform.startswith("linux"):
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            stat = Path(f"/proc/{about['pid']}/stat").read_text()
        except OSError:
            return False
        fields = stat.rpartition(")")[2].split()
        dead = fields[0] in ("Z", "X")
        same = int(fields[19]) == about.get("start_time") and about.get("boot_id") in ("", boot)
        return same and not dead
    import psutil

    try:
        created = psutil.Process(about["pid"]).create_time()
    except psutil.NoSuchProcess:
        return False
    return abs(created - float(about.get("start_time") or 0)) < 2.0


def _apart() -> dict[str, Any]:
    """What frees a child from our terminal, on each kind of system."""
    if os.name == "nt":
        detached, own_group = 0x00000008, 0x00000200
        return {"creationflags": detached | own_group}
    return {"start_new_session": True}
