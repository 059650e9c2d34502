"""R-S12, R-F33 on real sockets: who is slow on purpose, or sends too much, is dropped, and nobody
else notices."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from windlass.server.http.connections import Crowd, Room, serving
from windlass.server.http.limits import MIB, Rules
from windlass.server.settings import Settings
from windlass.testing import small_app

HEAD = b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Running:
    """A server in a thread, with little patience."""

    def __init__(self, app: Any, most: int = 200, files: int = 60_000, **patience: float) -> None:
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        config = serving(app, Settings(Path("home")), Room(most, files))
        self.kind: Any = config.http_protocol_class
        for name, value in patience.items():
            setattr(self.kind, name, value)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(
            target=lambda: asyncio.run(self.server.serve([self.listener])), daemon=True
        )
        self.thread.start()
        end = time.monotonic() + 60
        while not self.server.started:
            assert time.monotonic() < end, "it did not come up"
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def well(self) -> bool:
        answer = httpx.get(f"{self.url}/api/v1/health", trust_env=False, timeout=60)
        return answer.status_code == 200

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(120)
        self.listener.close()


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(app: Any, **options: Any) -> Running:
        started.append(Running(app, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def small(tmp_path: Path) -> small_app.SmallServer:
    return small_app.make(tmp_path, pause_seconds=0.5, bytes_per_second=10_000)


def answered(plug: socket.socket) -> bool:
    """Whether one whole answer came, and a good one."""
    held = b""
    while not held.endswith(b"}"):
        piece = plug.recv(65536)
        if not piece:
            return False
        held += piece
    return b"200 OK" in held


def ended(plug: socket.socket, seconds: float = 60) -> bytes:
    """What came until the server closed it."""
    plug.settimeout(seconds)
    held = b""
    try:
        while piece := plug.recv(65536):
            held += piece
    except ConnectionResetError:
        pass
    return held


def test_a_head_that_never_ends_is_given_up(run, small):
    server = run(small.app, head_seconds=2.0)
    silent, slow = server.connect(), server.connect()
    slow.sendall(HEAD)
    with silent, slow:
        for name in (b"a", b"b"):
            slow.sendall(b"X-" + name + b": 1\r\n")
        assert b" 408 " in ended(silent)
        assert b" 408 " in ended(slow)
    assert server.well()


def test_one_who_drips_a_head_gets_no_more_time_for_it(run, small):
    server = run(small.app, head_seconds=0.6)
    with server.connect() as plug:
        began = time.monotonic()
        plug.sendall(HEAD)
        with pytest.raises(OSError):
            while time.monotonic() - began < 60:
                plug.sendall(b"X: 1\r\n")
                time.sleep(0.05)
        assert time.monotonic() - began < 30


def test_empty_lines_do_not_keep_a_connection(run, small):
    """After an answer, blank lines would end the timer of the idle and begin none."""
    server = run(small.app, head_seconds=2.0)
    with server.connect() as plug:
        plug.sendall(HEAD + b"\r\n")
        assert answered(plug)
        plug.sendall(b"\r\n")
        assert b" 408 " in ended(plug)


def test_a_kept_connection_has_its_time_for_each_head_anew(run, small):
    server = run(small.app, head_seconds=4.0)
    with server.connect() as plug:
        for _ in range(5):  # longer than one head may take, all together
            plug.sendall(HEAD[:20])
            time.sleep(0.9)
            plug.sendall(HEAD[20:] + b"\r\n")
            assert answered(plug)


@pytest.mark.parametrize(
    "endless",
    [b"X-Long: " + b"a" * 4096, b"X: 1\r\n" * 600, b"a" * 4096],
    ids=["one", "many", "path"],
)
def test_a_head_without_end_is_cut_off(run, small, endless: bytes):
    server = run(small.app)
    sent = 0
    with server.connect() as plug:
        plug.sendall(b"GET /" if endless[:1] == b"a" else HEAD)
        try:
            for _ in range(1000):
                plug.sendall(endless)
                sent += len(endless)
        except OSError:
            pass
        told = ended(plug)
    assert sent < 4 * MIB
    assert not told or b" 431 " in told or b" 400 " in told or b" 413 " in told
    assert server.well()


@pytest.mark.parametrize("between", [b"X-Long: ", b"1;"], ids=["trailer", "extension"])
def test_what_frames_a_body_is_cut_off_too(run, small, between: bytes):
    """Parts of a message that no body's cap counts."""
    server = run(small.app)
    last = b"0\r\n" if between.startswith(b"X") else b""
    with server.connect() as plug:
        plug.sendall(
            b"POST /api/v1/open HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            + last + between
        )  # fmt: skip
        sent = 0
        try:
            for _ in range(2000):
                plug.sendall(b"a" * 4096)
                sent += 4096
        except OSError:
            pass
        told = ended(plug)
    assert sent < 7 * MIB
    assert not told or b" 431 " in told
    assert server.well()


def test_a_body_that_comes_too_slowly_is_given_up(run, small):
    server = run(small.app)
    head = (
        b"POST /api/v1/open HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100000\r\n\r\n"
    )
    with server.connect() as stops, server.connect() as drips:
        stops.sendall(head + b"{")
        drips.sendall(head)
        began = time.monotonic()
        try:
            while time.monotonic() - began < 30:
                drips.sendall(b" " * 100)
                time.sleep(0.05)  # 2 kB/s, and never a pause of half a second
        except OSError:
            pass
        assert time.monotonic() - began < 30, "each piece bought it more time"
        assert b" 422 " in ended(stops)
    assert server.well()


def test_a_body_over_its_cap_is_refused_while_it_comes(run, small):
    server = run(small.app)
    sent = 0
    with server.connect() as plug:
        plug.sendall(
            b"POST /api/v1/open HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
        try:
            for _ in range(1000):
                plug.sendall(piece)
                sent += 65536
        except OSError:
            pass
        told = ended(plug)
    assert b" 413 " in told or not told
    assert sent < 8 * MIB, "the cap is 1 MiB; the rest is what the sockets hold"


def test_many_parts_and_many_ranges_cost_nothing(run, small):
    server = run(small.app)
    parts = b"".join(b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n'
                     for _ in range(10_000))  # fmt: skip
    began = time.process_time()
    answer = httpx.post(
        f"{server.url}/api/v1/open", content=parts, trust_env=False,
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )  # fmt: skip
    assert answer.status_code == 422, "there are no forms here"
    ranges = "bytes=" + ",".join(f"{n}-" for n in range(4000))
    answer = httpx.get(
        f"{server.url}/api/v1/health", headers={"Range": ranges}, trust_env=False, timeout=60
    )
    assert answer.status_code == 200
    assert time.process_time() - began < 3


def test_a_reader_that_does_not_read_is_dropped(run):
    """What it was sent waits in a bounded buffer, and its sender is told to stop."""
    sent, over = [0], threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                sent[0] += 65536
                await asyncio.sleep(0)
                if (await _gone(receive)) is not None:
                    return
        finally:
            over.set()

    async def _gone(receive: Any) -> Any:
        try:
            async with asyncio.timeout(0.001):
                while (await receive())["type"] != "http.disconnect":
                    pass
                return True
        except TimeoutError:
            return None

    server = run(app, stall_seconds=1.0)
    with server.connect() as plug:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plug.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert over.wait(60), "it is still fed"
        assert sent[0] < 16 * MIB
    assert server.kind.crowd.count == 0 or server.kind.crowd.count < 2


def test_a_reader_that_is_merely_slow_is_not(run):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(40):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    server = run(app, stall_seconds=20.0)
    got = 0
    with server.connect() as plug:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        plug.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while got < 40 * 65536:
            piece = plug.recv(32768)
            assert piece, f"dropped after {got} bytes"
            got += len(piece)
            time.sleep(0.02)


def test_connections_are_bounded_and_one_address_leaves_room(run, small):
    server = run(small.app, most=40)
    held = [server.connect() for _ in range(60)]
    try:
        end = time.monotonic() + 60
        while server.kind.crowd.count < 30 and time.monotonic() < end:
            time.sleep(0.01)
        assert server.kind.crowd.count == 30, "three quarters of 40"
        assert b" 503 " in ended(held[-1])
    finally:
        for plug in held:
            plug.close()
    end = time.monotonic() + 60
    while server.kind.crowd.count and time.monotonic() < end:
        time.sleep(0.01)
    assert server.well()


def test_the_last_descriptors_are_the_servers_own(run, small):
    """However few connections there are: whatever else took the others."""
    server = run(small.app, files=0)
    with server.connect() as plug:
        plug.sendall(HEAD + b"\r\n")
        assert b" 503 " in ended(plug)
    assert server.kind.crowd.count == 0
    server.kind.files = 60_000
    assert server.well()


@pytest.mark.parametrize("limit", [64, 256, 1024, 20_000, 65_536])
def test_a_limit_on_files_is_shared_out(limit: int):
    room = Room.within(limit)
    assert room.files >= limit // 2 and limit - room.files >= min(200, limit // 2)
    assert room.most <= room.files, "and each may open a file"


def test_a_crowd_counts_by_address():
    crowd = Crowd(8, proxies=["10.0.0.9"])
    assert [crowd.enter("10.0.0.1") for _ in range(7)] == [True] * 6 + [False]
    assert crowd.enter("10.0.0.9") and crowd.enter("10.0.0.9")
    assert not crowd.enter("10.0.0.2"), "full"
    crowd.leave("10.0.0.1")
    assert crowd.enter("10.0.0.2")
    proxied = Crowd(8, proxies=["10.0.0.9"])
    assert all(proxied.enter("10.0.0.9") for _ in range(8)), "a proxy stands for many"


def test_what_strangers_send_does_not_fill_the_log(run, small, monkeypatch):
    server = run(small.app)
    logger = logging.getLogger("uvicorn.error")  # as it is here, whoever set it up before
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "disabled", False)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        for _ in range(40):
            with server.connect() as plug:
                plug.sendall(b"this is not HTTP\r\n\r\n")
                assert b" 400 " in ended(plug)
    finally:
        logger.setLevel(level)
    told = [each for each in records if "Invalid HTTP" in each.getMessage()]
    assert 0 < len(told) <= 20, "ten in a minute, and the minute may have turned"


def test_the_wall_is_where_the_rules_say():
    rules = Rules()
    assert rules.body_bytes == MIB and rules.pause_seconds <= 30 and rules.bytes_per_second > 0
