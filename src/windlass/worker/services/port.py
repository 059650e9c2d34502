"""The port of a member's service: known to the whole gang before anything listens on it."""

from __future__ import annotations

import socket

from windlass.worker.launch import Refused
from windlass.worker.ports import HeldPorts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


class ServicePort:
    def __init__(self, host: str, ledger: Optional[str]) -> None:
        self._host = host
        self._held = HeldPorts(1, ledger)
        self.number = self._held.numbers[0]

    def listen(self) -> int:
        """A socket that listens, on the node's own address alone; the caller's. Raises Refused."""
        opened = None
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self._host, self.number, type=socket.SOCK_STREAM
            )[0]
            opened = socket.socket(family, kind, protocol)
            # It is still held, by us; once this one listens, nobody can share it any more.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(128)
        except OSError as err:
            if opened is not None:
                opened.close()
            raise Refused(
                "no service can listen on %s:%d: %s" % (self._host, self.number, err)
            ) from err
        return opened.detach()

    def close(self) -> None:
        self._held.close()
