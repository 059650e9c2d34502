"""A person logs in with a password, and is known by a cookie until one of many things ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windlass.server.sessions import cookies
from windlass.testing.browser import Browser
from windlass.testing.platform import Platform

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("login") / "home") as found:
        assert found.call("PUT", "/password", {"new": PASSWORD}).status_code == 204
        yield found


@pytest.fixture
def browser(platform: Platform) -> Iterator[Browser]:
    with Browser(platform.url) as found:
        yield found


@pytest.fixture
def known(browser: Browser) -> Browser:
    answer = browser.login("owner", PASSWORD)
    assert answer.status_code == 204, answer.text
    return browser


def test_a_person_logs_in_and_is_known(known: Browser):
    me = known.call("GET", "/session").json()
    assert (me["user"], me["project"], me["role"]) == ("owner", "default", "owner")
    assert me["session"]["how"] == "password" and me["session"]["current"]
    assert me["header"] == "X-Wl-Client" and me["has_password"]
    assert known.call("GET", "/jobs").status_code == 200
    assert known.call("POST", "/jobs", {"spec": {"run": "true", "hold": True}}).is_success


def test_the_cookie_is_as_tight_as_cookies_are(browser: Browser):
    line = browser.login("owner", PASSWORD).headers["set-cookie"]
    name, _, rest = line.partition("=")
    assert name == "__Host-windlass"
    rules = {word.strip() for word in rest.split(";")[1:]}
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=Lax", "Max-Age=604800"} == rules
    assert len(rest.split(";")[0]) >= 43, "256 bits"


def test_a_session_is_a_new_one_at_every_login(known: Browser):
    first = dict(known.cookies)
    known.login("owner", PASSWORD)
    assert known.cookies != first
    with Browser(known.url) as thief:
        thief.cookies = first
        assert thief.call("GET", "/session").status_code == 401, "the one before has ended"


def test_logging_out_ends_the_session_and_takes_the_cookie(known: Browser):
    kept = dict(known.cookies)
    assert known.call("POST", "/logout", {}).status_code == 204
    assert known.cookies == {}
    known.cookies = kept
    assert known.call("GET", "/session").status_code == 401


def test_own_sessions_are_listed_and_ended(platform: Platform, known: Browser):
    with Browser(platform.url) as other:
        other.login("owner", PASSWORD)
        listed = known.call("GET", "/sessions").json()["items"]
        assert [each["current"] for each in listed].count(True) == 1
        theirs = other.call("GET", "/session").json()["session"]["id"]
        assert known.call("DELETE", f"/sessions/{theirs}").status_code == 204
        assert other.call("GET", "/session").status_code == 401
        assert known.call("DELETE", f"/sessions/{theirs}").status_code == 404
        other.login("owner", PASSWORD)
        assert known.call("DELETE", "/sessions").status_code == 204
        assert other.call("GET", "/session").status_code == 401
        assert known.call("GET", "/session").status_code == 200, "the one that calls stays"


def test_nothing_tells_an_unknown_user_from_a_wrong_password(browser: Browser):
    answers = [
        browser.login("owner", "wrong wrong wrong").json()["error"],
        browser.login("nobody-has-this", "wrong wrong wrong").json()["error"],
    ]
    for answer in answers:
        answer.pop("request_id")
    assert answers[0] == answers[1]
    assert answers[0]["code"] == "unauthenticated"


def test_a_cookie_that_is_there_twice_is_nobodys(known: Browser):
    value = known.cookies[cookies.SESSION]
    twice = f"{cookies.SESSION}=x; {cookies.SESSION}={value}"
    assert known.call("GET", "/session", headers={"Cookie": twice}).status_code == 401


def test_a_session_makes_no_link_and_a_token_no_session(known: Browser):
    assert known.call("POST", "/sessions/links", {}).status_code == 403


def test_a_password_is_not_taken_when_it_is_easy(platform: Platform):
    for easy in ("short", "password123", "owner12345", "aaaaaaaaaaaa", "x" * 257, "1234567890"):
        answer = platform.call("PUT", "/password", {"old": PASSWORD, "new": easy})
        assert answer.status_code == 422, easy
        assert easy not in answer.text


def test_to_change_a_password_one_must_know_the_old(platform: Platform, known: Browser):
    new = {"new": "another long one"}
    assert known.call("PUT", "/password", new).status_code == 422
    assert known.call("PUT", "/password", {**new, "old": "wrong wrong"}).status_code == 403
    assert platform.call("PUT", "/password", {**new, "old": "wrong wrong"}).status_code == 403


def test_the_page_is_the_same_for_everybody_and_runs_only_its_own_script(browser: Browser):
    answer = browser.open(f"{browser.url}/login")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and answer.headers["x-frame-options"] == "DENY"
    assert "<script>" not in answer.text and " on" not in answer.text.replace(" one", "")
    for path, kind in (("/login/login.js", "text/javascript"), ("/login/login.css", "text/css")):
        assert browser.open(browser.url + path).headers["content-type"].startswith(kind)


def test_a_link_of_a_signed_call_logs_a_browser_in_once(platform: Platform, browser: Browser):
    link = platform.call("POST", "/sessions/links", {}).json()["url"]
    address, _, token = link.partition("#link=")
    assert address == f"{platform.url}/login"
    for _ in range(3):  # who fetches the address before its user does not use it up
        assert browser.open(link).status_code == 200
    body = {"link": token}
    assert browser.call("POST", "/login/link", body).status_code == 204
    assert browser.call("GET", "/session").json()["session"]["how"] == "link"
    with Browser(platform.url) as late:
        assert late.call("POST", "/login/link", body).status_code == 401
        assert late.call("POST", "/login/link", {"link": "made-up"}).status_code == 401


def test_an_administrator_gives_a_link_to_a_new_password(platform: Platform, known: Browser):
    made = platform.call("POST", "/users/owner/password-link", {})
    assert made.status_code == 201, made.text
    token = made.json()["url"].partition("#password=")[2]
    with Browser(platform.url) as other:
        body = {"link": token, "password": "short"}
        assert other.call("POST", "/login/password", body).status_code == 422
        body["password"] = PASSWORD
        assert other.call("POST", "/login/password", body).status_code == 204
        assert other.call("GET", "/session").status_code == 200
        assert other.call("POST", "/login/password", body).status_code == 401, "once"
    assert known.call("GET", "/session").status_code == 401, "all sessions before it are over"
    assert platform.call("POST", "/users/nobody/password-link", {}).status_code == 404


def test_a_password_gives_a_machine_a_key_of_its_own(platform: Platform):
    with Browser(platform.url) as shell:
        body = {"user": "owner", "password": PASSWORD, "name": "laptop"}
        plain = {"Origin": None, "Sec-Fetch-Site": None, "Sec-Fetch-Mode": None}
        answer = shell.call("POST", "/login/key", body, plain)
        assert answer.status_code == 201, answer.text
        key = answer.json()
        assert key["name"] == "laptop" and key["project"] == "default" and not shell.cookies
    from windlass.client import Client

    with Client(
        platform.url, access_key=key["access_key"], secret_key=key["secret_key"]
    ) as client:
        assert client.jobs.list() is not None


def test_the_whole_took_no_secret_into_the_log_or_the_database(platform: Platform, known: Browser):
    token = known.cookies[cookies.SESSION]
    files = list(platform.home.glob("windlass.db*"))
    assert files
    for path in [*files, platform.home / "server.log"]:
        held = path.read_bytes()
        assert PASSWORD.encode() not in held and token.encode() not in held, path
