"""`windlass run --offline`: the command runs here and now, without a server, and what it tells
goes into a folder that `windlass sync` brings in later. The work is a worker's
(`windlass.worker.offline`), in a process of its own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODULE = "windlass.worker.offline"


def run(command: Sequence[str], name: str | None, variables: dict[str, str]) -> tuple[int, Path]:
    """The command's exit code, and the run's folder."""
    words = [sys.executable, *command] if command[0].endswith(".py") else list(command)
    stem = name or Path(next((word for word in command if word.endswith(".py")), words[0])).stem
    folder = Path("windlass-runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{stem}-{os.getpid()}"
    folder.mkdir(parents=True)
    about: dict[str, Any] = {
        "api": 1,
        "id": secrets.token_hex(16),
        "name": stem,
        "started_ms": time.time_ns() // 1_000_000,
        "command": words,
        "directory": os.getcwd(),
    }
    _write(folder, about)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = subprocess.run(
            [sys.executable, "-m", MODULE, "run", str(folder), "--", *words],
            env={**os.environ, **variables}, check=False,
        ).returncode  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    _write(folder, {**about, "ended_ms": time.time_ns() // 1_000_000, "exit_code": code})
    return code, folder


def params(folder: Path) -> dict[str, dict[str, str]]:
    """By source, the parameters of the run's command; none where its folder does not name it."""
    if not (folder / "run.json").exists():
        return {}
    told = subprocess.run(
        [sys.executable, "-m", MODULE, "params", str(folder)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, dict[str, str]] = json.loads(told.stdout)
    return found


def _write(folder: Path, about: dict[str, Any]) -> None:
    fresh = folder / ".run.json"
    fresh.write_text(json.dumps(about, indent=1), encoding="utf-8")
    fresh.replace(folder / "run.json")
