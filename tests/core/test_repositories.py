"""Which addresses of repositories, and which refs, a job may name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from windlass.core.jobs import JobSpec
from windlass.core.repositories import check_ref, check_url, split

GOOD_URLS = (
    "https://example.org/ada/code.git", "http://127.0.0.1:8000/repo.git",
    "https://[::1]:8443/repo", "ssh://git@example.org/ada/code.git",
    "ssh://git@example.org:2222/~ada/code", "file:///srv/git/code.git",
)  # fmt: skip
BAD_URLS = {
    "": "begins with https://",
    "code": "begins with https://",
    "/srv/git/code.git": "begins with https://",
    "ext::sh -c date": "spaces",
    "ext::sh": "begins with https://",
    "ext://example.org/x": "begins with https://",
    "git://example.org/code.git": "begins with https://",
    "ftp://example.org/code.git": "begins with https://",
    "HTTPS://example.org/code.git": "begins with https://",
    "git@example.org:ada/code.git": "write ssh://git@example.org/ada/code.git",
    "-u./x": "begins with https://",
    "--upload-pack=date": "begins with https://",
    "https://-oProxyCommand=date/x": "names a host",
    "ssh://-oProxyCommand=date/x": "names a host",
    "ssh://-l@example.org/x": "names a host",
    "https:///code.git": "names a host",
    "https://example.org": "names a repository",
    "https://example.org/": "names a repository",
    "https://example.org:port/x": "not an address",
    "https://example.org/x?service=date": "no `?`",
    "https://example.org/x#main": "no `?` and no `#`",
    "https://ada:secret@example.org/x": "leave it out",
    "https://token@example.org/x": "leave it out",
    "ssh://ada:secret@example.org/x": "leave it out",
    "file://example.org/srv/x": "file:///absolute",
    "file:srv/x": "begins with https://",
    "https://example.org/a b": "spaces",
    "https://example.org/a\nb": "spaces",
    "https://exämple.org/a": "plain letters",
}
GOOD_REFS = ("main", "v1.2.3", "feature/x-1", "refs/pull/7/head", "3f2a1b0", "a" * 40, "@x")
BAD_REFS = (
    "", "-main", "--upload-pack=date", "+main", "a:b", "a b", "a..b", "a^", "a~1", "a*", "a?",
    "a[b", "a\\b", "/a", "a/", "a.", ".a", "a//b", "a/.b", "a.lock", "a.lock/b", "a@{1}", "@",
    "a\x7f", "a" * 256,
)  # fmt: skip


@pytest.mark.parametrize("url", GOOD_URLS)
def test_an_address_that_may_be_asked_for(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize("url", BAD_URLS)
def test_an_address_that_may_not(url: str) -> None:
    with pytest.raises(ValueError, match=BAD_URLS[url].replace("?", r"\?")):
        check_url(url)


@pytest.mark.parametrize("ref", GOOD_REFS)
def test_a_ref_that_may_be_asked_for(ref: str) -> None:
    assert check_ref(ref) == ref


@pytest.mark.parametrize("ref", BAD_REFS)
def test_a_ref_that_may_not(ref: str) -> None:
    with pytest.raises(ValueError, match="a branch, a tag or a commit"):
        check_ref(ref)


def test_an_address_and_a_ref_in_one_word() -> None:
    assert split("https://example.org/x#main") == ("https://example.org/x", "main")
    assert split("https://example.org/x") == ("https://example.org/x", None)
    assert split("https://example.org/x#") == ("https://example.org/x", "")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ({"ref": "main"}, "give `git`"),
        ({"commit": "a" * 40}, "give `git`"),
        ({"git": "https://example.org/x", "dir": "."}, "give one of both"),
        ({"git": "https://example.org/x", "bundle": "a" * 64}, "give one of both"),
        ({"git": "https://example.org/x", "ignore": ["data/"]}, "give one of both"),
        ({"git": "https://example.org/x", "commit": "main"}, "pattern"),
        ({"git": "https://example.org/x", "ref": "-x"}, "a branch, a tag or a commit"),
    ],
)
def test_code_comes_from_one_place(code: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        JobSpec.model_validate({"run": "true", "code": code})


def test_what_has_no_network_cannot_fetch() -> None:
    spec = {"run": "true", "isolation": {"network": "none"}}
    with pytest.raises(ValidationError, match="send the code instead"):
        JobSpec.model_validate({**spec, "code": {"git": "https://example.org/x"}})
    assert JobSpec.model_validate({**spec, "code": {"git": "file:///srv/x"}}).code.git
