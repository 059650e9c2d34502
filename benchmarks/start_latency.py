"""Claim: from starting the command to the first line of the user's output, a trivial script on a
warm server takes at most a third of `ray job submit`, measured alike.

Ray lives in a virtual environment of its own (.cache/ray-venv), with a head that is already up:
every port, its folder and its authentication are said, because its defaults are shared by all
clusters of a user. It is stopped by the pids that were started here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.measure import (
    CACHE,
    Row,
    at_most,
    first_line_seconds,
    folder,
    interleave,
    median,
    milliseconds,
    script,
    windlass,
)
from windlass.testing.platform import Platform

ROUNDS = 9
PORT, DASHBOARD = 6391, 8291
MARK = "BENCHMARK-RAY-HEAD"


def measure() -> list[Row]:
    with folder() as place, Platform(place / "home") as platform, ray_head(place) as ray:
        work = place / "work"
        work.mkdir()
        ours, env = windlass(
            platform.home, "run", "--no-code", "--", "python3", "-c", "print('hello-1')"
        )
        theirs = [
            str(ray), "job", "submit", "--address", f"http://127.0.0.1:{DASHBOARD}", "--",
            "python3", "-c", "print('hello-1')",
        ]  # fmt: skip
        found = interleave(
            {
                "windlass": lambda: first_line_seconds(ours, "hello-1", env=env, cwd=work),
                "ray": lambda: first_line_seconds(theirs, "hello-1", env=ray_env(), cwd=work),
            },
            ROUNDS,
        )
    claim = "CLI start → first line of output (ray job submit)"
    return [at_most(claim, median(found["windlass"]), median(found["ray"]), 0.333, milliseconds)]


def ray_env() -> dict[str, str]:
    return {
        **os.environ,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        MARK: str(os.getpid()),
    }


@contextmanager
def ray_head(place: Path) -> Iterator[Path]:
    """A head of Ray that answers; its command line is yielded."""
    venv = CACHE / "ray-venv"
    ray = venv / "bin" / "ray"
    if not ray.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "-q", "ray[default]"], check=True)
    # Not below the checkout: the path of a Unix socket may have about 100 characters.
    temporary = Path("/tmp") / f"ray-bench-{os.getpid()}"
    try:
        subprocess.run(
            [
                str(ray), "start", "--head", f"--port={PORT}", "--dashboard-host=127.0.0.1",
                f"--dashboard-port={DASHBOARD}", f"--temp-dir={temporary}", "--num-cpus=2",
                "--disable-usage-stats", "--min-worker-port=9500", "--max-worker-port=9900",
            ],
            env=ray_env(), cwd=place, check=True, capture_output=True, timeout=180,
        )  # fmt: skip
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{DASHBOARD}/api/version", timeout=5)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        yield ray
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in _mine():
                with suppress(psutil.Error):
                    process.send_signal(number)
            psutil.wait_procs(_mine(), timeout=5)
        subprocess.run(["rm", "-rf", str(temporary)], check=False)


def _mine() -> list[psutil.Process]:
    """The processes of the head that this process started, by a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == str(os.getpid()):
                found.append(process)
    return found


if __name__ == "__main__":
    script(measure)
