"""The dashboard's files as a server gives them: what may be kept and for how long, what a browser
is allowed to do with them, below another path too. No browser here."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from windlass.core.errors import InvalidInput
from windlass.server.http import base_path
from windlass.server.page import FOLDER, Page
from windlass.testing.platform import Platform

BUILT = (FOLDER / "index.html").exists()
needs_build = pytest.mark.skipif(not BUILT, reason="the page is not built: make web")
KB = 1000


@pytest.fixture(scope="module", params=["", "/lab/windlass"])
def below(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, below: str) -> Iterator[Platform]:
    words = ("--base-path", below) if below else ()
    with Platform(tmp_path_factory.mktemp("serving") / "home", *words) as found:
        yield found


@pytest.fixture(scope="module")
def http(platform: Platform) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.url, trust_env=False, timeout=60) as found:
        yield found


class Bare:
    """The page alone, asked in this process."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def get(self, path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._page)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                return await client.get(path)

        return asyncio.run(ask())


def assets(text: str) -> list[str]:
    return re.findall(r'(?:src|href)="\./(assets/[^"]+)"', text)


@needs_build
@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/brisk-otter?tab=logs&x=%2F", "/nonsense"])
def test_every_page_path_gives_the_page(http: httpx.Client, below: str, path: str) -> None:
    answer = http.get(below + path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert f'<base href="{below}/">' in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    head = http.head(below + path)
    assert head.status_code == 200 and head.content == b""
    assert head.headers["content-type"] == answer.headers["content-type"]


@needs_build
def test_the_policy_allows_our_files_and_nothing_else(http: httpx.Client, below: str) -> None:
    first, second = http.get(below + "/"), http.get(below + "/")
    policy = first.headers["content-security-policy"]
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    nonce = re.search(r'<meta name="style-nonce" content="([0-9a-f]{32})"', first.text)
    assert nonce is not None
    assert rules == {
        "default-src": "'none'", "script-src": "'self'",
        "style-src": f"'self' 'nonce-{nonce[1]}'", "img-src": "'self' data: blob:",
        "font-src": "'self'", "connect-src": "'self'", "form-action": "'self'",
        "base-uri": "'self'", "frame-ancestors": "'none'",
    }  # fmt: skip
    assert second.headers["content-security-policy"] != policy, "another nonce each time"
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son[a-z]+=|https?://", first.text)


@needs_build
@pytest.mark.parametrize(
    ("path", "chunk"), [("/jobs", "Jobs"), ("/jobs/brisk-otter", "Job"), ("/jobs/new", "NewJob")]
)
def test_a_page_names_its_own_scripts_before_the_first_has_run(
    http: httpx.Client, below: str, path: str, chunk: str
) -> None:
    """The browser fetches them beside the first one, not after it."""
    text = http.get(below + path).text
    soon = re.findall(r'<link rel="modulepreload" crossorigin href="\./(assets/[^"]+)">', text)
    assert any(re.match(rf"assets/{chunk}-[\w-]{{8}}\.js$", name) for name in soon), soon
    assert all(http.get(f"{below}/{name}").status_code == 200 for name in soon)
    assert "modulepreload" not in http.get(f"{below}/no/such/page").text


@needs_build
def test_files_with_a_hash_in_their_name_are_kept_for_good(http: httpx.Client, below: str) -> None:
    page = http.get(below + "/").text
    names = assets(page)
    assert names and all(re.search(r"-[\w-]{8}\.(js|css)$", name) for name in names)
    for name in names:
        whole = http.get(f"{below}/{name}", headers={"Accept-Encoding": "identity"})
        assert whole.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert whole.headers["vary"] == "accept-encoding"
        kind = "text/javascript" if name.endswith(".js") else "text/css"
        assert whole.headers["content-type"].startswith(kind)
        again = http.get(
            f"{below}/{name}",
            headers={"If-None-Match": whole.headers["etag"], "Accept-Encoding": "identity"},
        )
        assert again.status_code == 304 and again.content == b""
    icon = http.get(f"{below}/icon.svg")
    assert icon.headers["cache-control"] == "no-cache" and icon.headers["etag"]
    assert icon.headers["content-type"] == "image/svg+xml"


@needs_build
@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("br, gzip", "br"), ("gzip", "gzip"), ("GZIP;q=0.5", "gzip"), ("gzip;q=0, br;q=0", None),
     ("identity", None), ("", None), ("zstd", None)],
)  # fmt: skip
def test_what_was_packed_before_is_sent_to_who_can_unpack_it(
    platform: Platform, http: httpx.Client, below: str, accepted: str, encoding: str | None
) -> None:
    (name,) = [each for each in assets(http.get(below + "/").text) if "/index-" in each and
               each.endswith(".js")]  # fmt: skip
    with http.stream("GET", f"{below}/{name}", headers={"Accept-Encoding": accepted}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers.get("content-encoding") == encoding
    assert int(answer.headers["content-length"]) == len(raw)
    suffix = {"br": ".br", "gzip": ".gz", None: ""}[encoding]
    assert raw == (FOLDER / (name + suffix)).read_bytes()
    if encoding == "gzip":
        assert gzip.decompress(raw) == (FOLDER / name).read_bytes()


@needs_build
def test_a_part_of_a_file_is_a_part_of_the_file(http: httpx.Client, below: str) -> None:
    name = assets(http.get(below + "/").text)[0]
    headers = {"Range": "bytes=10-19", "Accept-Encoding": "br"}
    answer = http.get(f"{below}/{name}", headers=headers)
    assert answer.status_code == 206 and "content-encoding" not in answer.headers
    assert answer.content == (FOLDER / name).read_bytes()[10:20]
    beyond = http.get(f"{below}/{name}", headers={"Range": "bytes=999999999-"})
    assert beyond.status_code == 416


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nothing", "/api", "/api/v2/jobs", "/login/other.js", "/assets/none-12345678.js",
     "/assets/../index.html%00", "/tb", "/assets/%2e%2e/%2e%2e/__init__.py"],
)  # fmt: skip
def test_what_is_no_page_is_not_found_in_our_form(
    http: httpx.Client, below: str, path: str
) -> None:
    answer = http.get(below + path)
    assert answer.status_code in (404, 422), answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] in ("not-found", "invalid-input")


@pytest.mark.parametrize("path", ["/jobs", "/", "/assets/x.js", "/api/v1/health"])
def test_pages_are_only_read(http: httpx.Client, below: str, path: str) -> None:
    answer = http.post(below + path, content=b"{}")
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "question",
    [f"/runs?limit=100&id={','.join(['0' * 32] * 100)}",
     f"/jobs?limit=60&filter={quote('id in (' + ','.join([repr('0' * 32)] * 60) + ')')}"],
    ids=["compare", "rows"],
)  # fmt: skip
def test_as_many_jobs_as_the_page_asks_for_at_once_are_answered(
    platform: Platform, question: str
) -> None:
    """Compare asks for a hundred, the table for sixty rows that changed."""
    answer = platform.call("GET", question)
    assert answer.status_code == 200 and answer.json()["items"] == [], answer.text


def test_the_api_and_the_login_page_are_there_too(
    platform: Platform, http: httpx.Client, below: str
) -> None:
    assert http.get(f"{below}/api/v1/health").json()["ok"] is True
    login = http.get(f"{below}/login")
    assert f'<base href="{below}/">' in login.text
    assert http.get(f"{below}/login/login.js").status_code == 200
    # Workers and the command line of this machine come without it; a proxy may have taken it off.
    assert http.get("/api/v1/health").json()["ok"] is True
    assert f'<base href="{below}/">' in http.get("/login").text
    link = platform.call("POST", "/sessions/links", {}).json()["url"]
    assert link.startswith(f"{platform.url}{below}/login#link=")


def test_a_client_that_was_given_the_whole_address_is_believed(
    platform: Platform, below: str
) -> None:
    from windlass.client import Client

    key = platform.credentials()
    words = {name: key[name] for name in ("access_key", "secret_key")}
    with Client(platform.url + below, **words) as client:
        assert client.whoami()["user"] == "owner"


def test_without_built_files_it_says_how_to_build_them(tmp_path: Path) -> None:
    page = Bare(Page("", tmp_path))
    answer = page.get("/jobs")
    assert answer.status_code == 200 and "make web" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    (tmp_path / "index.html").write_text('<base href="/"><p>one</p>')
    assert "one" in page.get("/jobs").text, "built while the server runs"
    (tmp_path / "index.html").write_text('<base href="/"><p>two</p>')
    os.utime(tmp_path / "index.html", ns=(1, 1))
    assert "two" in page.get("/jobs").text


@pytest.mark.parametrize(
    ("given", "found"),
    [("", ""), ("/", ""), ("windlass", "/windlass"), ("/a/b/", "/a/b"), ("/~ann", "/~ann")],
)
def test_a_base_path_is_read(given: str, found: str) -> None:
    assert base_path.checked(given) == found


@pytest.mark.parametrize(
    "given", ["/a b", "/a//b", "/../x", "/a?b", '/"', "/api", "/login/x", "/ü"]
)
def test_a_wrong_base_path_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="base path"):
        base_path.checked(given)


@needs_build
def test_the_first_page_loads_at_most_250_kilobytes_of_script() -> None:
    """What index.html names, what that loads at once, and Home with what it loads, packed."""
    names = {name for name in assets((FOLDER / "index.html").read_text()) if name.endswith(".js")}
    (home,) = (FOLDER / "assets").glob("Home-*.js")
    names.add(f"assets/{home.name}")
    while True:
        found = {
            f"assets/{each}"
            for name in names
            for each in re.findall(r'from"\./([\w-]+\.js)"', (FOLDER / name).read_text())
        }
        found |= {
            f"assets/{each}"
            for name in names
            for each in re.findall(r'import"\./([\w-]+\.js)"', (FOLDER / name).read_text())
        }
        if found <= names:
            break
        names |= found
    sizes = {name: (FOLDER / f"{name}.gz").stat().st_size for name in names}
    sizes["before-paint.js"] = (FOLDER / "before-paint.js.gz").stat().st_size
    assert sum(sizes.values()) <= 250 * KB, sizes
