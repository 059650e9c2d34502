"""R-S5, R-S16: what was taken away is gone: on the server that did it at the next request, on all
others within five seconds, and for answers that last as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pair_of_servers import LIMIT_SECONDS, SLACK_SECONDS, Pair

from windlass.core.signing import sign
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform

GONE = (401, 403, 404)

Taken = Callable[[Pair, Caller], object]


def disable(pair: Pair, ann: Caller) -> object:
    return pair.people.owner.ok("PUT", f"/users/{ann.name}/disabled", {"disabled": True})


def remove(pair: Pair, ann: Caller) -> object:
    return pair.people.owner.ok("DELETE", f"/users/{ann.name}")


def revoke(pair: Pair, ann: Caller) -> object:
    return pair.people.owner.ok("DELETE", f"/keys/{ann.access_key}")


def rotate_without_overlap(pair: Pair, ann: Caller) -> object:
    return pair.people.owner.ok("POST", f"/keys/{ann.access_key}/rotate", {"overlap": "0s"})


def leave(pair: Pair, ann: Caller) -> object:
    return pair.people.owner.ok("DELETE", f"/projects/red/members/{ann.name}")


def lose_the_role(pair: Pair, ann: Caller) -> object:
    return pair.people.owner.ok("PUT", f"/projects/red/members/{ann.name}", {"role": "viewer"})


def lose_the_org_role(pair: Pair, ann: Caller) -> object:
    return pair.people.owner.ok("PUT", f"/users/{ann.name}/role", {"role": None})


READ = ("GET", "/jobs", None)
WRITE = ("POST", "/jobs", {"spec": {"run": ["true"], "hold": True}})


@pytest.mark.parametrize(
    ("take", "asked", "org_role"),
    [
        (disable, READ, None),
        (revoke, READ, None),
        (lose_the_role, WRITE, None),
        pytest.param(remove, READ, None, marks=pytest.mark.soak),
        pytest.param(rotate_without_overlap, READ, None, marks=pytest.mark.soak),
        pytest.param(leave, READ, None, marks=pytest.mark.soak),
        pytest.param(
            lose_the_org_role, ("GET", "/users", None), "auditor", marks=pytest.mark.soak
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_taken_away_is_gone_here_at_once_and_elsewhere_soon(
    pair: Pair, take: Taken, asked: tuple[str, str, object], org_role: str | None
) -> None:
    ann = pair.ann(org_role=org_role)
    there = pair.elsewhere(ann)
    for caller in (ann, there):
        assert caller.code(*asked) < 300, "both have seen it, and remember"
    take(pair, ann)
    taken = time.monotonic()
    assert ann.code(*asked) in GONE
    while there.code(*asked) not in GONE:
        assert time.monotonic() < taken + LIMIT_SECONDS + SLACK_SECONDS, "still let in elsewhere"


@pytest.mark.parametrize(
    "take",
    [
        disable,
        *(pytest.param(each, marks=pytest.mark.soak) for each in (remove, leave, lose_the_role)),
    ],
    ids=lambda f: f.__name__,
)
def test_a_token_goes_the_way_of_its_user(pair: Pair, take: Taken) -> None:
    ann = pair.ann()
    token = pair.people.token(ann, "write")
    there = pair.elsewhere(token)
    for caller in (token, there):
        assert caller.code(*WRITE) == 201
    take(pair, ann)
    taken = time.monotonic()
    assert token.code(*WRITE) in GONE
    while there.code(*WRITE) not in GONE:
        assert time.monotonic() < taken + LIMIT_SECONDS + SLACK_SECONDS


def test_a_token_that_was_revoked_is_dead_and_others_live(pair: Pair) -> None:
    ann = pair.ann()
    first, second = (pair.people.token(ann, "read", name=name) for name in ("one", "two"))
    assert first.code(*READ) == second.code(*READ) == 200
    known = {token["name"]: token["id"] for token in ann.ok("GET", "/tokens")["items"]}
    for _ in range(2):  # the second time is no error
        ann.ok("DELETE", f"/tokens/{known['one']}")
        assert first.code(*READ) == 401 and second.code(*READ) == 200


def test_who_is_enabled_again_has_its_keys_and_none_of_its_tokens(pair: Pair) -> None:
    ann = pair.ann()
    token = pair.people.token(ann, "read")
    assert token.code(*READ) == 200
    disable(pair, ann)
    pair.people.owner.ok("PUT", f"/users/{ann.name}/disabled", {"disabled": False})
    assert ann.code(*READ) == 200 and token.code(*READ) == 401


@pytest.mark.parametrize("path", ["/feed", "/jobs/{job}/stream"])
@pytest.mark.parametrize(
    "take",
    [disable, *(pytest.param(each, marks=pytest.mark.soak) for each in (remove, leave))],
    ids=lambda f: f.__name__,
)
def test_a_stream_ends_when_its_reader_may_no_longer_read(
    pair: Pair, path: str, take: Taken
) -> None:
    ann = pair.ann()
    job = ann.ok(*WRITE)["id"]
    address = pair.there.url + "/api/v1" + path.format(job=job)
    headers = {"Host": f"127.0.0.1:{pair.there.port}"}
    headers |= sign(
        "GET", address, headers, b"", ann.access_key, ann.secret_key, int(time.time() * 1000)
    )
    with (
        httpx.Client(trust_env=False, verify=False, timeout=60) as client,
        client.stream("GET", address, headers=headers) as answer,
    ):
        assert answer.status_code == 200
        parts = answer.iter_raw()
        next(parts)
        take(pair, ann)
        taken = time.monotonic()
        for _ in parts:  # a sign of life comes every 15 seconds
            assert time.monotonic() < taken + 2 * LIMIT_SECONDS + SLACK_SECONDS, "it goes on"
        assert time.monotonic() < taken + 2 * LIMIT_SECONDS + SLACK_SECONDS


def test_a_key_that_rotates_overlaps_with_the_new_one(pair: Pair) -> None:
    ann = pair.ann()
    made = ann.ok("POST", f"/keys/{ann.access_key}/rotate", {"overlap": "1h"})
    new = Caller(pair.here, ann.name, made["access_key"], made["secret_key"])
    assert ann.code(*READ) == new.code(*READ) == 200
    states = {key["access_key"]: key["state"] for key in new.ok("GET", "/keys")["items"]}
    assert states == {ann.access_key: "retiring", new.access_key: "live"}
    assert ann.code("POST", f"/keys/{ann.access_key}/rotate", {}) == 409
    new.ok("DELETE", f"/keys/{ann.access_key}")
    assert ann.code(*READ) == 401 and new.code(*READ) == 200


def test_no_account_works_that_nobody_was_given(tmp_path: Path) -> None:
    """R-S16: no default name with a blank or a known password or key."""
    with Platform(tmp_path / "home") as platform:
        people = People(platform)
        users = people.owner.ok("GET", "/users")["items"]
        assert [user["name"] for user in users] == ["owner"]
        key = platform.credentials()
        assert (platform.home / "credentials.json").stat().st_mode & 0o777 == 0o600
        for access_key, secret in (
            ("admin", ""), ("owner", "owner"), ("owner", ""), (key["access_key"], ""),
            (key["access_key"], "password"), ("root", "root"),
        ):  # fmt: skip
            guessed = Caller(platform, "guess", access_key, secret or " ")
            assert guessed.code("GET", "/whoami") == 401
        for name in ("owner", "admin", "root", "determined"):
            for password in ("", "password", "admin", name):
                body = {"user": name, "password": password}
                assert people.anonymous.code("POST", "/login/key", body) in (401, 422, 429)
