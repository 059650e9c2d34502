"""R-S18: another issuer's word is believed only when all of it is right.

The issuer is a real process with real keys, which lies in one way at a time.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import pytest

from windlass.server.sessions import cookies, oidc
from windlass.server.settings import Oidc
from windlass.testing.browser import Browser
from windlass.testing.platform import Platform, wait_for

PROGRAM = Path(__file__).parents[1] / "server" / "sessions" / "issuer.py"
CLIENT = "windlass"


class Provider:
    def __init__(self, folder: Path) -> None:
        note = folder / "issuer.url"
        self.process = subprocess.Popen([sys.executable, str(PROGRAM), str(note)])
        self.url = wait_for(lambda: note.exists() and note.read_text(), 20, "the issuer answers")

    def behave(self, **how: Any) -> None:
        told = json.dumps(how)  # with its Infinity, which httpx would refuse
        httpx.post(
            f"{self.url}/behave", content=told, trust_env=False, timeout=60
        ).raise_for_status()

    def asked(self) -> dict[str, int]:
        return dict(httpx.get(f"{self.url}/asked", trust_env=False, timeout=60).json())

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    found = Provider(tmp_path_factory.mktemp("issuer"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def platform(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("oidc")
    secret = folder / "secret"
    secret.write_text("issuer-secret\n")
    secret.chmod(0o600)
    words = (
        "--oidc-issuer", provider.url, "--oidc-client-id", CLIENT,
        "--oidc-client-secret-file", str(secret), "--oidc-domain", "example.org", "--oidc-create",
    )  # fmt: skip
    with Platform(folder / "home", *words) as found:
        yield found


@pytest.fixture
def browser(platform: Platform, provider: Provider) -> Iterator[Browser]:
    provider.behave()
    with Browser(platform.url) as found:
        yield found


def leave(browser: Browser) -> str:
    """Where the issuer sends the browser back to."""
    gone = browser.open(f"{browser.url}/api/v1/login/oidc")
    assert gone.status_code == 303, gone.text
    there = httpx.get(
        gone.headers["location"], trust_env=False, follow_redirects=False, timeout=60
    )
    return str(there.headers["location"])


def arrive(browser: Browser, back: str) -> str:
    """ "" when the browser is logged in afterwards, else what it is told."""
    answer = browser.open(back)
    assert answer.status_code == 303, answer.text
    where = answer.headers["location"]
    assert where.startswith(browser.url + "/login")
    said = unquote(where.partition("#error=")[2])
    assert (cookies.SESSION in browser.cookies) == (said == "")
    return said


def test_an_account_of_the_issuer_becomes_a_user_and_logs_in(browser: Browser):
    gone = browser.open(f"{browser.url}/api/v1/login/oidc")
    asked = {k: v[0] for k, v in parse_qs(urlsplit(gone.headers["location"]).query).items()}
    assert asked["code_challenge_method"] == "S256" and asked["response_type"] == "code"
    assert asked["state"] and asked["nonce"] and asked["client_id"] == CLIENT
    assert "secret" not in gone.headers["location"]
    assert arrive(browser, leave(browser)) == ""
    me = browser.call("GET", "/session").json()
    assert me["user"] == "anna" and me["session"]["how"] == "oidc" and me["role"] is None
    held = browser.cookies[cookies.SESSION]
    assert held.count(".") == 0, "no JWT in the browser"
    assert cookies.LOGIN not in browser.cookies, "the cookie of the way is gone"
    assert browser.call("GET", "/login").json()["oidc"].startswith("http://127.0.0.1")


LIES: dict[str, dict[str, Any]] = {
    "alg none": {"header": {"alg": "none"}, "sign": "none"},
    "alg None": {"header": {"alg": "None"}, "sign": "none"},
    "no alg": {"header": {"alg": None}, "sign": "none"},
    "no signature": {"sign": "none"},
    "broken signature": {"sign": "broken"},
    "a stranger's key": {"sign": "stranger"},
    "HS256 with the public key": {"header": {"alg": "HS256"}, "sign": "public"},
    "HS256 with the public key, DER": {"header": {"alg": "HS256"}, "sign": "public-der"},
    "HS256 with the client's secret": {"header": {"alg": "HS256", "kid": None}, "sign": "secret"},
    "HS256 with a key of the set": {"header": {"alg": "HS256", "kid": "shared"}, "sign": "shared"},
    "RS256 said, HMAC done": {"sign": "public"},
    "RS512, not among ours": {"header": {"alg": "RS512"}},
    "unknown kid": {"header": {"kid": "other"}},
    "kid of a path": {"header": {"kid": "../../../../dev/null"}, "sign": "stranger"},
    "kid of an injection": {"header": {"kid": "x' UNION SELECT 'k"}, "sign": "stranger"},
    "kid that is no text": {"header": {"kid": 7}},
    "kid of a secret": {"header": {"kid": "shared"}},
    "brings its own key": {"bring_key": True, "sign": "stranger", "header": {"kid": None}},
    "points to a key": {"header": {"jku": "http://127.0.0.1:1/k", "kid": "x"}, "sign": "stranger"},
    "crit": {"header": {"crit": ["exp"]}},
    "other audience": {"claims": {"aud": "another"}},
    "many audiences, not ours": {"claims": {"aud": ["a", "b"]}},
    "many audiences, not for us": {"claims": {"aud": [CLIENT, "b"]}},
    "authorised for another": {"claims": {"aud": [CLIENT, "b"], "azp": "b"}},
    "other issuer": {"claims": {"iss": "https://evil.example"}},
    "issuer with a slash": {"claims": {"iss": "http://127.0.0.1/"}},
    "expired": {"moments": {"exp": -120}},
    "from the future": {"moments": {"iat": 600}},
    "not yet": {"moments": {"nbf": 600}},
    "never expires": {"drop": ["exp"]},
    "expires at infinity": {"claims": {"exp": float("inf")}},
    "expires at true": {"claims": {"exp": True}},
    "no iat": {"drop": ["iat"]},
    "no subject": {"drop": ["sub"]},
    "no audience": {"drop": ["aud"]},
    "no issuer": {"drop": ["iss"]},
    "no nonce": {"drop": ["nonce"]},
    "another's nonce": {"claims": {"nonce": "replayed"}},
    "another's access token": {"claims": {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}},
    "mail not checked": {"claims": {"email_verified": False}},
    "mail checked, as text": {"claims": {"email_verified": "true"}},
    "mail of another domain": {"claims": {"email": "anna@evil.example", "sub": "x"}},
    "mail of two domains": {"claims": {"email": "a@evil.example@example.org.evil", "sub": "x"}},
    "no mail": {"drop": ["email"], "claims": {"sub": "x"}},
    "same mail, another account": {"claims": {"sub": "subject-2"}},
    "a user's name": {"claims": {"sub": "x3", "email": "owner@example.org"}},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_word_that_is_wrong_anywhere_logs_nobody_in(
    browser: Browser, provider: Provider, lie: dict[str, Any]
):
    if "subject-2" in str(lie):
        assert arrive(browser, leave(browser)) == "", "anna is known by her first account"
        browser.cookies.clear()
    provider.behave(**lie)
    assert arrive(browser, leave(browser)) != ""
    assert browser.call("GET", "/session").status_code == 401


def test_a_way_back_is_good_once(browser: Browser, provider: Provider, platform: Platform):
    """A replayed code, a replayed state, and both with a token that would fit."""
    for lax in (False, True):
        provider.behave(codes_twice=lax)  # an issuer that takes a code twice does not help
        gone = browser.open(f"{browser.url}/api/v1/login/oidc")
        way = dict(browser.cookies)
        back = httpx.get(gone.headers["location"], trust_env=False, timeout=60).headers["location"]
        assert arrive(browser, back) == ""
        with Browser(platform.url) as thief:
            assert arrive(thief, back) != "", "without the cookie of the way"
            thief.cookies = {cookies.LOGIN: way[cookies.LOGIN]}
            assert arrive(thief, back) != "", "with it"
        browser.cookies.clear()


def test_a_way_back_belongs_to_the_browser_that_left(
    browser: Browser, platform: Platform, provider: Provider
):
    """Or a page could log a visitor in as somebody else."""
    mine = leave(browser)
    with Browser(platform.url) as other:
        theirs = leave(other)
        assert arrive(other, mine) != ""
        other.cookies = {name: value[:-2] + "AA" for name, value in browser.cookies.items()}
        assert arrive(other, mine) != "", "a cookie that was changed"
    state = parse_qs(urlsplit(theirs).query)["state"][0]
    own = parse_qs(urlsplit(mine).query)["state"][0]
    assert arrive(browser, mine.replace(own, state)) != ""


def test_what_the_issuer_refuses_is_told(browser: Browser):
    leave(browser)
    said = arrive(browser, f"{browser.url}/api/v1/login/oidc/back?error=access_denied&state=x")
    assert "access_denied" in said
    assert arrive(browser, f"{browser.url}/api/v1/login/oidc/back") != ""
    leave(browser)
    made_up = f"{browser.url}/api/v1/login/oidc/back?code=x&state=y&iss=http://evil.example"
    assert arrive(browser, made_up) != ""


def test_an_administrator_says_which_account_is_whom(
    browser: Browser, provider: Provider, platform: Platform
):
    """An account with an owner's name is not the owner; one that the owner names is."""
    provider.behave(claims={"email": "boss@example.org", "sub": "boss"})
    answer = platform.call("PUT", "/users/owner/identity", {"value": "Boss@example.org"})
    assert answer.status_code == 204, answer.text
    assert arrive(browser, leave(browser)) == ""
    assert browser.call("GET", "/session").json()["user"] == "owner"
    browser.cookies.clear()
    provider.behave(claims={"email": "new-mail@example.org", "sub": "boss"})
    assert arrive(browser, leave(browser)) == "", "the subject is the account, not the address"
    assert browser.call("GET", "/session").json()["user"] == "owner"
    browser.cookies.clear()
    provider.behave(claims={"email": "boss@example.org", "sub": "who got the address later"})
    assert arrive(browser, leave(browser)) != ""
    assert platform.call("PUT", "/users/nobody/identity", {"value": "x"}).status_code == 404


def test_a_key_that_is_not_there_is_asked_for_seldom(browser: Browser, provider: Provider):
    before = provider.asked()["keys"]
    provider.behave(header={"kid": "made up"})
    for _ in range(5):
        assert arrive(browser, leave(browser)) != ""
    assert provider.asked()["keys"] <= before + 1, "a flood of kids is no flood of questions"


def test_a_new_key_of_the_issuer_is_found(provider: Provider, monkeypatch: pytest.MonkeyPatch):
    provider.behave()
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.0)

    async def journey(issuer: oidc.Issuer) -> dict[str, Any]:
        way = oidc.Journey.new()
        there = httpx.get(await issuer.leave(way), trust_env=False, timeout=60)
        back = parse_qs(urlsplit(there.headers["location"]).query)
        return await issuer.arrive(way, back["state"][0], back["code"][0], provider.url)

    async def go() -> None:
        settings = Oidc(provider.url, CLIENT, "issuer-secret")
        issuer = oidc.Issuer(settings, "http://127.0.0.1:1/back")
        assert (await journey(issuer))["sub"] == "subject-1"
        provider.behave(rotate=True)
        assert (await journey(issuer))["sub"] == "subject-1"

    asyncio.run(go())


def test_without_an_issuer_there_is_no_such_way(tmp_path: Path):
    with Platform(tmp_path / "home") as platform, Browser(platform.url) as browser:
        assert browser.call("GET", "/login").json() == {"password": True, "oidc": None}
        assert browser.open(f"{platform.url}/api/v1/login/oidc").status_code == 404
