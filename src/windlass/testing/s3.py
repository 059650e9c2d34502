"""A real S3-speaking server (moto) in its own process, and the driver with which we speak to it.

Between both stands a door that a test may shut (connections are cut), jam (all is answered with
503) or let hang (nothing is): moto keeps its objects in memory, so it is never ended itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from windlass.testing.environments import environment
from windlass.testing.platform import wait_for

DRIVER = "s3fs==2026.9.0"
SERVER = "moto[server]==5.2.5"
BUCKET = "windlass-tests"
_SLOW = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_BUSY = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_SLOW), _SLOW)
)


def driver() -> Path:
    """The folder with the driver's packages. Raises Unavailable."""
    python = environment("s3fs", DRIVER)
    return next(python.parents[1].glob("lib/python*/site-packages"))


@contextlib.contextmanager
def imported() -> Iterator[None]:
    """The driver in this process. It needs its own version of botocore, and whoever imported
    another one keeps that."""
    folder = str(driver())
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    try:
        import s3fs  # type: ignore[import-not-found, unused-ignore]  # noqa: F401

        yield
    finally:
        sys.path.remove(folder)


class S3Server:
    """`with S3Server(folder) as s3: s3.url`: one bucket, reached through the door."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._behind = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.door = Door(self._behind)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.door.port}"

    def url(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    @property
    def env(self) -> dict[str, str]:
        """What the server of a test needs in its environment: keys, and the driver."""
        return {
            "AWS_ACCESS_KEY_ID": "of-a-test",
            "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-server",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": str(driver()),
        }

    def keys(self, prefix: str) -> dict[str, int]:
        """What lies below a prefix, with its size; asked behind the door."""
        import xml.etree.ElementTree as xml

        found, more = {}, ""
        space = "{http://s3.amazonaws.com/doc/2006-03-01/}"
        while True:
            params = {"list-type": "2", "prefix": prefix + "/"}
            params |= {"continuation-token": more} if more else {}
            page = xml.fromstring(self._ask("GET", f"/{BUCKET}", params=params).text)
            for each in page.iter(space + "Contents"):
                name = each.findtext(space + "Key") or ""
                found[name[len(prefix) + 1 :]] = int(each.findtext(space + "Size") or 0)
            more = page.findtext(space + "NextContinuationToken") or ""
            if not more:
                return found

    def uploads(self) -> int:
        """Uploads in parts that nobody has ended."""
        return self._ask("GET", f"/{BUCKET}", params={"uploads": ""}).text.count("<UploadId>")

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=120) as client:
            answer = client.request(method, f"http://127.0.0.1:{self._behind}{path}", **options)
        assert answer.status_code < 300, answer.text
        return answer

    def __enter__(self) -> S3Server:
        python = environment("moto", SERVER)
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [str(python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._behind)]
        with (self._folder / "moto.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "MOTO_IAM_LOAD_MANAGED_POLICIES": "false"},
            )  # fmt: skip
        try:
            wait_for(self._up, 120, "the S3 server answers")
            self._ask("PUT", f"/{BUCKET}")
        except BaseException:
            self.close()
            raise
        return self

    def _up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError((self._folder / "moto.log").read_text()[-4000:])
        with contextlib.suppress(httpx.HTTPError), httpx.Client(trust_env=False) as client:
            return client.get(f"http://127.0.0.1:{self._behind}/moto-api/").status_code == 200
        return False

    def close(self) -> None:
        self.door.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Door:
    """Passes connections on to a port, unless it is `shut` or `jammed`."""

    def __init__(self, behind: int) -> None:
        self._behind = behind
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listening.getsockname()[1])
        self._state = "open"
        self._opened = threading.Event()
        self._passing: set[socket.socket] = set()
        self.turned_away = 0
        """Connections that did not pass."""
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self) -> None:
        self._state = "open"
        self._opened.set()

    def shut(self) -> None:
        """What passes now is cut too."""
        self._turn("shut")

    def jam(self) -> None:
        self._turn("jammed")

    def hang(self) -> None:
        """From now on nobody is answered, until it opens."""
        self._opened.clear()
        self._turn("hanging")

    def close(self) -> None:
        self._turn("shut")
        self._opened.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _turn(self, state: str) -> None:
        self._state = state
        for each in list(self._passing):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with caller:
            if self._state == "shut":
                self.turned_away += 1
            elif self._state == "hanging":
                self.turned_away += 1
                self._opened.wait()
            elif self._state == "jammed":
                self.turned_away += 1
                with contextlib.suppress(OSError):
                    caller.recv(65536)
                    caller.sendall(_BUSY)
                    caller.shutdown(socket.SHUT_WR)
                    while caller.recv(65536):
                        pass
            else:
                with contextlib.suppress(OSError):
                    self._pass(caller)

    def _pass(self, caller: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._behind)) as server:
            both = {caller, server}
            self._passing |= both
            if self._state != "open":  # it was shut meanwhile, and whoever did so saw us not
                return
            back = threading.Thread(target=_pump, args=(server, caller), daemon=True)
            back.start()
            _pump(caller, server)
            back.join()
            self._passing -= both


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(65536):
            target.sendall(block)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
