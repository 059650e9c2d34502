"""TensorBoard as a job: this file is the job's program, sent with `eventfile.py` beside it.

It needs nothing but TensorBoard and the standard library. With the token of its own attempt it
reads what the jobs logged and writes event files of it, fetches the event files and profiler
traces that they left among their files, and does so again while it runs. TensorBoard listens on a
socket in the attempt's folder, where the server finds it; no port is opened. After some time
without a look it ends.

    board.py IDLE_SECONDS JOB_ID=NAME …
"""

from __future__ import annotations

import json
import os
import re
import socket
import socketserver
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from eventfile import EventFile  # type: ignore[import-not-found]

SOCKET = "board.sock"
LEAST_SECONDS, MOST_SECONDS = 5.0, 60.0
"""Between two looks at a job: longer and longer while nothing new comes."""
FILE_BYTES, ALL_BYTES = 512 * 2**20, 2 * 2**30
MOST_FILES = 2000
MISSING = 3
"""The exit code that says: no TensorBoard here."""

_FETCHED = re.compile(r"tfevents|\.pt\.trace\.json(\.gz)?$|(^|/)plugins/profile/")

# A page without an origin has no storage, no cookies, and no workers but of its own making.
PAGE = b"""<script>
(function () {
  var kept = new Map();
  var storage = {
    getItem: function (key) { return kept.has(String(key)) ? kept.get(String(key)) : null; },
    setItem: function (key, value) { kept.set(String(key), String(value)); },
    removeItem: function (key) { kept.delete(String(key)); },
    clear: function () { kept.clear(); },
    key: function (index) { return Array.from(kept.keys())[index] || null; },
    get length() { return kept.size; }
  };
  Object.defineProperty(window, 'localStorage', {value: storage});
  Object.defineProperty(window, 'sessionStorage', {value: storage});
  var none = {get: function () { return ''; }, set: function () {}};
  Object.defineProperty(document, 'cookie', none);
  var Real = window.Worker;
  window.Worker = function (url, options) {
    var whole = JSON.stringify(new URL(url, document.baseURI).href);
    var text = new Blob(['importScripts(' + whole + ')'], {type: 'text/javascript'});
    return new Real(URL.createObjectURL(text), options);
  };
})();
</script>"""


class Server:
    """What the board asks of the platform, with its attempt's token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/") + "/api/v1/runs/"
        self._token = token
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def stream(self, path: str) -> Any:
        asked = urllib.request.Request(self._url + path)
        asked.add_header("Authorization", "Bearer " + self._token)
        return self._open(asked, timeout=60)

    def get(self, path: str) -> Any:
        with self.stream(path) as answer:
            return json.loads(answer.read())


class Followed:
    """One job: what it told, written as it comes."""

    def __init__(self, server: Server, job_id: str, folder: Path) -> None:
        self._server = server
        self._id = job_id
        self._folder = folder
        self._events: dict[int, Any] = {}
        self._until = 0
        self._last: set[tuple[Any, ...]] = set()
        """What was written of the newest millisecond: more of it may come."""
        self._digests: dict[str, str] = {}
        self._bytes = 0
        self._wait = LEAST_SECONDS
        self._at = 0.0

    def turn(self) -> None:
        """Look, if it is time to. A server that is away is asked again later."""
        if time.monotonic() < self._at:
            return
        try:
            new = self._points() + self._files("", 0)
        except (OSError, ValueError, KeyError) as err:
            print(f"no news of {self._id[:12]}: {err}", flush=True)
            new = 0
        self._wait = LEAST_SECONDS if new else min(MOST_SECONDS, self._wait * 1.5)
        self._at = time.monotonic() + self._wait

    def _points(self) -> int:
        path = f"{self._id}/series?points=5000&since={self._until}"
        count, newest = 0, self._until
        told: set[tuple[Any, ...]] = set()
        for item in self._server.get(path)["series"]:
            if not item["points"]:
                continue
            file = self._file(item["rank"], item["points"][0][1])
            for place, (step, at_ms, value) in enumerate(item["points"]):
                point = (item["key"], item["rank"], step, at_ms, value)
                if at_ms > newest:
                    newest, told = at_ms, set()
                if at_ms == newest:
                    told.add(point)
                if point not in self._last:
                    file.scalar(item["key"], place if step is None else step, at_ms, float(value))
                    count += 1
            file.flush()
        self._until, self._last = newest, told
        return count

    def _file(self, rank: int, at_ms: int) -> Any:
        if rank not in self._events:
            folder = self._folder / f"rank-{rank}" if rank else self._folder
            self._events[rank] = EventFile(folder, at_ms)
        return self._events[rank]

    def _files(self, folder: str, depth: int) -> int:
        """Fetch what TensorBoard reads of the job's files; how many were new."""
        count = 0
        asked = "?path=" + quote(folder, safe="") if folder else ""
        for item in self._server.get(f"{self._id}/artifacts{asked}")["items"]:
            path = item["path"]
            if item["folder"]:
                count += self._files(path, depth + 1) if depth < 16 else 0
            elif self._wanted(path, item):
                self._fetch(path)
                self._digests[path] = item["digest"]
                self._bytes += item["size"]
                count += 1
        return count

    def _wanted(self, path: str, item: Any) -> bool:
        return (
            _FETCHED.search(path) is not None
            and self._digests.get(path) != item["digest"]
            and len(self._digests) < MOST_FILES
            and item["size"] <= FILE_BYTES
            and self._bytes + item["size"] <= ALL_BYTES
            and not any(part in ("", ".", "..") for part in path.split("/"))
        )

    def _fetch(self, path: str) -> None:
        target = self._folder / "files" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(".fetched")
        with self._server.stream(f"{self._id}/artifacts/{quote(path)}") as answer:
            with open(draft, "wb") as file:
                for piece in iter(lambda: answer.read(2**20), b""):
                    file.write(piece)
        os.replace(draft, target)


class Use:
    """When somebody last looked."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def around(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """The application, its page made to work without an origin."""

        def call(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            self.last = time.monotonic()
            if environ["PATH_INFO"] not in ("/", "/index.html"):
                return app(environ, start)
            environ.pop("HTTP_ACCEPT_ENCODING", None)
            told: list[Any] = []

            def begin(status: str, headers: list[tuple[str, str]], error: Any = None) -> Any:
                told[:] = [status, headers]

            body = b"".join(app(environ, begin)).replace(b"<head>", b"<head>" + PAGE, 1)
            body = body.replace(b"url(/", b"url(")  # its fonts, below whatever path it lies
            headers = [pair for pair in told[1] if pair[0].lower() != "content-length"]
            start(told[0], [*headers, ("Content-Length", str(len(body)))])
            return [body]

        return call


class Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def address_string(self) -> str:
        return "board"


class Listening(socketserver.ThreadingMixIn, WSGIServer):
    """On a socket in a folder of ours, which is there for others once it listens."""

    address_family = socket.AF_UNIX
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: str) -> None:
        before = os.getcwd()
        os.chdir(folder)  # the whole path may be longer than an address can be
        try:
            super().__init__(SOCKET + ".new", Handler)  # type: ignore[arg-type]
            os.chmod(SOCKET + ".new", 0o600)
            os.rename(SOCKET + ".new", SOCKET)
        finally:
            os.chdir(before)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "board", 80
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        return self.socket.accept()[0], ("board", 0)

    def handle_error(self, *_: Any) -> None:
        pass  # who looked went away


def start(folder: Path, run: str, use: Use) -> None:
    from tensorboard import program  # type: ignore[import-not-found]

    class Board:
        """A server as TensorBoard knows one."""

        def __init__(self, app: Any, flags: Any) -> None:
            self._server = Listening(run)
            self._server.set_app(use.around(app))

        def serve_forever(self) -> None:
            self._server.serve_forever()

        def get_url(self) -> str:
            return "board.sock"

        def print_serving_message(self) -> None:
            pass

    tool = program.TensorBoard(server_class=Board)
    # Its data server listens on a port of its own that asks nobody: off.
    tool.configure(
        argv=["tensorboard", "--logdir", str(folder), "--load_fast", "false",
              "--reload_interval", str(int(LEAST_SECONDS))]
    )  # fmt: skip
    tool.launch()


def main(words: list[str]) -> int:
    idle, named = float(words[0]), [word.partition("=")[::2] for word in words[1:]]
    try:
        import tensorboard  # noqa: F401
    except ImportError as err:
        print(
            f"TensorBoard is not installed for {sys.executable} ({err}): pip install "
            "'windlass[tb]' there, or name a Python that has it with --python",
            flush=True,
        )
        return MISSING
    server = Server(os.environ["WINDLASS_URL"], os.environ["WINDLASS_TOKEN"])
    folder = Path(tempfile.mkdtemp(prefix="board-"))
    followed = [
        Followed(server, job_id, folder / f"{name}-{job_id[:6]}") for job_id, name in named
    ]
    for each in followed:
        each.turn()
    use = Use()
    start(folder, os.environ["WINDLASS_RUN_DIR"], use)
    use.last = time.monotonic()
    print("the board is up", flush=True)
    rest = threading.Event()
    while time.monotonic() - use.last < idle:
        rest.wait(min(1.0, idle))
        for each in followed:
            each.turn()
    print(f"nobody has looked for {idle:g} s: the end", flush=True)
    return 0


if __name__ == "__main__":
    # Threads of TensorBoard's own go on for ever.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
