"""Claim: the base install has at most 50 packages and 200 MB; `windlass up` takes at most 1.5 s of
CPU and `windlass --help` at most 150 ms.

A fresh virtual environment gets `pip install .` and nothing else; everything is measured there.
The CPU of `up` is that of the command and of the server up to its first answer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import (
    CACHE,
    ROOT,
    Row,
    below,
    cpu_seconds,
    folder,
    median,
    megabytes,
    milliseconds,
    script,
    seconds,
)

ROUNDS = 5


def measure() -> list[Row]:
    venv = CACHE / "first-minute-venv"
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    began = time.perf_counter()
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    with folder() as place:
        subprocess.run(
            [*pip, "wheel", "--no-deps", "-w", str(place), str(ROOT)],
            check=True, capture_output=True,
        )  # fmt: skip
        (wheel,) = place.glob("*.whl")
        wheel_bytes = wheel.stat().st_size
        subprocess.run([*pip, "install", str(wheel)], check=True, capture_output=True)
    install_seconds = time.perf_counter() - began
    listed = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True)
    names = {each["name"] for each in json.loads(listed.stdout)} - {"pip", "setuptools"}
    (site,) = venv.glob("lib/python*/site-packages")
    bytes_installed = sum(
        path.lstat().st_size
        for path in site.rglob("*")
        if path.is_file() and path.relative_to(site).parts[0].split("-")[0] not in _NOT_OURS
    )
    windlass = str(venv / "bin" / "windlass")
    helps = [_children_cpu([windlass, "--help"]) for _ in range(ROUNDS + 1)][1:]
    ups = [_up(windlass) for _ in range(ROUNDS + 1)][1:]
    return [
        below("base install, packages", len(names), 50, lambda value: f"{value:.0f}"),
        below("base install, size", bytes_installed, 200e6, megabytes),
        below("the wheel itself", wheel_bytes, 4e6, megabytes),
        Row("pip install from nothing", seconds(install_seconds), "", "", "", None),
        below("`windlass up`, CPU until it answers", median(ups), 1.5, seconds),
        below("`windlass --help`, CPU", median(helps), 0.150, milliseconds),
    ]


_NOT_OURS = {"pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils"}


def _children_cpu(command: list[str], env: dict[str, str] | None = None) -> float:
    before = os.times()
    subprocess.run(command, check=True, capture_output=True, env=env)
    after = os.times()
    return after[2] - before[2] + after[3] - before[3]


def _up(windlass: str) -> float:
    with folder() as place:
        home = place / "home"
        env = {**os.environ, "WINDLASS_HOME": str(home)}
        spent = _children_cpu([windlass, "up", "--port", "0", "-q"], env)
        pid = json.loads((home / "server.json").read_text())["pid"]
        spent += cpu_seconds(pid, children=True)
        os.kill(pid, signal.SIGTERM)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.02)
    return spent


if __name__ == "__main__":
    script(measure)
