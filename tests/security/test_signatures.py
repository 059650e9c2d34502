"""What a signature is good for: once, for five minutes, and for nobody who guesses."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest
from sqlalchemy import func, select

from windlass.core import signing
from windlass.core.errors import SignatureReused
from windlass.server.access import tables
from windlass.server.access.calls import NOBODY, Call, signature_key, spend, sweep
from windlass.server.access.service import NewKey
from windlass.testing import small_app
from windlass.testing.small_app import call, send


class Clock:
    def __init__(self):
        self.ahead_ms = 0

    def __call__(self):
        return time.time_ns() // 1_000_000 + self.ahead_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server(tmp_path, clock):
    return small_app.make(tmp_path, now_ms=clock)


def signed(server, method, path, body=b"", now_ms=None):
    sent = {"host": "127.0.0.1", "content-type": "application/json"}
    key = server.key
    now_ms = now_ms or time.time_ns() // 1_000_000
    url = "http://127.0.0.1" + path
    return sent | signing.sign(method, url, sent, body, key.access_key, key.secret_key, now_ms)


def test_a_changing_signature_is_taken_once(server):
    body = b'{"name": "a"}'
    headers = signed(server, "POST", "/api/v1/things", body)
    assert send(server.app, "POST", "/api/v1/things", body, headers).status_code == 201
    again = send(server.app, "POST", "/api/v1/things", body, headers)
    assert again.status_code == 401
    assert again.json()["error"]["code"] == "signature-reused"
    assert call(server, "POST", "/api/v1/things", body).status_code == 201


def test_a_reading_signature_may_be_used_again(server):
    headers = signed(server, "GET", "/api/v1/things")
    for _ in range(2):
        assert send(server.app, "GET", "/api/v1/things", b"", headers).status_code == 200


def test_a_refused_call_does_not_use_up_its_signature(server):
    headers = signed(server, "POST", "/api/v1/things", b"{}")
    for _ in range(2):
        assert send(server.app, "POST", "/api/v1/things", b"{}", headers).status_code == 422


def test_the_answer_to_a_wrong_clock_carries_the_right_one(server, clock):
    clock.ahead_ms = 3_600_000
    refused = call(server, "GET", "/api/v1/things")
    assert refused.status_code == 401
    error = refused.json()["error"]
    assert error["code"] == "clock-skew"
    server_time_ms = error["details"]["server_time_ms"]
    assert call(server, "GET", "/api/v1/things", at_ms=server_time_ms).status_code == 200


def test_an_unknown_key_and_a_wrong_signature_get_the_same_answer(server):
    wrong = NewKey(server.key.access_key, "x" * 40, "", "")
    unknown = NewKey("WL" + "A" * 18, "x" * 40, "", "")
    asyncio.run(server.access.disable((off := asyncio.run(server.access.issue())).access_key))
    answers = [call(server, "GET", "/api/v1/things", key=key) for key in (wrong, unknown, off)]
    bodies = [{**answer.json()["error"], "request_id": ""} for answer in answers]
    assert bodies[0] == bodies[1] == bodies[2]
    assert {answer.status_code for answer in answers} == {401}
    names = [sorted(answer.headers) for answer in answers]
    assert names[0] == names[1] == names[2]


def test_an_unknown_key_costs_the_same_work_as_a_wrong_signature(server):
    """The bound is wide (the machine is shared); a missing HMAC or a skipped body would show."""

    async def cost(access_key):
        key = NewKey(access_key, "x" * 40, "", "")
        headers = signing.sign("GET", "http://h/x", {}, b"", key.access_key, key.secret_key,
                               time.time_ns() // 10**6)  # fmt: skip
        lines = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        parts = signing.SignedParts("GET", b"/x", b"", [(b"host", b"h"), *lines])

        async def read_hash(claimed):
            return signing.EMPTY_HASH

        started = time.process_time_ns()  # the machine may be busy
        for _ in range(50):
            with pytest.raises(Exception, match="not known or the signature"):
                await server.access.authenticate(parts, read_hash)
        return time.process_time_ns() - started

    async def compare():
        known, unknown = [], []
        for _ in range(20):
            known.append(await cost(server.key.access_key))
            unknown.append(await cost("WL" + "B" * 18))
        return statistics.median(unknown) / statistics.median(known)

    assert 0.5 < asyncio.run(compare()) < 2.0


def test_a_disabled_key_is_dead_at_the_next_call(server):
    key = asyncio.run(server.access.issue())
    assert call(server, "GET", "/api/v1/things", key=key).status_code == 200
    asyncio.run(server.access.disable(key.access_key))
    assert call(server, "GET", "/api/v1/things", key=key).status_code == 401


def test_old_signatures_are_forgotten_and_use_is_noted(server, clock):
    def rows(conn):
        return conn.execute(select(func.count()).select_from(tables.signatures)).scalar()

    def last_used(conn):
        return conn.execute(select(tables.keys.c.last_used_ms)).scalar()

    call(server, "POST", "/api/v1/things", b'{"name": "a"}')
    assert asyncio.run(server.store.read(rows)) == 1
    assert asyncio.run(server.store.read(last_used)) is None
    asyncio.run(server.access.tend())
    assert asyncio.run(server.store.read(rows)) == 1
    assert asyncio.run(server.store.read(last_used)) > 0
    clock.ahead_ms = 700_000
    asyncio.run(server.access.tend())
    assert asyncio.run(server.store.read(rows)) == 0


def test_a_signature_is_spent_on_both_databases(store):
    """In the caller's own transaction: undone with it, and refused the second time."""

    async def journey():
        await store.write(lambda conn: tables.signatures.create(conn, checkfirst=True))
        once = Call(NOBODY, signature_hash=signature_key(10, "f" * 64), expires_ms=10)

        def fails(conn):
            spend(conn, once)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.write(fails)
        await store.write(lambda conn: spend(conn, once))
        with pytest.raises(SignatureReused):
            await store.write(lambda conn: spend(conn, once))
        race = [Call(NOBODY, signature_hash=signature_key(10, "a"), expires_ms=10)] * 20
        done = await asyncio.gather(
            *(store.write(lambda conn, one=one: spend(conn, one)) for one in race),
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in done) == [
            "NoneType", *["SignatureReused"] * 19
        ]  # fmt: skip
        assert await store.write(lambda conn: sweep(conn, 10)) == 0
        assert await store.write(lambda conn: sweep(conn, 11)) == 2

    asyncio.run(journey())


def of_project(server, name):
    sent = {"host": "127.0.0.1", "x-wl-project": name}
    key, now_ms = server.key, time.time_ns() // 1_000_000
    url = "http://127.0.0.1/api/v1/things"
    return sent | signing.sign("GET", url, sent, b"", key.access_key, key.secret_key, now_ms)


def test_the_project_that_a_call_names_is_part_of_its_signature(server):
    headers = of_project(server, "default")
    assert send(server.app, "GET", "/api/v1/things", b"", headers).status_code == 200
    swapped = {**headers, "x-wl-project": "other"}
    assert send(server.app, "GET", "/api/v1/things", b"", swapped).status_code == 401
    dropped = {name: value for name, value in headers.items() if name != "x-wl-project"}
    assert send(server.app, "GET", "/api/v1/things", b"", dropped).status_code == 401
    added = {**signed(server, "GET", "/api/v1/things"), "x-wl-project": "default"}
    assert send(server.app, "GET", "/api/v1/things", b"", added).status_code == 401


@pytest.mark.parametrize("name", ["other", "Default", "default ", "../default", "a" * 41, "d\xe9"])
def test_a_project_that_one_is_not_in_is_not_there(server, name):
    answer = send(server.app, "GET", "/api/v1/things", b"", of_project(server, name))
    if name.strip() == "default":
        assert answer.status_code == 200
    else:
        assert answer.status_code in (401, 404), answer.text


def test_who_names_a_project_without_a_key_learns_nothing(server):
    answers = [
        send(server.app, "GET", "/api/v1/things", b"", {"host": "127.0.0.1", "x-wl-project": name})
        for name in ("default", "other")
    ]
    wrong = NewKey(server.key.access_key, "x" * 40, "", "")
    server.key = wrong
    answers += [
        send(server.app, "GET", "/api/v1/things", b"", of_project(server, name))
        for name in ("default", "other")
    ]
    assert [answer.status_code for answer in answers] == [401] * 4
    assert answers[2].json()["error"]["message"] == answers[3].json()["error"]["message"]
