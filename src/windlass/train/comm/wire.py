"""Small messages on a stream: a line of JSON, then as many bytes as it says.

For what is rare and small (who is here, where, results). Parameters go through `transport`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Iterator
from typing import Any

LONGEST_LINE = 1 << 20
LARGEST_PAYLOAD = 1 << 31
CHALLENGE_BYTES = 32


def pack(header: dict[str, Any], payload: bytes = b"") -> bytes:
    return json.dumps({**header, "n": len(payload)}).encode() + b"\n" + payload


class Unpacker:
    """Feed bytes, get whole messages; none with a payload over `largest`."""

    def __init__(self, largest: int = LARGEST_PAYLOAD) -> None:
        self.largest = largest
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """One by one: `largest` may be another after a message, whose payload may have come along
        with it. Raises ValueError on what is no message of ours."""
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            header = json.loads(self._buffer[:end])
            size = header["n"]
            if not isinstance(size, int) or not 0 <= size <= self.largest:
                raise ValueError(f"a payload of {size!r} bytes")
            if len(self._buffer) < end + 1 + size:
                break
            payload = bytes(self._buffer[end + 1 : end + 1 + size])
            del self._buffer[: end + 1 + size]
            yield header, payload
        if end < 0 and len(self._buffer) > LONGEST_LINE:
            raise ValueError("a line without an end")


def challenge() -> str:
    return secrets.token_hex(CHALLENGE_BYTES)


def proof(secret: bytes, question: str) -> str:
    """That one knows the group's secret, without saying it."""
    return hmac.new(secret, question.encode(), hashlib.sha256).hexdigest()


def proven(secret: bytes, question: str, answer: Any) -> bool:
    return isinstance(answer, str) and hmac.compare_digest(proof(secret, question), answer)


def without_delay(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
