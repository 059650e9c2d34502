"""R-S4: everything that goes through the server to a board (TensorBoard, and whatever else runs
as one) needs who asks, the job's project and the page's own origin; nothing is upgraded. The
board itself counts what reaches it: a refusal that came after it had been asked would be seen."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from windlass.testing.browser import Browser
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

PASSWORD = "correct horse battery"
COUNTING = """
import os, socket
os.chdir(os.environ["WINDLASS_RUN_DIR"])
listening = socket.socket(socket.AF_UNIX)
listening.bind("board.sock")
listening.listen()
count = 0
while True:
    plug, _ = listening.accept()
    asked = plug.recv(65536)
    if asked:
        count += 1
        told = str(count).encode()
        plug.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(told), told))
    plug.close()
"""
METHODS = ("GET", "POST", "OPTIONS")


class Boards:
    """ann's board in `red`, bob's in `blue`, and how often ann's was asked."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.people = People(platform)
        for name in ("red", "blue"):
            self.people.project(name)
        self.people.owner.ok("PUT", "/password", {"new": PASSWORD})
        self.ann = self.people.user("ann", project="red", role="member")
        self.bob = self.people.user("bob", project="blue", role="maintainer")
        self.job, self.other = self._board(self.ann), self._board(self.bob)
        self.address = self.address_for(self.ann)

    def _board(self, who: Caller) -> str:
        spec = {"run": [sys.executable, "-c", COUNTING]}
        job = str(who.ok("POST", "/jobs", {"spec": spec})["id"])
        wait_for(lambda: who.ok("GET", f"/jobs/{job}/board")["ready"], 60, "the board listens")
        return job

    def address_for(self, who: Caller, job: str = "") -> str:
        return str(who.ok("GET", f"/jobs/{job or self.job}/board")["url"])

    def asked(self) -> int:
        """Each look at this counts, too."""
        answer = get(self.address)
        assert answer.status_code == 200, answer.text
        return int(answer.text)


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boards]:
    with Platform(tmp_path_factory.mktemp("boards") / "home") as platform:
        yield Boards(platform)


def get(address: str, method: str = "GET", **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.request(method, address, headers=sent, trust_env=False, verify=False, timeout=60)


def test_without_somebody_who_asks_no_method_reaches_a_board(boards: Boards) -> None:
    before = boards.asked()
    with Browser(boards.platform.url) as browser:
        assert browser.login("owner", PASSWORD).status_code == 204
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    secret = urlsplit(boards.address).path.split("/")[3]
    turned = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    tried = 0
    for word in ("-", "x", turned, secret[:60], secret.partition(".")[0] + "."):
        address = boards.address.replace(secret, word)
        for method in METHODS:
            for more in ({}, {"Cookie": cookie}, {"Authorization": "Bearer wl_nobody"}):
                status = get(address, method, **more).status_code
                assert status in (401, 403), (method, word, more, status)
                tried += 1
    assert tried == 45 and boards.asked() == before + 1


def test_nobody_of_another_project_reaches_a_board_by_any_way(boards: Boards) -> None:
    before = boards.asked()
    theirs = urlsplit(boards.address_for(boards.bob, boards.other)).path.split("/")[3]
    mine = urlsplit(boards.address).path.split("/")[3]
    for method in METHODS:
        assert get(boards.address.replace(mine, theirs), method).status_code == 401
    for who in (boards.bob, boards.bob.inside("red"), boards.people.token(boards.bob, "write")):
        for path in (f"/tb/{boards.job}", f"/tb/{boards.job}/-/x", f"/tb/{boards.job}/{mine}/x"):
            assert who.code("GET", path, root="") == 404, (who.name, path)
        assert who.code("POST", f"/tb/{boards.job}/-/x", root="") == 404
        assert who.code("GET", f"/jobs/{boards.job}/board") == 404
    assert boards.asked() == before + 1


def test_the_page_of_another_origin_reaches_no_board(boards: Boards) -> None:
    before = boards.asked()
    own = boards.platform.url
    origins = ("http://evil.example", own, own + ".evil.example", "https://127.0.0.1", "file://")
    for method in METHODS:
        for origin in origins:
            assert get(boards.address, method, Origin=origin).status_code == 403, (method, origin)
        assert get(boards.address, method, Host="evil.example").status_code == 403, method
    assert boards.asked() == before + 1
    assert get(boards.address, "POST", Origin="null").text == str(before + 2), "its own page does"


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example"])
@pytest.mark.parametrize("known", [True, False])
def test_no_upgrade_reaches_a_board(boards: Boards, known: bool, origin: str | None) -> None:
    before = boards.asked()
    secret = urlsplit(boards.address).path.split("/")[3] if known else "-"
    lines = [
        f"GET /tb/{boards.job}/{secret}/x HTTP/1.1", f"Host: 127.0.0.1:{boards.platform.port}",
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *([f"Origin: {origin}"] * bool(origin)),
        "", "",
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", boards.platform.port), 60) as plug:
        plug.sendall("\r\n".join(lines).encode())
        status = plug.recv(65536).split(b" ")[1]
    assert status in (b"401", b"403")
    assert boards.asked() == before + 1


def test_an_address_dies_with_what_it_was_made_with(boards: Boards) -> None:
    people, before = boards.people, boards.asked()
    carl = people.user("carl", project="red", role="viewer")
    by_key = boards.address_for(carl)
    made = carl.ok("POST", "/tokens", {"name": "look", "scopes": ["read"]})
    by_token = boards.address_for(Caller(boards.platform, "carl", token=made["token"]))
    for address in (by_key, by_token):
        assert get(address).status_code == 200
    carl.ok("DELETE", f"/tokens/{made['id']}")
    assert get(by_token).status_code == 401
    people.owner.ok("DELETE", "/projects/red/members/carl")
    assert get(by_key).status_code == 401
    with Browser(boards.platform.url) as browser:
        assert browser.login("owner", PASSWORD).status_code == 204
        headers: dict[str, str | None] = {"X-Wl-Project": "red"}
        answer = browser.call("GET", f"/jobs/{boards.job}/board", headers=headers)
        by_session = answer.json()["url"]
        assert get(by_session).status_code == 200
        assert browser.call("POST", "/logout", {}).status_code == 204
    assert get(by_session).status_code == 401
    assert boards.asked() == before + 4


def test_a_token_that_may_see_the_job_and_not_its_runs_gets_no_board(boards: Boards) -> None:
    before = boards.asked()
    for scope in ("job.read", "track.read"):
        token = boards.people.token(boards.ann, scope, name=scope.replace(".", "-"))
        assert token.code("GET", f"/jobs/{boards.job}/board") == 403
        assert token.code("GET", f"/tb/{boards.job}", root="") == 403
        assert token.code("GET", f"/tb/{boards.job}/-/x", root="") == 403
    assert boards.asked() == before + 1
