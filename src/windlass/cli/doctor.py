"""`windlass doctor`: what of this machine works for Windlass, and how to mend what does not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

import windlass
from windlass.cli import apart, exits, local, output
from windlass.cli.session import WORDS, Session, verb
from windlass.cli.specs import user_python
from windlass.client.http import Http
from windlass.client.places import config_dir, data_dir
from windlass.core.errors import WindlassError

MIN_FREE_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Check:
    name: str
    state: str
    """ok, note (works, but less well) or bad."""
    found: str
    fix: str = ""


@verb("doctor", outputs=WORDS)
def command(session: Session) -> None:
    """Check this machine and print how to mend it.

    `-o json` is what a bug report wants. Exits 1 when something is bad.
    """
    checks = list(every(session))
    data = {
        "version": windlass.__version__,
        "platform": sys.platform,
        "checks": [asdict(check) for check in checks],
    }
    if not session.one(data):
        marks = {"ok": "ok  ", "note": "note", "bad": "BAD "}
        colours = {"ok": "green", "note": "yellow", "bad": "red"}
        for check in checks:
            mark = marks[check.state]
            if output.colour_wanted():
                mark = click.style(mark, fg=colours[check.state])
            click.echo(f"{mark}  {check.name:<12} {check.found}")
            if check.fix:
                click.echo(f"      {'':<12} fix: {check.fix}")
    sys.exit(exits.ERROR if any(check.state == "bad" for check in checks) else exits.OK)


def every(session: Session) -> Iterator[Check]:
    yield python()
    yield disk(data_dir())
    yield key(config_dir() / "credentials.json")
    yield from server(session)
    yield gpu()
    yield cgroups()
    yield isolation()
    yield tool("py-spy", shutil.which("py-spy") or _beside("py-spy"), "stacks and flame graphs")
    debugpy = "installed" if importlib.util.find_spec("debugpy") else None
    yield tool("debugpy", debugpy, "windlass debug attach")


def python() -> Check:
    """Which Python we are, and which one a script will be run with: they may differ."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Check("python", "ok", f"{version} at {sys.executable}; jobs run {user_python()}")


def disk(home: Path) -> Check:
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    if not os.access(place, os.W_OK):
        return Check("disk", "bad", f"{place} cannot be written", "set WINDLASS_HOME elsewhere")
    free = shutil.disk_usage(place).free
    found = f"{output.megabytes(free)} free at {home}"
    if free < MIN_FREE_BYTES:
        return Check(
            "disk", "bad", found, "free some space, or set WINDLASS_HOME to a larger disk"
        )
    return Check("disk", "ok", found)


def key(path: Path) -> Check:
    if os.environ.get("WINDLASS_ACCESS_KEY"):
        return Check("key", "ok", "from WINDLASS_ACCESS_KEY")
    if not path.exists():
        return Check("key", "note", f"none at {path}", "the first `windlass up` writes one")
    if os.name != "nt" and path.stat().st_mode & 0o077:
        return Check("key", "bad", f"{path} can be read by others", f"chmod 600 {path}")
    return Check("key", "ok", str(path))


def server(session: Session) -> Iterator[Check]:
    url = session.config.get("url")
    try:
        with Http(url.value, patience_seconds=0.0, timeout_seconds=5.0) as http:
            health = http.get("/health", signed=False)
    except WindlassError as err:
        there = local.look() if session.config.local else None
        if there and not there.answers:
            told = local.silent(there)
            yield Check("server", "bad", told.message, told.hint)
            return
        fix = "windlass up" if session.config.local else f"the address is from {url.origin}"
        yield Check("server", "note" if session.config.local else "bad", err.message, fix)
        if session.config.local:
            yield port()
        return
    if session.config.local and local.find() is None:
        yield Check(
            "server", "note",
            f"{url.value} answers, but it is a stranger's: not the server of {data_dir()}",
            f"windlass up starts one of yours, on a free port; windlass login {url.value} if you "
            "have a key for that one",
        )  # fmt: skip
        return
    yield Check("server", "ok", f"{url.value} answers, version {health.get('version')}")
    if health.get("version") not in (None, windlass.__version__):
        yield Check(
            "versions", "note", f"here {windlass.__version__}, there {health['version']}",
            "restart it: windlass down && windlass up",
        )  # fmt: skip
    try:
        status = session.client.status()
        yield Check("sign-in", "ok", "the key is accepted, the clocks agree")
        yield in_force(status.get("isolation") or {})
    except WindlassError as err:
        yield Check("sign-in", "bad", err.message, err.hint)
    if isinstance(health.get("time_ms"), int):
        away = abs(time.time() * 1000 - health["time_ms"]) / 1000
        yield Check("clock", "ok" if away < 60 else "bad", f"{away:.1f} s from the server's",
                    "" if away < 60 else "set this machine's clock")  # fmt: skip


def in_force(told: Mapping[str, Any]) -> Check:
    """How far the server that answers keeps its jobs apart, which may be less than it could."""
    how_far, what_is_read = apart.in_force(told)
    found = f"{how_far}; {what_is_read}"
    if told.get("level", 0) >= 1:
        return Check("jobs apart", "ok", found)
    return Check("jobs apart", "note", found, "where this machine can: windlass up --isolation 1")


def port() -> Check:
    """Whether the default port could be had."""
    with socket.socket() as probe:
        try:
            probe.bind((local.DEFAULT_HOST, local.DEFAULT_PORT))
        except OSError as err:
            return Check(
                "port", "note", f"{local.DEFAULT_PORT}: {err.strerror}",
                "none needed: windlass up takes a free one; --port chooses",
            )  # fmt: skip
    return Check("port", "ok", f"{local.DEFAULT_PORT} is free")


def gpu() -> Check:
    found = shutil.which("nvidia-smi")
    if not found:
        return Check("gpu", "note", "no nvidia-smi: jobs run on CPUs (--fake-gpus to try GPUs)")
    import subprocess

    words = [found, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        return Check("gpu", "bad", f"nvidia-smi does not answer: {err}", "check the driver")
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not lines:
        words_of_it = (done.stderr or done.stdout).strip()[:200]
        return Check("gpu", "bad", f"nvidia-smi: {words_of_it}", "check the driver")
    return Check("gpu", "ok", f"{len(lines)} x {lines[0]}")


def cgroups() -> Check:
    if not sys.platform.startswith("linux"):
        return Check("cgroups", "note", f"none on {sys.platform}: memory limits are not enforced")
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        kind, place = "v2", Path("/sys/fs/cgroup")
    elif Path("/sys/fs/cgroup/memory").exists():
        kind, place = "v1", Path("/sys/fs/cgroup/memory")
    else:
        return Check("cgroups", "note", "none: memory limits are not enforced")
    if os.access(place, os.W_OK):
        return Check("cgroups", "ok", f"{kind}, writable")
    return Check(
        "cgroups", "note", f"{kind}, not writable by this user: memory limits may not be enforced"
    )


def isolation() -> Check:
    """How far jobs could be kept apart by a server that this user starts."""
    from windlass.engines.local.isolation import look

    able = look()
    without = "" if able.network else "; no job can go without network"
    if able.level >= 1:
        return Check("isolation", "ok", f"level {able.level}: each job a user of its own{without}")
    missing = "; ".join(able.missing)
    fix = "apt install bubblewrap" if able.parts.get("bubblewrap") == "none" else ""
    found = f"level 0: jobs are not kept from each other{without}. Level 1: {missing}"
    return Check("isolation", "note", found, fix)


def tool(name: str, found: str | None, use: str) -> Check:
    if found:
        return Check(name, "ok", found)
    return Check(name, "note", f"missing: {use}", "pip install 'windlass[debug]'")


def _beside(name: str) -> str | None:
    """A script of the environment we run in, which need not be on PATH."""
    path = Path(sys.executable).parent / name
    return str(path) if path.exists() else None
