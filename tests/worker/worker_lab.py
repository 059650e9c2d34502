"""A real worker (the zipapp, as a process) against a real HTTP server that keeps its calls."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from windlass.contracts.base import Gang, Member
from windlass.contracts.registry import rendezvous

LEVEL = int(os.environ.get("WINDLASS_TEST_LEVEL", "0"))
"""All of these tests at another isolation level: 1 needs root and bubblewrap."""


class ControlPlane:
    """The worker's calls, answered; every call is kept. Orders are handed out by `order`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.changed = threading.Condition()
        self.orders: list[dict[str, Any]] = []
        self.fenced = False
        self.stopped = False
        self.framework = "python"
        self.finish: dict[str, str] = {}
        self.minimum: dict[str, int] = {}
        self.nodes = 1
        self.registered: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.launches: dict[str, dict[str, Any]] = {}
        self.resume_from: dict[str, Any] | None = None
        self.blobs: dict[str, bytes] = {}
        self.manifest: list[dict[str, Any]] = []
        self.mirrored: dict[str, bytearray] = {}
        """By path, what a worker that mirrors has sent of its files."""
        self.refused_paths: set[str] = set()
        self.lossy_calls = 0
        self.lossy = 0
        """Of so many calls that mirror one is not heard, and one done but not answered."""
        self.away = threading.Event()
        """While it is set nobody gets an answer."""
        plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                plane.answer(self, None)

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                plane.answer(self, json.loads(self.rfile.read(size)))

            def do_PUT(self) -> None:
                plane.answer(self, self.rfile.read(int(self.headers["Content-Length"])))

            def do_DELETE(self) -> None:
                plane.answer(self, None)

            def log_message(self, *words: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *words: Any) -> None:
                # A worker that was killed breaks its connections; anything else is our fault.
                if not isinstance(sys.exc_info()[1], ConnectionError):
                    super().handle_error(*words)

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def stop(self) -> None:
        """Gone: nothing listens, and what is still connected gets no answer."""
        if self.stopped:
            return
        self.stopped = True
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
        with self.changed:
            self.changed.notify_all()

    def answer(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        path, _, query = handler.path.partition("?")
        name = path.removeprefix("/api/v1/worker/")
        with self.changed:
            self.calls.append((handler.command, name, body))
            self.changed.notify_all()
        if self.stopped or self.away.is_set():
            handler.close_connection = True
            return None
        if handler.headers["Authorization"] != "Bearer secret":
            return self.send(handler, 401, {})
        if self.fenced:
            return self.send(handler, 409, {"code": "fenced"})
        if name == "register":
            with self.changed:
                self.registered[body["node"]] = (body, self.launches[body["node"]])
                self.changed.notify_all()
            return self.send(handler, 200, self.rendezvous(body["node"]))
        if name == "rendezvous":
            node = query.split("node=")[1].split("&")[0]
            with self.changed:
                self.changed.wait_for(lambda: len(self.registered) >= self.nodes, 5)
            return self.send(handler, 200, self.rendezvous(node))
        if name == "orders":
            after = int(query.split("after=")[1].split("&")[0])
            with self.changed:
                self.changed.wait_for(lambda: any(o["id"] > after for o in self.orders), 5)
            return self.send(handler, 200, {"orders": [o for o in self.orders if o["id"] > after]})
        if name.startswith("mirror/"):
            return self.mirror(handler, name[len("mirror/") :], query, body)
        if name == "checkpoints":
            return self.send(handler, 200, {"kept": True} if body else {"items": []})
        if name == "bundle":
            return self.send(handler, 200, {"digest": "", "files": self.manifest})
        if name.startswith("blobs/"):
            return self.send(handler, 200, self.blobs[name[6:]])
        if name == "beat":
            return self.send(handler, 200, {"orders": []})
        return self.send(handler, 200, {"offset": body["offset"]} if name == "spool" else {})

    def mirror(
        self, handler: BaseHTTPRequestHandler, path: str, query: str, body: bytes | None
    ) -> None:
        words = dict(pair.split("=") for pair in query.split("&"))
        if path in self.refused_paths:
            return self.send(handler, 422, {"error": {"code": "invalid-input"}})
        with self.changed:
            self.lossy_calls += 1
            turn = self.lossy_calls % self.lossy if self.lossy else 0
            if turn == 1:
                handler.close_connection = True
                return None
            if body is None:
                self.mirrored.pop(path, None)
                self.changed.notify_all()
                return self.send(handler, 204, b"")
            file = self.mirrored.setdefault(path, bytearray())
            offset = int(words["offset"])
            if "cut" in words:
                del file[offset:]
            if offset <= len(file):
                file += body[len(file) - offset :]
            self.changed.notify_all()
        if turn == 2:
            handler.close_connection = True
            return None
        return self.send(handler, 200, {"bytes": len(file)})

    def send(self, handler: BaseHTTPRequestHandler, status: int, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def rendezvous(self, node: str) -> dict[str, Any]:
        if len(self.registered) < self.nodes:
            return {"whole": False}
        members = [
            Member(
                role=told["role"],
                index=told["index"],
                nproc=told["nproc"],
                node=name,
                host=body["host"],
                ports=tuple(held["ports"]),
                command=tuple(told["command"]),
                gpus=len(told.get("gpu_ids", ())),
                ifname=launch.get("ifname"),
                service_port=held["service_port"] or 0,
                node_cpus=body["isolation"]["cpus"],
                node_cores=body["isolation"]["cores"],
            )
            for name, (body, launch) in self.registered.items()
            for told, held in zip(launch["members"], body["members"], strict=True)
        ]
        gang = Gang("job", "name", 1, tuple(members), finish=self.finish, minimum=self.minimum)
        found = rendezvous(self.framework, gang)[node]
        found.update(
            resume_from=self.resume_from, deadline_ms=None, tracking_token="track", url=self.url
        )
        return {"whole": True, "rendezvous": found}

    def order(self, **order: Any) -> None:
        with self.changed:
            self.orders.append({"id": len(self.orders) + 1, **order})
            self.changed.notify_all()

    def wait_for(self, name: str, seconds: float = 60, where: Callable[[Any], bool] = bool) -> Any:
        """The body of the first call of that name (for which `where` holds)."""

        def found() -> list[Any]:
            return [body for _, path, body in self.calls if path == name and where(body)]

        with self.changed:
            assert self.changed.wait_for(found, seconds), [call[:2] for call in self.calls]
        return found()[0]


class Worker:
    """One worker's directory and process."""

    def __init__(self, archive: Path, directory: Path, launch: dict[str, Any]) -> None:
        self.archive = archive
        self.directory = directory
        self.launch = launch
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, mode=0o700)
        (directory / "launch.json").write_text(json.dumps(launch))
        (directory / "token").write_text("secret")

    def start(self, python: str = sys.executable) -> Worker:
        log = open(self.directory / "worker.log", "wb")
        with log:
            self.process = subprocess.Popen(
                [python, "-I", "-S", str(self.archive), "run", str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SECRET_OF_THE_SERVER": "x"},
            )
        return self

    def reap(self) -> int:
        return subprocess.run(
            [sys.executable, "-I", "-S", str(self.archive), "reap", str(self.directory)],
            check=False,
        ).returncode

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def end(self, seconds: float = 60) -> dict[str, Any]:
        """Wait for the worker; its exit record."""
        assert self.process is not None
        assert self.process.wait(seconds) == 0, self.words()
        return self.record()

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "exit.json").read_text())
        return found

    def words(self) -> str:
        return (self.directory / "worker.log").read_text()

    def logs(self, name: str = "worker-0-0.out") -> bytes:
        folder = self.directory / "logs"
        return b"".join(path.read_bytes() for path in sorted(folder.glob(name + ".*.log")))

    def pids(self) -> list[int]:
        """Every process that carries this directory's mark."""
        mark = f"WINDLASS_RUN_DIR={self.directory}/run".encode()
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                if mark in Path(f"/proc/{int(entry)}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
        return found


class Lab:
    def __init__(self, folder: Path, archive: Path) -> None:
        self.folder = folder
        self.archive = archive
        self.plane = ControlPlane()
        self.workers: list[Worker] = []
        self.attempt_id = secrets.token_hex(16)

    def worker(
        self,
        code: str | list[str],
        *,
        node: str = "n0",
        nproc: int = 1,
        members: list[dict[str, Any]] | None = None,
        **changes: Any,
    ) -> Worker:
        """A worker that runs Python code (or a command) in each rank of `worker-0`."""
        command = [sys.executable, "-c", code] if isinstance(code, str) else code
        launch = {
            "api": 1,
            "job_id": "job",
            "job_name": "name",
            "project": "default",
            "attempt_id": self.attempt_id,
            "attempt": 1,
            "node": node,
            "urls": [self.plane.url],
            "server_file": None,
            "bundle": None,
            "blob_dir": None,
            "cache_dir": str(self.folder / "cache"),
            "checkpoint_dir": str(self.folder / "checkpoints"),
            "resume": True,
            "keep": 3,
            "host": "127.0.0.1",
            "ifname": "lo",
            "python": None,
            "vars": {},
            "members": members
            or [{"role": "worker", "index": 0, "nproc": nproc, "command": command}],
            "grace_ms": 2000,
            "idle_ms": None,
            "on_idle": "report",
            "log_rate": 4_000_000,
            "lease_seconds": None,
            "beat_seconds": 0.2,
            "cgroups": True,
            "retry_log_patterns": [],
            "respawn": None,
            **(self.isolated(LEVEL) if LEVEL else {}),
            **changes,
        }
        self.plane.launches[node] = launch
        made = Worker(self.archive, self.folder / "attempts" / node, launch)
        self.workers.append(made)
        return made

    def isolated(self, level: int = 1, network: str = "host") -> dict[str, Any]:
        """What a launch says for a job that is kept apart."""
        hidden = [str(self.folder)]
        return {"isolation": {"level": level, "network": network, "hidden": hidden}}

    def close(self) -> None:
        for worker in self.workers:
            if worker.process is not None and worker.process.poll() is None:
                worker.process.send_signal(signal.SIGKILL)
                worker.process.wait()
            if worker.process is not None:
                worker.reap()
        self.plane.stop()


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for a condition of another process, which no event of ours announces."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {condition}")
