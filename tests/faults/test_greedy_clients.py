"""Who sends a head without end, or takes every connection there is: it costs the server nothing
of note, and what it launches, writes and logs goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import psutil
import pytest

from windlass.testing.platform import Platform, wait_for

FILES = 512
MB = 1_000_000
HEAD = b"POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = HEAD + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    made = Platform(tmp_path_factory.mktemp("greedy") / "home")
    made.before = ("prlimit", f"--nofile={FILES}")
    with made as found:
        yield found


def memory(platform: Platform) -> int:
    assert platform.process is not None
    return int(psutil.Process(platform.process.pid).memory_info().rss)


def pour(platform: Platform, start: bytes, total: int = 64 * MB) -> tuple[int, bytes]:
    """How much of it the server took, and what it said."""
    sent, told = 0, b""
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as plug:
        try:
            plug.sendall(start)
            while sent < total:
                plug.sendall(b"a" * 65536)
                sent += 65536
        except OSError:
            pass
        try:
            while piece := plug.recv(65536):
                told += piece
        except OSError:
            pass
    return sent, told


@pytest.mark.parametrize("start", [HEAD + b"X-A: ", b"GET /", CHUNKED + b"X-A: "],
                         ids=["header", "path", "trailer"])  # fmt: skip
def test_a_head_of_64_mb_takes_no_memory(platform: Platform, start: bytes):
    pour(platform, start, MB)  # what is loaded at the first refusal stays
    before = memory(platform)
    for _ in range(4):
        sent, told = pour(platform, start)
        assert sent < 16 * MB, "it was cut off"
        assert not told or b" 431 " in told or b" 400 " in told
    assert memory(platform) - before < 24 * MB
    assert platform.call("GET", "/health").status_code == 200


def refused(plug: socket.socket) -> bool:
    try:
        return b" 503 " in plug.recv(4096)
    except (TimeoutError, OSError):
        return False


def test_a_crowd_of_strangers_does_not_stop_the_servers_own_work(platform: Platform):
    """More of them than it has files, from many addresses: the next job starts, its end is
    written, its output kept."""
    gate = platform.gate()
    first = platform.witness("until", gate, name="first")
    wait_for(lambda: platform.said(first, "began"), 60, "the first job runs")
    second = platform.witness("exit", 0, name="second", after=["first"])
    plugs = []
    try:
        for n in range(FILES + 100):
            plug = socket.socket()
            plug.bind((f"127.0.1.{n % 8 + 1}", 0))
            plug.settimeout(5)
            plug.connect(("127.0.0.1", platform.port))
            plugs.append(plug)
        assert refused(plugs[-1]), "politely"
        assert platform.process is not None
        assert psutil.Process(platform.process.pid).num_fds() < FILES - 100
        gate.touch()
        wait_for(lambda: platform.said(second, "ended"), 60, "the second job ran")
    finally:
        for plug in plugs:
            plug.close()
    assert platform.wait(first).state == "succeeded"
    assert platform.wait(second).state == "succeeded"
    assert "Too many open files" not in platform.log()
    assert "Traceback" not in platform.log()
