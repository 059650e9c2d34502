"""A light load generator: requests signed beforehand, over sockets that stay open.

What is measured is the server, so the client must cost little: one process, raw HTTP/1.1, no
parsing beyond the status and the length. `Caller` sends one request at a time and times it;
`flood` keeps many connections busy from a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.signing import sign
from windlass.testing.platform import Platform

SUBMIT = {"spec": {"run": ["python", "train.py", "--lr", "0.1"], "workers": 2, "hold": True}}
"""A held job: only the way in is measured."""


def signed(
    platform: Platform, key: Mapping[str, str], method: str, path: str, body: Any = None
) -> bytes:
    """A whole request, ready to send within the next minutes."""
    content = b"" if body is None else json.dumps(body).encode()
    address = f"{platform.url}/api/v1{path}"
    headers = {"Host": f"127.0.0.1:{platform.port}"}
    if content:
        headers["Content-Type"] = "application/json"
    if method == "POST":
        headers["Idempotency-Key"] = secrets.token_hex(16)
    headers |= sign(
        method, address, headers, content, key["access_key"], key["secret_key"],
        time.time_ns() // 1_000_000,
    )  # fmt: skip
    headers["Content-Length"] = str(len(content))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} /api/v1{path} HTTP/1.1\r\n{head}\r\n".encode() + content


class Caller:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: bytes) -> tuple[float, bytes]:
        """Seconds until the whole answer was there, and its body. Raises unless it is 2xx."""
        began = time.perf_counter()
        self._socket.sendall(request)
        heard = b""
        while True:
            heard += self._socket.recv(1 << 20)
            end = heard.find(b"\r\n\r\n")
            if end >= 0 and len(heard) >= end + 4 + _length(heard[:end]):
                break
        spent = time.perf_counter() - began
        if heard[9:10] != b"2":
            raise RuntimeError(heard[:2000])
        return spent, heard[end + 4 :]

    def close(self) -> None:
        self._socket.close()


def flood(port: int, requests: Sequence[bytes], connections: int) -> float:
    """Requests accepted per second, from a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_flood, args=(port, list(requests), connections, there))
    process.start()
    try:
        found = here.recv()
    finally:
        process.join(60)
    if isinstance(found, str):
        raise RuntimeError(found)
    return float(found)


def _flood(port: int, requests: list[bytes], connections: int, pipe: Any) -> None:
    import uvloop

    try:
        pipe.send(uvloop.run(_run(port, requests, connections)))
    except Exception as err:
        pipe.send(repr(err))


async def _run(port: int, requests: list[bytes], connections: int) -> float:
    loop = asyncio.get_running_loop()
    waiting = iter(requests)
    over: asyncio.Future[None] = loop.create_future()
    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(lambda: _Client(waiting, over), "127.0.0.1", port)
        clients.append(client)
    began = time.perf_counter()
    left = len(clients)

    def ended() -> None:
        nonlocal left
        left -= 1
        if left == 0 and not over.done():
            over.set_result(None)

    for client in clients:
        client.ended = ended
        client.next()
    await over
    return len(requests) / (time.perf_counter() - began)


class _Client(asyncio.Protocol):
    def __init__(self, waiting: Any, over: asyncio.Future[None]) -> None:
        self._waiting = waiting
        self._over = over
        self._heard = b""
        self.ended: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def next(self) -> None:
        request = next(self._waiting, None)
        if request is None:
            self.ended()
            self._transport.close()
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        end = self._heard.find(b"\r\n\r\n")
        if end < 0 or len(self._heard) < end + 4 + _length(self._heard[:end]):
            return
        if self._heard[9:10] != b"2" and not self._over.done():
            self._over.set_exception(RuntimeError(repr(self._heard[:2000])))
        self._heard = b""
        self.next()


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
