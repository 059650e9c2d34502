"""A small server that speaks the client's part of docs/internals/protocol.md, for tests of client
and CLI alone. It keeps jobs in memory and runs none. End-to-end tests against the real server
live in tests/e2e.

As a process it behaves as `python -m windlass.server` does: writes `server.json` and
`credentials.json`, ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import threading
import time
from calendar import timegm
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from windlass.core.errors import (
    BundleMissing,
    ClockSkew,
    Conflict,
    InvalidInput,
    NotFound,
    Unauthenticated,
    WindlassError,
)
from windlass.core.signing import sign

ACCESS_KEY, SECRET_KEY = "WLSTANDIN0000000", "stand-in-secret"
NOW = "2026-11-15T09:00:00.000Z"


class Done(NamedTuple):
    """What a call of the CLI came to."""

    code: int
    out: str
    err: str


Call = Callable[..., Done]


class StandIn:
    """State, and what happens to the next requests."""

    def __init__(self, port: int = 0) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        self.blobs: dict[str, bytes] = {}
        self.bundles: dict[str, list[dict[str, Any]]] = {}
        self.streams: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self.outcome: list[tuple[str, dict[str, Any]]] = []
        """What the stream of every new job says; a job whose stream has an `end` ends so."""
        self.lines: list[dict[str, Any]] = []
        self.series: list[dict[str, Any]] = []
        self.debugged: dict[str, Any] = {"ranks": []}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.faults: list[Callable[[Any], bool]] = []
        self.clock_offset_ms = 0
        self.ping_seconds = 10.0
        self.changed = threading.Condition()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def paths(self, method: str = "") -> list[str]:
        return [target for verb, target, _, _ in self.requests if method in ("", verb)]

    def job(self, state: str = "queued", **fields: Any) -> dict[str, Any]:
        id_ = hashlib.sha256(f"{len(self.jobs)}".encode()).hexdigest()[:32]
        spec = fields.pop("spec", {"run": ["python", "train.py"], "roles": {"worker": {}}})
        job = {
            "id": id_, "name": f"brisk-otter-{len(self.jobs)}", "project": "default",
            "user": "owner", "state": state, "reason": "", "wish": None, "framework": "python",
            "members": 1, "gpus": 0, "engine": None, "attempt": 1, "failures": 0,
            "exit_code": None, "outcome": None, "step": None, "progress": None, "submitted": NOW,
            "queued": NOW, "started": None, "ended": None, "rerun_of": None, "revision": 1,
            "command": " ".join(spec.get("run") or ["?"]), "spec": spec, "attempts": [], **fields,
        }  # fmt: skip
        self.jobs[id_] = job
        self.streams[id_] = list(self.outcome)
        return job

    def say(self, id_: str, event: str, data: dict[str, Any]) -> None:
        """Let the stream of a job go on."""
        with self.changed:
            self.streams[id_].append((event, data))
            self.changed.notify_all()

    def finish(self, id_: str, state: str, **fields: Any) -> None:
        self.jobs[id_].update(state=state, **fields)
        self.say(id_, "end", view(self.jobs[id_]))

    # -- routes ------------------------------------------------------------------------------

    def find(self, ref: str) -> dict[str, Any]:
        for job in reversed(self.jobs.values()):
            if job["name"] == ref or (len(ref) >= 4 and job["id"].startswith(ref)):
                return job
        raise NotFound(f"no job {ref!r}", hint="`windlass ps -a` lists them")

    def post_jobs(self, body: dict[str, Any], key: str) -> tuple[int, Any]:
        spec = body["spec"]
        if spec.get("name") == "bad":
            raise InvalidInput("spec.name: 'bad' is not allowed", field="spec.name")
        bundle = (spec.get("code") or {}).get("bundle")
        if bundle and not self.complete(bundle):
            raise BundleMissing(f"no bundle {bundle}")
        if body.get("dry_run"):
            return 200, {"spec": spec, "fits": True, "starts": "now"}
        if key not in self.keys:
            job = self.job(spec=spec, state="held" if spec.get("hold") else "queued")
            job["name"] = spec.get("name") or job["name"]
            job["framework"] = spec.get("framework") or "python"
            for event, data in self.outcome:
                if event == "end":
                    job.update(data)
                    data = view(job)
                    self.streams[job["id"]][-1] = ("end", data)
            self.keys[key] = job["id"]
        return 201, view(self.jobs[self.keys[key]])

    def complete(self, digest: str) -> bool:
        files = self.bundles.get(digest)
        return files is not None and all(file["digest"] in self.blobs for file in files)


def view(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name not in ("spec", "attempts")}


def _handler(stand: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None: ...

        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            stand.requests.append((self.command, self.path, dict(self.headers), body))
            if stand.faults and stand.faults.pop(0)(self):
                return
            try:
                self.route(body)
            except WindlassError as err:
                self.answer(err.status, err.to_wire())
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def answer(self, status: int, value: Any, kind: str = "application/json") -> None:
            raw = value.encode() if isinstance(value, str) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def check(self, body: bytes) -> None:
            """Sign what came ourselves and compare: the real check has tests of its own."""
            if f"Credential={ACCESS_KEY}/" not in (self.headers.get("Authorization") or ""):
                raise Unauthenticated("no such key")
            signed = timegm(time.strptime(self.headers["X-Wl-Date"], "%Y%m%dT%H%M%SZ")) * 1000
            now_ms = int(time.time() * 1000) + stand.clock_offset_ms
            if abs(now_ms - signed) > 300_000:
                raise ClockSkew("signed at another time", server_time_ms=now_ms)
            url = f"http://{self.headers['Host']}{self.path}"
            made = ("x-wl-date", "x-wl-nonce", "x-wl-content-sha256")
            given = {k: v for k, v in self.headers.items() if k.lower() not in made}
            nonce = self.headers.get("X-Wl-Nonce")
            expected = sign(self.command, url, given, body, ACCESS_KEY, SECRET_KEY, signed, nonce)
            if expected["Authorization"] != self.headers["Authorization"]:
                raise Unauthenticated("the signature is wrong")

        def route(self, body: bytes) -> None:
            parts = urlsplit(self.path)
            words = [unquote(word) for word in parts.path.removeprefix("/api/v1/").split("/")]
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if words == ["health"]:
                return self.answer(200, {"ok": True, "version": "0.1.0"})
            self.check(body)
            match self.command, words:
                case "GET", ["status"]:
                    count = len(stand.jobs)
                    about = {"version": "0.1.0", "pid": os.getpid(), "url": stand.url}
                    self.answer(
                        200, {**about, "home": "/h", "nodes": [NODE], "jobs": {"queued": count}}
                    )
                case "GET", ["nodes"]:
                    self.answer(200, {"items": [NODE]})
                case "POST", ["bundles"]:
                    files = json.loads(body)["files"]
                    text = json.dumps(files, sort_keys=True, separators=(",", ":"))
                    digest = hashlib.sha256(text.encode()).hexdigest()
                    stand.bundles[digest] = files
                    missing = [f["digest"] for f in files if f["digest"] not in stand.blobs]
                    self.answer(200, {"digest": digest, "missing": list(dict.fromkeys(missing))})
                case "PUT", ["blobs", digest]:
                    if hashlib.sha256(body).hexdigest() != digest:
                        raise InvalidInput("the digest does not match")
                    stand.blobs[digest] = body
                    self.answer(200, {})
                case "POST", ["jobs"]:
                    key = self.headers["Idempotency-Key"]
                    self.answer(*stand.post_jobs(json.loads(body), key))
                case "GET", ["jobs"]:
                    self.list(query)
                case "GET", ["feed"]:
                    self.feed(query)
                case _, ["jobs", ref, *rest]:
                    self.one(stand.find(ref), rest, query, json.loads(body) if body else {})
                case _:
                    raise NotFound(f"no route {self.path}")

        def list(self, query: dict[str, str]) -> None:
            jobs = [view(job) for job in reversed(stand.jobs.values())]
            for name in ("state", "user", "name"):
                if name in query:
                    jobs = [job for job in jobs if job[name] == query[name]]
            start, limit = int(query.get("before", "0")), int(query.get("limit", "50"))
            following = str(start + limit) if start + limit < len(jobs) else None
            self.answer(200, {"items": jobs[start : start + limit], "next": following})

        def one(
            self, job: dict[str, Any], rest: list[str], query: dict[str, str], body: dict[str, Any]
        ) -> None:
            match self.command, rest:
                case "GET", []:
                    self.answer(200, job)
                case "GET", ["why"]:
                    self.answer(200, {"job": job["id"], "state": job["state"],
                                      "sentence": f"rank 1 of {job['name']} failed first",
                                      "evidence": ["exit code 3"], "next": "look"})  # fmt: skip
                case "GET", ["events"]:
                    moved = {
                        "kind": "moved",
                        "at": NOW,
                        "state": "running",
                        "reason": "placed",
                        "attempt": 1,
                        "data": {"from": "queued", "to": "running"},
                    }
                    self.answer(200, {"items": [moved]})
                case "GET", ["metrics"]:
                    self.answer(200, {"series": stand.series})
                case "GET", ["logs"]:
                    text = "".join(json.dumps(line) + "\n" for line in stand.lines)
                    self.answer(200, text, "application/x-ndjson")
                case "GET", ["stream"]:
                    self.stream(job, query)
                case "POST", ["stop"]:
                    if job["state"] in ("succeeded", "failed", "cancelled"):
                        raise Conflict(f"{job['name']} is {job['state']} already")
                    job["wish"] = "stop"
                    stand.finish(job["id"], "cancelled", reason=body.get("reason", ""))
                    self.answer(200, view(job))
                case "POST", ["release" | "restart"]:
                    job["state"] = "queued"
                    self.answer(200, view(job))
                case "POST", ["rerun"]:
                    spec = {**job["spec"], **body["changes"]}
                    spec["params"] = {**spec.get("params", {}), **body["params"]}
                    self.answer(201, view(stand.job(spec=spec, rerun_of=job["id"])))
                case "POST", ["debug"]:
                    self.answer(200, stand.debugged)
                case "DELETE", []:
                    del stand.jobs[job["id"]]
                    self.answer(200, {})
                case _:
                    raise NotFound(f"no route {self.path}")

        def head(self) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()

        def stream(self, job: dict[str, Any], query: dict[str, str]) -> None:
            self.head()
            at = int(query.get("cursor", "0"))

            def news_of() -> list[tuple[str, dict[str, Any]]]:
                return stand.streams[job["id"]]

            while True:
                with stand.changed:
                    stand.changed.wait_for(lambda at=at: len(news_of()) > at, timeout=10)
                    news = stand.streams[job["id"]][at:]
                if not news:
                    return
                for event, data in news:
                    at += 1
                    if event == "break":
                        del stand.streams[job["id"]][at - 1]
                        return
                    text = f"id: {at}\nevent: {event}\ndata: {json.dumps(data)}\n\n"
                    self.wfile.write(text.encode())
                    self.wfile.flush()
                    if event == "end":
                        return

        def feed(self, query: dict[str, str]) -> None:
            self.head()
            job = stand.jobs[query["job"]]
            done = ("succeeded", "failed", "cancelled")
            deadline = time.monotonic() + 10
            with stand.changed:
                while job["state"] not in done and time.monotonic() < deadline:
                    stand.changed.wait(stand.ping_seconds)
                    self.wfile.write(b": still here\n\n")
            data = {"job": job["id"], "kind": "moved", "state": job["state"]}
            self.wfile.write(f"id: 1\nevent: event\ndata: {json.dumps(data)}\n\n".encode())

    return Handler


NODE = {
    "name": "local", "engine": "local", "state": "ready", "jobs": [],
    "capacity": {"cpus_milli": 2000, "memory_bytes": 4 * 2**30, "gpus": 2, "slots": 8},
    "free": {"cpus_milli": 1000, "memory_bytes": 2 * 2**30, "gpus": 1, "slots": 7},
}  # fmt: skip


def write_files(home: Path, url: str) -> None:
    credentials = {"url": url, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY,
                   "project": "default", "user": "owner"}  # fmt: skip
    handle = os.open(home / "credentials.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(credentials, file)
    stat = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    about = {"pid": os.getpid(), "start_time": int(stat[19]), "boot_id": boot_id, "url": url,
             "version": "0.1.0"}  # fmt: skip
    temporary = home / "server.json.tmp"
    temporary.write_text(json.dumps(about))
    temporary.rename(home / "server.json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fail", action="store_true")
    given = parser.parse_args()
    if given.fail:
        raise SystemExit("the disk is on fire")
    stand = StandIn(given.port)
    write_files(given.home, stand.url)
    threading.Event().wait()
