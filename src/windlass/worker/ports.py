"""Ports for the ranks: chosen by the kernel, held until just before the ranks start.

A held port is bound but does not listen: nobody can reach it, and nobody else is given it.
"""

from __future__ import annotations

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


class HeldPorts:
    def __init__(self, count: int) -> None:
        self._sockets: List[socket.socket] = [_bind() for _ in range(count)]
        self.numbers: List[int] = [each.getsockname()[1] for each in self._sockets]

    def release(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets = []


def _bind() -> socket.socket:
    """All addresses of both families at once, since frameworks listen on either."""
    if socket.has_ipv6:
        try:
            return _bound(socket.AF_INET6, "::")
        except OSError:
            pass
    return _bound(socket.AF_INET, "")


def _bound(family: int, address: str) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            # A framework that sets it too may take the port while it is still held.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind((address, 0))
    except OSError:
        opened.close()
        raise
    return opened
