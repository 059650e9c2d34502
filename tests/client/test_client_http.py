"""Requests: signed, repeated when that is safe, errors as the classes the server raised."""

from __future__ import annotations

import gc
import json
import socket
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from standin import ACCESS_KEY, SECRET_KEY, StandIn, write_files

from windlass.client import Client
from windlass.client.http import Http
from windlass.client.sse import messages
from windlass.core.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    Unauthenticated,
    Unavailable,
    Unreachable,
)


def refuse(status: int, code: str, **headers: str) -> Any:
    def fault(handler: Any) -> bool:
        body = json.dumps({"error": {"code": code, "message": "later"}}).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    return fault


def drop(handler: Any) -> bool:
    """Take the request and never answer."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
    return True


def cut(sent: bytes) -> Any:
    """Begin an answer, and break the connection inside it."""

    def fault(handler: Any) -> bool:
        handler.send_response(201)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(sent)
        handler.wfile.flush()
        return drop(handler)

    return fault


def drop_after(server: StandIn) -> Any:
    """Do what was asked, then break the connection before the answer."""

    def fault(handler: Any) -> bool:
        body = json.loads(server.requests[-1][3])
        server.post_jobs(body, handler.headers["Idempotency-Key"])
        return drop(handler)

    return fault


def test_every_request_is_signed_and_the_server_can_check_it(
    client: Client, server: StandIn
) -> None:
    client.jobs.submit(run=["echo", "ü"], name="a")
    client.jobs.list(state="queued", name="a b&c")
    assert [job.name for job in client.jobs.list()] == ["a"]
    assert all("Authorization" in headers for _, _, headers, _ in server.requests)


def test_a_wrong_key_is_refused_with_the_servers_error(server: StandIn) -> None:
    with Client(server.url, access_key=ACCESS_KEY, secret_key="other") as client:
        with pytest.raises(Unauthenticated, match="signature is wrong"):
            client.status()


def test_no_key_says_where_one_comes_from(server: StandIn) -> None:
    with Client(server.url) as client, pytest.raises(Unauthenticated) as caught:
        client.status()
    assert "windlass up" in caught.value.hint


def test_one_connection_serves_many_requests(client: Client, server: StandIn) -> None:
    client.status()
    first = client.http._connection
    client.status()
    assert client.http._connection is first is not None


def test_a_broken_submit_is_sent_again_with_the_same_key_and_another_signature(
    client: Client, server: StandIn
) -> None:
    server.faults = [drop_after(server), drop]
    job = client.jobs.submit(run=["true"])
    posts = [headers for verb, _, headers, _ in server.requests if verb == "POST"]
    assert len(posts) == 3
    assert len({headers["Idempotency-Key"] for headers in posts}) == 1
    assert len({headers["Authorization"] for headers in posts}) == 3
    assert list(server.jobs) == [job.id]


@pytest.mark.parametrize("sent", [b"", b'{"id": "ab', b"{}"])
def test_an_answer_that_is_cut_is_no_answer(client: Client, server: StandIn, sent: bytes) -> None:
    server.faults = [cut(sent)]
    job = client.jobs.submit(run=["true"])
    assert list(server.jobs) == [job.id]
    server.faults = [cut(sent)]
    with pytest.raises(Unreachable):
        client.jobs.restart(server.job("running")["id"])


def test_unavailable_and_full_disks_are_waited_out_for_as_long_as_the_server_says(
    client: Client, server: StandIn
) -> None:
    server.faults = [
        refuse(503, "unavailable", Retry_After="1"),
        refuse(507, "storage-full"),
    ]
    started = time.monotonic()
    client.jobs.submit(run=["true"])
    assert time.monotonic() - started >= 1.0
    assert len(server.jobs) == 1


def test_a_restart_is_not_sent_twice_when_the_first_may_have_arrived(
    client: Client, server: StandIn
) -> None:
    job = server.job("running")
    server.faults = [drop]
    with pytest.raises(Unreachable):
        client.jobs.restart(job["id"])
    assert len(server.paths("POST")) == 1


def test_retries_end_with_the_last_error(server: StandIn) -> None:
    http = Http(server.url, access_key=ACCESS_KEY, secret_key=SECRET_KEY, settle_seconds=2.0)
    server.faults = [refuse(503, "unavailable")] * 20
    with pytest.raises(Unavailable, match="later"):
        http.get("/status")
    assert 2 <= len(server.requests) < 6
    http.close()


def test_a_wrong_clock_is_corrected_once_from_the_servers(client: Client, server: StandIn) -> None:
    server.clock_offset_ms = 3_600_000
    assert client.status()["version"]
    assert client.status()["version"]
    assert len(server.requests) == 3


def test_nobody_there_is_unreachable_soon_and_names_the_next_step(home: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    waits: list[float] = []
    with Client(f"http://127.0.0.1:{port}", access_key="a", secret_key="b",
                patience_seconds=0.2) as client:  # fmt: skip
        client.http._sleep = waits.append
        with pytest.raises(Unreachable) as caught:
            client.status()
    assert sum(waits) < 1, "no wait is longer than its patience"
    assert str(port) in caught.value.message and "windlass up" in caught.value.hint


def test_a_local_server_that_came_back_on_another_port_is_found(
    server: StandIn, home: Path
) -> None:
    write_files(home, server.url)
    job = server.job("running")
    server.say(job["id"], "log", {"text": "one"})
    with Client() as client:
        stream = client.jobs.stream(job["id"])
        assert next(stream).json() == {"text": "one"}
        server.say(job["id"], "break", {})
        moved = StandIn()
        moved.jobs, moved.streams = server.jobs, server.streams
        server.close()
        write_files(home, moved.url)
        moved.finish(job["id"], "succeeded")
        assert [message.event for message in stream] == ["end"]
        assert client.jobs.get(job["id"]).state == "succeeded"
        assert client.url == moved.url
    moved.close()


def test_a_stream_that_is_left_before_its_first_message_is_closed(
    server: StandIn, home: Path
) -> None:
    """`studies.wait` of a study that is over left its connection to the collector."""
    write_files(home, server.url)
    job = server.job("running")
    with Client() as client, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with client.http.stream(f"/jobs/{job['id']}/stream") as stream:
            assert client.jobs.get(job["id"]).state == "running"
        del stream
        gc.collect()
    assert [each.message for each in told if each.category is ResourceWarning] == []


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://"])
def test_what_is_no_address_is_named(url: str, home: Any) -> None:
    with pytest.raises(InvalidInput, match="url:"):
        Http(url)


def test_errors_come_back_as_the_class_the_server_raised(client: Client, server: StandIn) -> None:
    with pytest.raises(NotFound, match="no job 'nope'"):
        client.jobs.get("nope")
    done = server.job("succeeded")
    with pytest.raises(Conflict, match="succeeded already"):
        client.jobs.stop(done["id"])


def test_a_ref_is_never_read_as_a_path(client: Client, server: StandIn) -> None:
    with pytest.raises(NotFound):
        client.jobs.get("../status?x=1#y")
    assert server.requests[-1][1] == "/api/v1/jobs/..%2Fstatus%3Fx%3D1%23y"


def test_a_proxys_error_page_is_no_bug_of_ours(server: StandIn) -> None:
    def page(handler: Any) -> bool:
        handler.answer(502, "<html>bad gateway</html>", "text/html")
        return True

    server.faults = [page] * 9
    http = Http(server.url, access_key=ACCESS_KEY, secret_key=SECRET_KEY, settle_seconds=0.1)
    with pytest.raises(Unavailable, match="502"):
        http.get("/status")
    http.close()


def test_server_sent_events_are_read_by_the_standard() -> None:
    lines = [
        b": a comment\n", b"id: 1\n", b"event: log\n", b"data: one\n", b"data: two\n", b"\n",
        b"data:x\r\n", b"\r\n", b"event: lonely\n", b"\n", b"id: 2\n", b"data: cut off\n",
    ]  # fmt: skip
    found = list(messages(lines))
    assert [(m.event, m.data, m.id) for m in found] == [
        ("log", "one\ntwo", "1"),
        ("message", "x", "1"),
    ]
