"""R-S3: what another site's page makes a browser send is refused, whatever the method."""

from __future__ import annotations

import pytest

from windlass.testing import small_app
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
