"""R-S3: what another site's page makes a browser send is refused, whatever the method."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from windlass.core.signing import SAFE_METHODS
from windlass.testing import small_app
from windlass.testing.browser import Browser
from windlass.testing.platform import Platform
from windlass.testing.small_app import call, send

UNSAFE = ["POST", "PUT", "PATCH", "DELETE"]
FOREIGN = {
    "foreign origin": {"origin": "http://evil.example"},
    "null origin": {"origin": "null"},
    "own name, other port": {"origin": "http://127.0.0.1:9999"},
    "own name, other scheme": {"origin": "https://127.0.0.1"},
    "own name as a prefix": {"origin": "http://127.0.0.1.evil.example"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site"},
    "typed": {"sec-fetch-site": "none"},
    "no-cors": {"sec-fetch-mode": "no-cors"},
    "no-cors, said to be own": {"sec-fetch-mode": "no-cors", "sec-fetch-site": "same-origin"},
    "a form": {"sec-fetch-mode": "navigate", "sec-fetch-site": "same-origin"},
    "foreign host": {"host": "evil.example"},
    "foreign host with port": {"host": "evil.example:7400"},
    "host with a user": {"host": "127.0.0.1@evil.example"},
    "host with a bad port": {"host": "127.0.0.1:x"},
    "no host": {"host": ""},
    "text/plain": {"content-type": "text/plain", "origin": "http://evil.example"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    return small_app.make(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("cookie", [{}, {"cookie": "session=valid", "x-wl-client": "web"}])
@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("method", UNSAFE)
def test_a_foreign_page_is_refused(server, method, headers, cookie):
    for target in ("/api/v1/things", "/api/v1/things/a", "/api/v1/open", "/nowhere"):
        answer = call(server, method, target, b"{}", {**headers, **cookie})
        assert answer.status_code == 403, answer.text
        assert answer.json()["error"]["code"] == "forbidden"


@pytest.mark.parametrize("method", UNSAFE)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-wl-client": "web"},
        {"origin": "http://127.0.0.1"},
        {"content-type": "text/plain"},
    ],
    ids=str,
)
def test_a_cookie_alone_moves_nothing(server, method, headers):
    """It needs the page's own origin and a header that no form can send."""
    sent = {"host": "127.0.0.1", "cookie": "session=valid", **headers}
    answer = send(server.app, method, "/api/v1/things", b"{}", sent)
    assert answer.status_code == 403


def test_our_own_page_is_not_refused(server):
    for headers in (
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-origin", "cookie": "a=b", "x-wl-client": "web"},
    ):
        answer = call(server, "POST", "/api/v1/things", b'{"name": "a"}', headers)
        assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:7400", "127.0.0.1:1", "[::1]", "[::1]:7400"]
)
def test_loopback_names_are_its_own(server, host):
    assert send(server.app, "GET", "/api/v1/health", b"", {"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "[::1", "0.0.0.0", "::1"]
)
def test_reading_under_a_foreign_name_is_refused_too(server, host):
    """A page that points its own name at 127.0.0.1 would otherwise read as if it were ours."""
    assert send(server.app, "GET", "/api/v1/health", b"", {"host": host}).status_code == 403


def test_a_websocket_of_a_foreign_page_is_refused(server):
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        sent = {"host": "127.0.0.1", **headers}
        assert send(server.app, "WEBSOCKET", "/api/v1/socket", b"", sent).status_code == 403


# A whole server, a browser that has logged in, and every route that changes something.

PASSWORD = "correct horse battery"
_LEFT_OUT = ("audit", "leases", "login_attempts", "signatures", "sqlite_sequence")
"""Tables that a refused call may write (that it was refused), or a loop by itself."""

_FILLED = {"ref": "kept", "access_key": "WLX", "session_id": "0" * 32, "digest": "0" * 64}


def routes() -> list[tuple[str, str]]:
    """(method, address) of every unsafe route of the real application."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from docs.writers.api import routes as every

    found = [
        (method, re.sub(r"{(\w+)}", lambda part: _FILLED.get(part[1], "kept"), path))
        for method, path, _ in every()
        if method not in SAFE_METHODS
    ]
    return sorted(found, key=lambda each: each[1].endswith("/logout"))


OWN = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "X-Wl-Client": "web"}
FORGED: dict[str, dict[str, str | None]] = {
    "foreign origin": {"Origin": "http://evil.example"},
    "foreign port": {"Origin": "http://127.0.0.1:1"},
    "foreign scheme": {"Origin": "https://127.0.0.1"},
    "null origin": {"Origin": "null"},
    "cross-site": {"Sec-Fetch-Site": "cross-site"},
    "same-site": {"Sec-Fetch-Site": "same-site"},
    "no-cors": {"Sec-Fetch-Mode": "no-cors"},
    "navigate": {"Sec-Fetch-Mode": "navigate"},
    "foreign host": {"Host": "evil.example"},
    "text/plain, as a form can": {
        "Content-Type": "text/plain", "X-Wl-Client": None, "Sec-Fetch-Mode": "no-cors",
        "Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example",
    },
    "no header": {"X-Wl-Client": None},
    "no origin": {"Origin": None, "Sec-Fetch-Site": None, "Sec-Fetch-Mode": None},
    "nothing": {"Origin": None, "Sec-Fetch-Site": None, "Sec-Fetch-Mode": None,
                "X-Wl-Client": None},
}  # fmt: skip


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with Platform(tmp_path_factory.mktemp("origin") / "home") as found:
        assert found.call("PUT", "/password", {"new": PASSWORD}).status_code == 204
        found.submit("true", name="kept", hold=True)
        yield found


@pytest.fixture(scope="module")
def victim(platform):
    with Browser(platform.url) as found:
        assert found.login("owner", PASSWORD).status_code == 204
        yield found


@pytest.fixture
def browser(platform):
    with Browser(platform.url) as found:
        assert found.login("owner", PASSWORD).status_code == 204
        yield found


def rows(platform) -> dict[str, list[tuple]]:
    """Everything in the database but what a refusal may leave."""
    with closing(sqlite3.connect(f"file:{platform.home}/windlass.db?mode=ro", uri=True)) as db:
        names = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
            if not name.startswith(_LEFT_OUT)
        ]
        return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}


@pytest.mark.parametrize("headers", FORGED.values(), ids=FORGED)
def test_what_a_foreign_page_sends_with_a_valid_cookie_changes_nothing(platform, victim, headers):
    before = rows(platform)
    for method, path in routes():
        answer = victim.send(
            method, path, {"Origin": victim.url, "Content-Type": "application/json", **OWN,
                           **headers}, b"{}",
        )  # fmt: skip
        assert answer.status_code == 403, (method, path, answer.text)
    assert rows(platform) == before


def test_the_same_from_our_own_page_reaches_every_route(platform, browser):
    """Or the test above proves nothing."""
    assert len(routes()) > 40
    refused = ("may not", "X-Wl-Client", "only a script", "does not answer")
    for method, path in routes():
        whole = {"Origin": browser.url, "Content-Type": "application/json", **OWN}
        answer = browser.send(method, path.replace("kept", "nobody"), whole, b"{}")
        assert answer.status_code not in (401, 405), (method, path, answer.text)
        assert not any(word in answer.text for word in refused), (method, path, answer.text)
    assert browser.cookies == {}, "the last of them logged out"


def test_a_foreign_page_does_not_read_with_the_cookie_either(browser):
    for site in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": site, "Origin": None}
        for mode in ("cors", "no-cors", "same-origin"):
            answer = browser.call("GET", "/jobs", headers={**headers, "Sec-Fetch-Mode": mode})
            assert answer.status_code == 403
    assert browser.open(f"{browser.url}/login", {"Sec-Fetch-Site": "cross-site"}).is_success


def test_a_signature_does_not_excuse_a_cookie(platform, browser):
    """Signed and bearer calls are exempt only when there is no cookie beside them."""
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    answer = platform.call(
        "POST", "/jobs", {"spec": {"run": "true"}, "dry_run": True}, headers={"Cookie": cookie}
    )
    assert answer.status_code == 403
    assert platform.call("POST", "/jobs", {"spec": {"run": "true"}, "dry_run": True}).is_success


def test_behind_a_proxy_the_public_name_is_its_own_and_no_other(tmp_path):
    """TLS ends at the proxy: what the browser calls its origin is not what arrives here."""
    public = "https://windlass.example"
    words = ("--public-url", public, "--proxy", "127.0.0.1")
    with Platform(tmp_path / "home", *words) as platform, Browser(platform.url) as browser:
        body = b'{"user": "nobody", "password": "x"}'
        usual = {"Host": "windlass.example", "Content-Type": "application/json", **OWN}
        for origin, status in (
            (public, 401), ("http://windlass.example", 403), ("https://evil.example", 403),
            ("null", 403), (public + ".evil.example", 403),
        ):  # fmt: skip
            answer = browser.send("POST", "/api/v1/login", {**usual, "Origin": origin}, body)
            assert answer.status_code == status, (origin, answer.text)
        told = {**usual, "Origin": public, "X-Forwarded-Proto": "https"}
        assert browser.send("POST", "/api/v1/login", told, body).status_code == 401
        foreign = {**usual, "Origin": public, "Host": "evil.example"}
        assert browser.send("POST", "/api/v1/login", foreign, body).status_code == 403
        link = platform.call("POST", "/sessions/links", {}).json()["url"]
        assert link.startswith(public + "/login#")


def test_what_a_stranger_says_of_its_address_is_not_believed(platform, tmp_path):
    """Or wrong passwords would never be counted."""
    with Browser(platform.url) as browser:
        for turn in range(8):
            headers = {"X-Forwarded-For": f"203.0.113.{turn}"}
            body = {"user": f"made-up-{turn}", "password": "x"}
            assert browser.call("POST", "/login", body, headers).status_code == 401
    with closing(sqlite3.connect(f"file:{platform.home}/windlass.db?mode=ro", uri=True)) as db:
        keys = {key for (key,) in db.execute("SELECT key FROM login_attempts")}
    assert "from:127.0.0.1" in keys
    assert not [key for key in keys if "203.0.113" in key]
