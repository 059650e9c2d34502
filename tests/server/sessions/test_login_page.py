"""The login page in a real browser: it works, its policy forbids nothing of it, and a page of
another origin gets nowhere with the cookie that the browser holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

from windlass.server.sessions import cookies
from windlass.testing import chromium
from windlass.testing.chromium import Chromium, Page
from windlass.testing.platform import Platform

pytestmark = pytest.mark.skipif(not chromium.installed(), reason="Chromium is not installed")

FIRST, SECOND = "correct horse battery", "another stable word"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("page") / "home") as found:
        assert found.call("PUT", "/password", {"new": FIRST}).status_code == 204
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def page(browser: Chromium, platform: Platform) -> Page:
    """The page, with nobody logged in."""
    found = browser.open(f"{platform.url}/login")
    found.call("Network.clearBrowserCookies")
    found.go(f"{platform.url}/login")
    found.wait(shown("by-password"))
    return found


def shown(part: str) -> str:
    return f"document.getElementById('{part}') && !document.getElementById('{part}').hidden"


@contextmanager
def serving(text: str) -> Iterator[str]:
    """A page of another origin, and its address."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def log_in(page: Page, password: str = FIRST) -> None:
    page.run(
        "document.getElementById('name').value = 'owner';"
        f"document.getElementById('password').value = '{password}';"
        "document.getElementById('by-password').requestSubmit()"
    )


def test_a_person_logs_in_and_out(page: Page, platform: Platform):
    log_in(page, "wrong wrong wrong")
    page.wait("document.getElementById('told').textContent.includes('is wrong')")
    log_in(page)
    page.wait("location.pathname == '/'")
    page.go(f"{platform.url}/login")
    page.wait(shown("known"))
    assert page.run("document.getElementById('user').textContent") == "owner"
    held = page.cookies()[cookies.SESSION]
    assert held["secure"] and held["httpOnly"] and held["sameSite"] == "Lax"
    assert held["path"] == "/" and held["domain"] == "127.0.0.1"
    assert page.run("document.cookie") == "", "no script reads it"
    page.run("document.getElementById('leave').click()")
    page.wait(shown("by-password"))
    assert cookies.SESSION not in page.cookies()
    assert page.complaints() == []


def test_a_link_that_the_user_opens_logs_in_at_once(page: Page, platform: Platform):
    link = platform.call("POST", "/sessions/links", {}).json()["url"]
    page.go("about:blank")  # from the page itself only the # would change
    page.go(link)
    page.wait("location.pathname == '/'")
    assert page.run("location.hash") == "", "it stands in no history"
    assert page.cookies()[cookies.SESSION]["httpOnly"]
    assert page.complaints() == []


def test_a_link_on_another_page_is_used_by_the_button_and_not_before(
    page: Page, platform: Platform
):
    """Or a page could log its visitor in as somebody else, who then types what is not for them."""
    link = platform.call("POST", "/sessions/links", {}).json()["url"]
    with serving(f"<!doctype html><title>evil</title><a id=a href='{link}'>look</a>") as url:
        page.go(url)
        page.wait("document.title == 'evil'")
        page.run("document.getElementById('a').click()")
        page.wait(shown("by-link"))
        assert page.run("location.hash") == "", "it stands in no history"
        assert cookies.SESSION not in page.cookies()
        page.run("document.getElementById('use-link').click()")
        page.wait("location.pathname == '/'")
        assert page.cookies()[cookies.SESSION]["httpOnly"]
        assert page.complaints() == []


def test_a_link_does_not_replace_who_is_logged_in_without_a_word(page: Page, platform: Platform):
    link = platform.call("POST", "/sessions/links", {}).json()["url"]
    log_in(page)
    page.wait("location.pathname == '/'")
    page.go(link)
    page.wait(shown("by-link"))


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("/jobs/x?tab=logs#L4", "/jobs/x?tab=logs#L4"),
        ("https://evil.example/", "/"), ("//evil.example/x", "/"), ("/\\evil.example", "/"),
        ("\\\\evil.example", "/"), ("https:evil.example", "/"), ("http://[", "/"),
        ("data:text/html,x", "/"), ("javascript:alert(1)", "/"), ("", "/"),
    ],
)  # fmt: skip
def test_after_the_login_the_browser_goes_on_and_stays_here(
    page: Page, platform: Platform, asked: str, there: str
):
    page.go(f"{platform.url}/login?next={quote(asked, safe='')}")
    page.wait(shown("by-password"))
    log_in(page)
    page.wait("!document.getElementById('by-password')")
    found = page.run("location.href").removeprefix(platform.url)
    assert found == there


def test_the_page_speaks_the_other_language_and_keeps_it(page: Page, platform: Platform):
    before = page.run("document.documentElement.lang")
    page.run("document.getElementById('language').click()")
    other = page.run("document.documentElement.lang")
    assert {before, other} == {"en", "zh"}
    words = page.run("document.querySelector('[data-words=user]').textContent")
    assert words == {"en": "User", "zh": "用户名"}[other]
    page.go(f"{platform.url}/login")
    page.wait(shown("by-password"))
    assert page.run("document.documentElement.lang") == other
    page.run("document.getElementById('language').click()")
    assert page.run("document.documentElement.lang") == before
    assert page.complaints() == []


def test_a_new_password_is_set_by_its_link(page: Page, platform: Platform):
    link = platform.call("POST", "/users/owner/password-link", {}).json()["url"]
    page.go(link)
    page.wait(shown("set-password"))
    page.run(
        f"document.getElementById('new').value = '{SECOND}';"
        f"document.getElementById('again').value = '{SECOND}';"
        "document.getElementById('set-password').requestSubmit()"
    )
    page.wait("location.pathname == '/'")
    page.go(f"{platform.url}/login")
    page.wait(shown("known"))
    page.run("document.getElementById('leave').click()")
    page.wait(shown("by-password"))
    log_in(page, SECOND)
    page.wait("location.pathname == '/'")
    body = {"old": SECOND, "new": FIRST}
    assert platform.call("PUT", "/password", body).status_code == 204


ATTACK = """<!doctype html><title>evil</title>
<form id="f" method="post" enctype="text/plain" action="{url}/api/v1/logout" target="frame">
<input name='{{"a":"' value='"}}'></form><iframe name="frame" id="frame"></iframe>
<script>
window.tried = (async () => {{
  const told = [];
  const attempt = async (method, path, options) => {{
    try {{
      const answer = await fetch("{url}/api/v1" + path, {{
        method, credentials: "include", ...options }});
      told.push(answer.type + " " + answer.status);
    }} catch (error) {{ told.push("refused"); }}
  }};
  for (const mode of ["no-cors", "cors"]) {{
    await attempt("POST", "/logout", {{ mode, body: "{{}}" }});
    await attempt("POST", "/logout", {{ mode, body: "{{}}",
      headers: {{ "Content-Type": "text/plain" }} }});
    await attempt("GET", "/session", {{ mode }});
  }}
  await attempt("DELETE", "/sessions", {{ mode: "cors" }});
  await attempt("POST", "/jobs", {{ mode: "cors", body: '{{"spec": {{"run": "true"}}}}',
    headers: {{ "Content-Type": "application/json", "X-Wl-Client": "x" }} }});
  document.getElementById("f").submit();
  await new Promise((done) => document.getElementById("frame").addEventListener("load", done));
  return told;
}})();
</script>"""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_does_nothing_with_the_cookie(
    page: Page, platform: Platform, name: str
):
    """From another port of the same host the browser does send it: SameSite is no help there."""
    log_in(page)
    page.wait("location.pathname == '/'")
    jobs = len(platform.client.jobs.list())
    with serving(ATTACK.format(url=platform.url)) as url:
        page.go(url.replace("127.0.0.1", name))
        page.wait("document.title == 'evil' && window.tried")
        told = page.run("window.tried")
        assert told and all(each in ("refused", "opaque 0") for each in told), told
        page.go(f"{platform.url}/login")
        page.wait(shown("known"))
        assert page.run("document.getElementById('user').textContent") == "owner"
        assert len(platform.client.jobs.list()) == jobs


def test_no_page_puts_it_into_a_frame_and_nothing_inline_runs(page: Page):
    page.run(
        "const made = document.createElement('div');"
        "made.innerHTML = '<img src=x onerror=\"window.ran = true\">';"
        "document.body.append(made);"
        "const inline = document.createElement('script');"
        "inline.textContent = 'window.ran = true';"
        "document.body.append(inline)"
    )
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert page.run("window.ran") is None
    assert any("Content Security Policy" in each for each in page.complaints())
