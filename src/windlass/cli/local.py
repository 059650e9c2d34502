"""The server of this machine as a process: start it apart from us, wait for it, end it.

What is true is asked of the server itself (`/health`) and of the process, never assumed from a
file: `server.json` may be left over from a server that was killed. A process that is there and
does not answer is neither up nor away: nothing is started beside it, and it is ended by its pid
alone (`windlass down --force`).
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
from windlass.core.errors import Conflict, Internal, Unavailable, Unreachable, WindlassError

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 7400
START_SECONDS = 60.0
ANSWER_SECONDS = 5.0
"""One that has not answered by then hangs, or might as well."""


@dataclass(frozen=True)
class Server:
    pid: int
    url: str
    version: str
    home: Path
    answers: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it was started with, as the flags of `up`."""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


def look() -> Server | None:
    """The server process of this home, whether or not it answers."""
    home = data_dir()
    about = _about(home)
    if not about or not _same_process(about):
        return None  # and whatever answers at that address now is another home's
    version, answers = str(about.get("version", "")), True
    try:
        with Http(about["url"], patience_seconds=0.0, timeout_seconds=ANSWER_SECONDS) as http:
            health = http.get("/health", signed=False)
        version = str(health.get("version", version)) if isinstance(health, dict) else version
    except Unreachable:
        answers = False
    except WindlassError:
        pass  # an answer too: why it cannot serve is the next call's to hear
    if not answers and not _same_process(about):
        return None  # it was about to end
    settings = about.get("settings") if isinstance(about.get("settings"), dict) else {}
    return Server(about["pid"], about["url"], version, home, answers, settings or {})


def find() -> Server | None:
    """The server that answers for this home now."""
    found = look()
    return found if found and found.answers else None


def demand_answers() -> Server | None:
    """As `find`. Raises Unavailable when it is there and does not answer."""
    found = look()
    if found and not found.answers:
        raise silent(found)
    return found


def silent(server: Server) -> Unavailable:
    """What to say of one that is there and does not answer."""
    stopped = "" if not _is_stopped(server.pid) else (
        f" Its process is stopped: `kill -CONT {server.pid}` lets it go on."
    )  # fmt: skip
    return Unavailable(
        f"the server of {server.home} is there (pid {server.pid}, {server.url}), but has not "
        f"answered within {ANSWER_SECONDS:g} s",
        hint="wait, if this machine is busy; `windlass down --force` ends it by its pid, running "
        f"jobs go on.{stopped} Its log: {server.home / 'server.log'}",
        pid=server.pid,
    )


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
    of its log when it ends instead, Unavailable when one is there that does not answer."""
    home = data_dir()
    demand_answers()
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
            hint=f"`windlass down --force` ends it; its log: {server.home / 'server.log'}",
        ) from None


def end_by_force(server: Server, *, timeout_seconds: float = 30.0) -> None:
    """SIGKILL to the server's process, and to no other: whether it is still the one that wrote
    the note is asked once the handle to it is held. Raises Internal when it does not end."""
    import psutil

    try:
        process = psutil.Process(server.pid)  # which knows a pid that was used again
        about = _about(server.home)
        if not about or about["pid"] != server.pid or not _same_process(about):
            return
        process.kill()
        process.wait(timeout_seconds)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired:
        raise Internal(
            f"the server (pid {server.pid}) is there {timeout_seconds:g} s after it was killed",
            hint="the system holds it (a disk or a network drive that hangs); it ends by itself",
        ) from None
    (server.home / "server.json").unlink(missing_ok=True)


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


def _is_stopped(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _apart() -> dict[str, Any]:
    """What frees a child from our terminal, on each kind of system."""
    if os.name == "nt":
        detached, own_group = 0x00000008, 0x00000200
        return {"creationflags": detached | own_group}
    return {"start_new_session": True}
