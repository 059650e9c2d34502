"""The port of a member's service. It listens before the gang hears of it: a rank of a node that is
ahead waits in its queue until the service answers, instead of being refused."""

from __future__ import annotations

import socket

from windlass.worker.launch import Refused
from windlass.worker.ports import HeldPorts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Union

    from windlass.worker.ports import Sockets


class ServicePort:
    def __init__(
        self, host: str, ledger: Optional[str], sockets: Optional[Sockets] = None
    ) -> None:
        self._host = host
        self._held = HeldPorts(1, ledger, sockets)
        self.number = self._held.numbers[0]
        self._listener: Optional[socket.socket] = None
        self._trouble: Optional[Union[OSError, ValueError]] = None
        try:
            (self._listener,) = sockets(self._listen) if sockets else self._listen()
        except (OSError, ValueError) as err:
            self._trouble = err  # of no matter to a gang without services

    def take(self) -> int:
        """The socket that listens, on the node's own address alone; the caller's, once. Raises
        Refused."""
        if self._listener is None:
            raise Refused(
                "no service can listen on %s:%d: %s"
                % (self._host, self.number, self._trouble or "its port is closed")
            )
        listener, self._listener = self._listener, None
        return listener.detach()

    def turn_away(self) -> None:
        """No service will be here: whoever waits, or comes, is refused."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        self.turn_away()
        self._held.close()

    def _listen(self) -> List[socket.socket]:
        family, kind, protocol, _, address = socket.getaddrinfo(
            self._host, self.number, type=socket.SOCK_STREAM
        )[0]
        opened = socket.socket(family, kind, protocol)
        try:
            # It is still held, by us; once this one listens, nobody can share it any more.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(128)
        except OSError:
            opened.close()
            raise
        return [opened]
