"""A job's surroundings: folders, an environment, a real server that takes checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Registry:
    """What the server took, and what it answers next."""

    url: str = ""
    taken: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    status: int = 200

    def steps(self) -> list[int]:
        return [record["step"] for record in self.taken]


@pytest.fixture
def registry() -> Iterator[Registry]:
    state = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/api/v1/run/checkpoints"
            state.tokens.append(self.headers["Authorization"])
            if state.status == 200:
                state.taken.append(json.loads(body))
                answer = b"{}"
            else:
                answer = b'{"error": {"code": "fenced", "message": "attempt 3 is over"}}'
            self.send_response(state.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield state
        server.shutdown()
        thread.join()


@dataclass
class Job:
    """One job on the platform, as its ranks see it; each `run` is a real process."""

    home: Path
    url: str = ""
    attempt: int = 3
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    @property
    def run_dir(self) -> Path:
        return self.home / "run"

    def environment(self, rank: int = 0, world_size: int = 1) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("WINDLASS_")}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            kept.pop(name, None)
        return {
            **kept,
            "PYTHONDONTWRITEBYTECODE": "1",
            "WINDLASS_JOB_ID": "a" * 32,
            "WINDLASS_JOB_NAME": "brisk-otter",
            "WINDLASS_ATTEMPT": str(self.attempt),
            "WINDLASS_RANK": str(rank),
            "WINDLASS_WORLD_SIZE": str(world_size),
            "WINDLASS_LOCAL_RANK": str(rank),
            "WINDLASS_RUN_DIR": str(self.run_dir),
            "WINDLASS_CHECKPOINT_DIR": str(self.checkpoints),
            "WINDLASS_OUTPUT_DIR": str(self.home / "out"),
            **({"WINDLASS_URL": self.url, "WINDLASS_TOKEN": "secret"} if self.url else {}),
            **self.extra,
        }

    def command(self, code: str) -> list[str]:
        return [sys.executable, "-c", code]

    def run(
        self, code: str, *, before: tuple[str, ...] = (), check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*before, *self.command(code)],
            env=self.environment(),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def start(self, code: str, rank: int, world_size: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(code),
            env=self.environment(rank, world_size),
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self, rank: int = 0) -> list[dict[str, Any]]:
        text = (self.run_dir / f"spool-{rank}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)
