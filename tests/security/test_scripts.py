"""R-S14: what a user names, writes, logs or uploads is never a script of a page of ours.

Markup stands in everything that takes a free text. Every route that is read is asked as a browser
asks, and what it answers is either no page at all, or one of ours without a word of it; what is
user code (a board) runs in a sandbox. The dashboard itself is looked at in tests/web: there
`window.ran` stays unset on every page (test_every_page.py, test_job_page.py).
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from windlass.testing import chromium
from windlass.testing.browser import Browser
from windlass.testing.chromium import Chromium
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

ROOT = Path(__file__).parents[2]
PASSWORD = "correct horse battery"
EVIL = "<script>document.cookie='ran=1'</script>"
SHORT = "<img src=x onerror=ran()>"
"""Where a slash may not stand."""
PAGE = f"<!doctype html><html><body>{EVIL}</body></html>".encode()
DRAWING = f'<svg xmlns="http://www.w3.org/2000/svg">{EVIL}</svg>'.encode()
NOTEBOOK = b'{"cells": [{"cell_type": "markdown", "source": ["<script>ran()</script>"]}]}'
FILES = {
    "page.html": PAGE, "drawing.svg": DRAWING, "page.xhtml": PAGE, "notes.ipynb": NOTEBOOK,
    "script.js": b"document.cookie='ran=1'", f"{SHORT}.html": PAGE, "noend": PAGE,
}  # fmt: skip
BOARD = """
import os, socket, windlass
windlass.log(step=0, **{"<script>a": 1.0})
print("<script>document.cookie='ran=1'</script>", flush=True)
os.chdir(os.environ["WINDLASS_RUN_DIR"])
listening = socket.socket(socket.AF_UNIX)
listening.bind("board.sock")
listening.listen()
page = (b"<!doctype html><html><body><script>document.title='alive'</script>"
        b"<script>document.cookie='ran=1'</script></body></html>")
head = b"HTTP/1.0 200 OK\\r\\nContent-Type: text/html\\r\\n\\r\\n"
while True:
    plug, _ = listening.accept()
    if plug.recv(65536):
        plug.sendall(head + page)
    plug.close()
"""
SAFE_KINDS = {
    "application/json", "application/octet-stream", "application/x-ndjson", "text/plain",
    "text/csv", "text/event-stream",
}  # fmt: skip
"""None of which a browser takes for a page, if it is not let guess."""
OURS = ("/", "/jobs", "/login", "/login/login.js", "/login/login.css")


class Town:
    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        self.people = People(platform)
        self.ann = self.people.user("ann", project="default", role="maintainer")
        self.people.owner.ok("PUT", "/password", {"new": PASSWORD})
        for name in ("board.py", "page.html"):
            (folder / name).write_bytes(BOARD.encode() if name == "board.py" else PAGE)
        with self.ann.inside("default").client() as client:
            spec = {
                "run": [sys.executable, "board.py", EVIL], "name": "evil",
                "params": {"note": EVIL},
                "environment": {"vars": {"NOTE": EVIL}},
            }  # fmt: skip
            self.job = client.jobs.submit(spec, code=folder).id
            client.models.register_files(
                "evil", folder / "page.html", description=EVIL, tags={"a": EVIL, EVIL: "b"}
            )
        ready = f"/jobs/{self.job}/board"
        wait_for(lambda: self.ann.ok("GET", ready)["ready"], 60, "it listens")
        for name, content in FILES.items():
            path = f"/runs/{self.job}/artifacts/{quote(name)}"
            assert self.ann.call("PUT", path, data=content).status_code == 204, name
        self.wire = self.people.token(self.ann, "write", name="wire")
        self.run = self._tracked(self.wire)
        self.ann.ok("PUT", f"/views/jobs/{quote(SHORT)}", {"search": EVIL})

    def _tracked(self, token: Caller) -> str:
        """By MLflow's wire, whose names are anything."""
        api = "/mlflow/default/api/2.0/mlflow"

        def post(path: str, **body: object) -> dict[str, dict[str, dict[str, str]]]:
            found: dict[str, dict[str, dict[str, str]]] = token.ok(
                "POST", api + path, body, root=""
            )
            return found

        post("/experiments/create", name=EVIL)
        tags = [{"key": "mlflow.note.content", "value": EVIL}]
        made = post("/runs/create", experiment_id="0", run_name=EVIL, tags=tags, start_time=1)
        run = str(made["run"]["info"]["run_id"])
        post("/runs/log-parameter", run_id=run, key="p", value=EVIL)
        where = f"{api}-artifacts/artifacts/0/{run}/artifacts/page.html"
        assert token.call("PUT", where, data=PAGE, root="").status_code == 200
        return run

    def addresses(self) -> list[str]:
        """Every route that is read, with what is there in place of its words."""
        sys.path.insert(0, str(ROOT))
        from docs.writers.api import routes

        filled = {
            "ref": self.job, "project": "default", "name": "evil", "version": "1", "which": "1",
            "digest": "0" * 64, "file": "0" * 64, "access_key": "WLX", "model_id": "m-" + "0" * 32,
            "secret": "-", "user": "ann", "number": "1", "kind": "user", "page": "jobs",
        }  # fmt: skip
        found = set()
        for method, path, _ in routes():
            if method != "GET" or path in ("/{path:path}", "/api/v1/login/oidc"):
                continue
            files = [quote(name) for name in FILES] if "artifacts/{path:path}" in path else []
            path = path.replace("{file:path}", f"0/{self.run}/artifacts/page.html")
            for name, value in filled.items():
                path = path.replace("{" + name + "}", value)
            found |= {path.replace("{path:path}", file) for file in files or ["page.html"]}
        api = "/mlflow/default/api/2.0/mlflow"
        evil, short = quote(EVIL), quote(SHORT)
        return sorted(found) + [
            *OURS, f"/login?next={evil}", f"/{evil}", f"/api/v1/{evil}", f"/api/v1/jobs/{short}",
            f"/api/v1/runs/{self.job}/artifacts?path={short}", f"/api/v1/jobs?filter={evil}",
            f"/api/v1/jobs?name={evil}", f"/api/v1/models/{short}", f"/tb/{short}",
            f"/mlflow/{short}/health", f"{api}/experiments/get-by-name?experiment_name={evil}",
            f"{api}/runs/get?run_id={self.run}", f"{api}/artifacts/list?run_id={self.job}",
        ]  # fmt: skip


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "code").mkdir()
    with Platform(folder / "home") as platform:
        yield Town(platform, folder / "code")


def _browse(town: Town, path: str) -> httpx.Response:
    """As an address that is opened, by somebody who is logged in."""
    headers = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Accept": "text/html,*/*"}
    if path.startswith("/mlflow/"):
        return town.wire.call("GET", path, root="", headers=headers)
    return town.ann.call("GET", path, root="", headers=headers)


def test_no_answer_is_a_page_that_has_a_users_words_in_it(town: Town) -> None:
    told, wrong = 0, []
    for path in town.addresses():
        answer = _browse(town, path)
        headers = answer.headers
        kind = headers.get("content-type", "").partition(";")[0]
        stream = kind == "text/event-stream"
        text = "" if stream else answer.text
        if headers.get("x-content-type-options") != "nosniff":
            wrong.append(f"{path}: a browser may guess what it is")
        if path.startswith("/tb/") and kind == "text/html":
            if not _is_in_a_sandbox(answer):
                wrong.append(f"{path}: user code with our origin")
            continue
        if path.partition("?")[0] in OURS or kind == "text/html":
            wrong += [f"{path}: {each}" for each in _of_a_page(answer)]
            if EVIL in text or SHORT in text:
                wrong.append(f"{path}: says what the user said")
            continue
        told += EVIL in text or SHORT in text or "page.html" in text
        if kind not in SAFE_KINDS and answer.status_code not in (204, 303, 304):
            wrong.append(f"{path}: is {kind}")
        if kind == "application/octet-stream" and not _is_a_file(answer):
            wrong.append(f"{path}: may be shown in place: {dict(headers)}")
    assert not wrong, "\n".join(wrong)
    assert told >= 20, "or it proves nothing"


def _of_a_page(answer: httpx.Response) -> Iterator[str]:
    """What a page of ours lacks: a policy without anything inline, and no frame around it."""
    if answer.headers.get("content-type", "").partition(";")[0] in ("application/json", ""):
        return  # an error in words, or no page at all
    policy = answer.headers.get("content-security-policy", "")
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    if rules.get("default-src") != "'none'" or rules.get("script-src") != "'self'":
        yield f"its policy is {policy!r}"
    if "unsafe" in policy or rules.get("frame-ancestors") != "'none'":
        yield f"its policy is {policy!r}"
    if rules.get("base-uri") != "'self'":
        yield f"its policy is {policy!r}"
    inline = r"<script(?![^>]*\bsrc=)|\son[a-z]+=|javascript:"
    if answer.headers["content-type"].startswith("text/html") and re.search(inline, answer.text):
        yield "a script stands in it"


def _is_in_a_sandbox(answer: httpx.Response) -> bool:
    policy = answer.headers.get("content-security-policy", "")
    return policy.startswith("sandbox allow-scripts allow-downloads; default-src 'none'") and (
        "allow-same-origin" not in policy
    )


def _is_a_file(answer: httpx.Response) -> bool:
    place = answer.headers.get("content-disposition", "")
    policy = answer.headers.get("content-security-policy", "")
    return (
        place.startswith("attachment")
        and policy.startswith("sandbox")
        and ("allow-" not in policy)
    )


@pytest.mark.parametrize("name", FILES)
def test_a_users_file_is_an_attachment_of_no_kind(town: Town, name: str) -> None:
    for path in (
        f"/api/v1/runs/{town.job}/artifacts/{quote(name)}",
        f"/mlflow/default/api/2.0/mlflow-artifacts/artifacts/0/{town.job}/artifacts/{quote(name)}",
    ):
        answer = _browse(town, path)
        assert answer.status_code == 200 and answer.content == FILES[name]
        assert _is_a_file(answer), dict(answer.headers)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert "<" not in answer.headers["content-disposition"]


@contextmanager
def serving(content: bytes) -> Iterator[str]:
    """The same page where nobody takes care."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(not chromium.installed(), reason="Chromium is not installed")
def test_in_a_browser_no_script_of_a_users_runs_as_ours(town: Town, tmp_path: Path) -> None:
    url = town.platform.url
    with Chromium(tmp_path) as browser:
        link = town.people.owner.ok("POST", "/sessions/links", {})["url"]
        page = browser.open(link)
        page.wait("location.pathname == '/'", 60)
        with Browser(url) as asker:
            assert asker.login("owner", PASSWORD).status_code == 204
            board = asker.call("GET", f"/jobs/{town.job}/board").json()["url"]
        page.go(board)
        page.wait("document.title == 'alive'", 60)  # it is a page, and its scripts run,
        assert "ran" not in page.cookies()  # but as nobody's
        assert page.run("window.origin") == "null"
        for path in (
            f"/api/v1/jobs/{town.job}/logs", f"/api/v1/jobs/{town.job}",
            f"/api/v1/runs?filter={quote(EVIL)}", "/api/v1/models/evil", "/api/v1/jobs",
            f"/login?next={quote(EVIL)}", f"/{quote(EVIL)}",
        ):  # fmt: skip
            page.run("window.before = true")
            page.go(url + path)
            page.wait("!window.before && document.readyState == 'complete'", 60)
            assert "ran" not in page.cookies(), path
        for name in FILES:
            # It is no page to go to: the browser takes it as a download and stays where it is.
            page.go(f"{url}/api/v1/runs/{town.job}/artifacts/{quote(name)}")
            page.run("new Promise(requestAnimationFrame)")
            assert "ran" not in page.cookies(), name
        with serving(PAGE) as careless:
            page.go(careless)
            page.wait("document.cookie.includes('ran')", 60)
        assert "ran" in page.cookies(), "the script works"
