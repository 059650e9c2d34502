"""A git repository that is really served: over HTTP on loopback, by git's own `http-backend` or as
plain files (the dumb protocol), with or without a login.

    with Repository(tmp_path / "code") as repository:
        first = repository.commit({"train.py": "print(1)"})
        job = platform.submit("python train.py", code={"git": repository.url})
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

_WHO = {
    "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}  # fmt: skip


class Repository:
    def __init__(self, folder: Path, *, dumb: bool = False, login: bool = False) -> None:
        self.folder = folder
        self.bare = folder / "repo.git"
        self.dumb, self.login = dumb, login
        self.asked: list[str] = []
        """The paths that were asked for, with their queries."""
        self._tree = folder / "tree"
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        assert self._server is not None, "it is not served"
        return f"http://127.0.0.1:{self._server.server_port}/repo.git"

    def git(self, *words: str, where: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=where or self._tree, env={**os.environ, **_WHO},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    def commit(
        self, files: Mapping[str, str], branch: str = "main", *, force: bool = False
    ) -> str:
        """Write these files, commit them to the branch, push; the commit."""
        for name, text in files.items():
            path = self._tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a change")
        self.push(f"HEAD:refs/heads/{branch}", force=force)
        return self.git("rev-parse", "HEAD")

    def push(self, *refs: str, force: bool = False) -> None:
        self.git("push", "--quiet", *(["--force"] if force else []), str(self.bare), *refs)
        if self.dumb:
            self.git("update-server-info", where=self.bare)

    def __enter__(self) -> Repository:
        self.folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main", "tree", where=self.folder)
        self.git(
            "init", "--quiet", "--bare", "--initial-branch=main", "repo.git", where=self.folder
        )
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None and self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(repository: Repository) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self._body())

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline().strip(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _answer(self, body: bytes) -> None:
            repository.asked.append(self.path)
            if repository.login:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="code"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif repository.dumb:
                self._file()
            else:
                self._smart(body)

        def _file(self) -> None:
            path = (repository.folder / self.path.partition("?")[0].lstrip("/")).resolve()
            found = path.is_relative_to(repository.folder.resolve()) and path.is_file()
            content = path.read_bytes() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _smart(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            environment: dict[str, Any] = {
                **os.environ, **_WHO, "GIT_PROJECT_ROOT": str(repository.folder),
                "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command, "PATH_INFO": path,
                "QUERY_STRING": query, "CONTENT_LENGTH": str(len(body)),
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "REMOTE_ADDR": "127.0.0.1",
            }  # fmt: skip
            done = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, capture_output=True,
                check=False,
            )  # fmt: skip
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            lines = [line.split(": ", 1) for line in head.decode().splitlines()]
            status = next((value for name, value in lines if name == "Status"), "200 OK")
            self.send_response(int(status.split()[0]))
            for name, value in lines:
                if name != "Status":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: Any) -> None:
            pass

    return Handler
