"""What this machine's links do: latency by ping, rate by bulk, both ways at once, and how much of
a transfer hides behind compute. Between this process and one that it starts, over loopback.

Workers on other machines have other links: `link=` says how fast they are. Overlap is measured
either way, because it alone can turn a plan from data parallel into a pipeline.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windlass.core.errors import TrainingFailed
from windlass.train.planning.links import SYNC_FACTOR, Link

_SECONDS = 15.0
_PIECE = 1 << 20
_BULK = 48 * _PIECE
_PINGS, _REPEATS = 50, 3
HIDDEN = 0.5
"""Of the shorter of compute and transfer: from here on they overlap."""


def measure_link() -> Link:
    """One way of a link of this machine. Takes about a second."""
    with _other() as connection:
        round_trip = statistics.median(_timed(lambda: _send(connection, 1)) for _ in range(_PINGS))
        _send(connection, _BULK)
        one_way = _BULK / statistics.median(
            _timed(lambda: _send(connection, _BULK)) for _ in range(_REPEATS)
        )
        with _other() as second:
            both = _BULK / statistics.median(
                _timed(lambda: _together(lambda: _send(connection, _BULK),
                                         lambda: _fetch(second, _BULK)))
                for _ in range(_REPEATS)
            )  # fmt: skip
    # A ring moves 2 (m-1)/m of the parameters each way; both ways at once may halve the rate.
    factor = min(SYNC_FACTOR, max(2.0, 2.0 * one_way / both))
    words = f"measured {one_way / 1e9:.3g}GB"
    return Link(one_way, words, latency_s=round_trip / 2, sync_factor=round(factor, 2))


def measure_overlap(compute: Callable[[], object]) -> float:
    """How much of the shorter of `compute()` and an equally long transfer is hidden behind the
    other: 0 none, 1 all."""
    compute()
    alone = statistics.median(_timed(compute) for _ in range(_REPEATS))
    with _other() as connection:
        _send(connection, _BULK)
        rate = _BULK / _timed(lambda: _send(connection, _BULK))
        size = max(_PIECE, int(rate * alone))
        sent = statistics.median(_timed(lambda: _send(connection, size)) for _ in range(_REPEATS))
        both = statistics.median(
            _timed(lambda: _together(compute, lambda: _send(connection, size)))
            for _ in range(_REPEATS)
        )
    return min(1.0, max(0.0, (alone + sent - both) / max(min(alone, sent), 1e-9)))


def _timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return max(time.perf_counter() - started, 1e-9)


def _together(one: Callable[[], object], other: Callable[[], object]) -> None:
    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    one()
    thread.join(_SECONDS)


# -- the two ends -----------------------------------------------------------------------------


@contextmanager
def _other() -> Iterator[socket.socket]:
    """A connection to a process of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(_SECONDS)
    word = os.urandom(16).hex()
    program = "from windlass.train.planning.probes import answer; answer()"
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert child.stdin is not None
        child.stdin.write(f"{listener.getsockname()[1]} {word}\n".encode())
        child.stdin.close()
        connection = _admitted(listener, word)
        try:
            yield connection
        finally:
            connection.close()
    except OSError as err:
        raise TrainingFailed(f"measuring the links: {err}") from err
    finally:
        listener.close()
        child.kill()
        child.wait()


def _admitted(listener: socket.socket, word: str) -> socket.socket:
    """The first that says the word; others have no business here."""
    while True:
        connection, _ = listener.accept()
        connection.settimeout(_SECONDS)
        if _exactly(connection, len(word)) == word.encode():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        connection.close()


def answer() -> None:
    """The other process: takes what is sent, sends what is asked for, until it is closed."""
    port, word = sys.stdin.readline().split()
    connection = socket.create_connection(("127.0.0.1", int(port)), timeout=_SECONDS)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(word.encode())
    piece = bytes(_PIECE)
    while True:
        try:
            order = _exactly(connection, 9)
        except OSError:
            return
        size = int.from_bytes(order[1:], "little")
        if order[:1] == b"<":
            _drain(connection, size)
            connection.sendall(b".")
        else:
            for start in range(0, size, _PIECE):
                connection.sendall(piece[: min(_PIECE, size - start)])


def _send(connection: socket.socket, size: int) -> None:
    piece = bytes(_PIECE)
    connection.sendall(b"<" + size.to_bytes(8, "little"))
    for start in range(0, size, _PIECE):
        connection.sendall(piece[: min(_PIECE, size - start)])
    _exactly(connection, 1)


def _fetch(connection: socket.socket, size: int) -> None:
    connection.sendall(b">" + size.to_bytes(8, "little"))
    _drain(connection, size)


def _drain(connection: socket.socket, size: int) -> None:
    buffer = bytearray(_PIECE)
    while size:
        got = connection.recv_into(buffer, min(size, _PIECE))
        if not got:
            raise ConnectionError("the other side is gone")
        size -= got


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionError("the other side is gone")
        found += more
    return found
