"""R-S5 for browsers: what ends a session ends it on every server, at the next call, and the
answers that last with it. Others' cookies lived on after a new password."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx
import pytest
from pair_of_servers import FIRST, LIMIT_SECONDS, SECOND, SLACK_SECONDS, Pair

from windlass.server.sessions import cookies
from windlass.testing.browser import Browser


def _changes_password(pair: Pair, name: str, browser: Browser) -> None:
    answer = browser.call("PUT", "/password", {"old": FIRST, "new": SECOND})
    assert answer.status_code == 204, answer.text
    assert browser.call("GET", "/session").status_code == 200, "who changed it got a new session"


def _sets_a_new_one_by_link(pair: Pair, name: str, browser: Browser) -> None:
    pair.new_password(name, SECOND)


def _is_disabled(pair: Pair, name: str, browser: Browser) -> None:
    answer = pair.here.call("PUT", f"/users/{name}/disabled", {"disabled": True})
    assert answer.status_code == 200, answer.text


def _is_removed(pair: Pair, name: str, browser: Browser) -> None:
    answer = pair.here.call("DELETE", f"/users/{name}")
    assert answer.status_code == 200, answer.text


def _logs_out(pair: Pair, name: str, browser: Browser) -> None:
    assert browser.call("POST", "/logout", {}).status_code == 204


def _ends_it_from_elsewhere(pair: Pair, name: str, browser: Browser) -> None:
    session = browser.call("GET", "/session").json()["session"]["id"]
    with Browser(pair.here.url) as other:
        assert other.login(name, FIRST).status_code == 204
        assert other.call("DELETE", f"/sessions/{session}").status_code == 204


WAYS: dict[str, Callable[[Pair, str, Browser], None]] = {
    "a new password": _changes_password,
    "a new password by link": _sets_a_new_one_by_link,
    "a disabled user": _is_disabled,
    "a removed user": _is_removed,
    "logging out": _logs_out,
    "ended from elsewhere": _ends_it_from_elsewhere,
}


@pytest.mark.parametrize(
    "end",
    [
        way
        if name in ("logging out", "a disabled user")
        else pytest.param(way, marks=pytest.mark.soak)
        for name, way in WAYS.items()
    ],
    ids=WAYS,
)
def test_a_session_is_dead_on_every_server_at_the_next_call(
    pair: Pair, end: Callable[[Pair, str, Browser], None]
):
    name = pair.person()
    with Browser(pair.here.url) as browser, Browser(pair.there.url) as thief:
        assert browser.login(name, FIRST).status_code == 204
        thief.cookies = dict(browser.cookies)
        assert thief.call("GET", "/session").json()["user"] == name
        with Listener(thief) as listener:
            end(pair, name, browser)
            ended = time.monotonic()
            for url in (pair.here.url, pair.there.url):
                with Browser(url) as again:
                    again.cookies = dict(thief.cookies)
                    assert again.call("GET", "/session").status_code == 401, url
                    assert again.call("GET", "/jobs").status_code == 401, url
            listener.over.wait(LIMIT_SECONDS + SLACK_SECONDS)
            assert listener.over.is_set(), "it is still told what happens"
            assert time.monotonic() - ended < LIMIT_SECONDS + SLACK_SECONDS


def test_a_role_that_is_dropped_is_gone_from_a_session(pair: Pair):
    name = pair.person("admin")
    with Browser(pair.there.url) as browser:
        assert browser.login(name, FIRST).status_code == 204
        assert browser.call("GET", "/users").status_code == 200
        answer = pair.here.call("PUT", f"/users/{name}/role", {"role": None})
        assert answer.status_code == 200, answer.text
        end = time.monotonic() + LIMIT_SECONDS + SLACK_SECONDS
        while browser.call("GET", "/users").status_code != 403:
            assert time.monotonic() < end, "it still has the right"
            time.sleep(0.1)
        assert browser.call("GET", "/session").json()["role"] is None


class Listener:
    """Follows the feed with a browser's cookie until the server ends it."""

    def __init__(self, browser: Browser) -> None:
        self._url = browser.url
        self._cookie = f"{cookies.SESSION}={browser.cookies[cookies.SESSION]}"
        self._open, self.over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def _listen(self) -> None:
        headers = {"Cookie": self._cookie, "Sec-Fetch-Site": "same-origin"}
        try:
            with httpx.stream(
                "GET", f"{self._url}/api/v1/feed", headers=headers, trust_env=False, timeout=120
            ) as answer:
                assert answer.status_code == 200
                for _ in answer.iter_bytes():
                    self._open.set()
        except httpx.HTTPError:
            pass
        self.over.set()

    def __enter__(self) -> Listener:
        self._thread.start()
        assert self._open.wait(60), "the feed did not begin"
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)
