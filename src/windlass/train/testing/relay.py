"""A wire that can be broken, between two members of a test."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any


class Relay:
    """Everything that goes to `target` goes through it."""

    def __init__(self, target: tuple[str, int], port: int = 0) -> None:
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", port))
        self.address: tuple[str, int] = self.listener.getsockname()[:2]
        self.pipes: list[socket.socket] = []
        self.connections = 0
        self.carried: Counter[str] = Counter()
        """Bytes of each way, by the name of its budget."""
        self.budget: int | None = None
        """After so many bytes towards the target the wire breaks, once."""
        self.back_budget: int | None = None
        self.threads: list[threading.Thread] = []
        self.begin(self._accept)

    def begin(self, what: Callable[..., None], *arguments: Any) -> None:
        self.threads.append(threading.Thread(target=what, args=arguments, daemon=True))
        self.threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            other = socket.create_connection(self.target)
            self.pipes += [one, other]
            self.connections += 1
            for way in ((one, other, "budget"), (other, one, "back_budget")):
                self.begin(self._pump, *way)

    def _pump(self, one: socket.socket, other: socket.socket, name: str) -> None:
        try:
            while data := one.recv(4096):
                self.carried[name] += len(data)
                left = getattr(self, name)
                if left is not None:
                    if len(data) >= left:
                        other.sendall(data[:left])
                        setattr(self, name, None)
                        self.cut()
                        return
                    setattr(self, name, left - len(data))
                other.sendall(data)
        except OSError:
            pass
        finally:
            for each in (one, other):
                _shut(each)

    def cut(self) -> None:
        for each in list(self.pipes):
            _shut(each)

    def close(self) -> None:
        _shut(self.listener)
        self.listener.close()
        self.cut()
        for thread in self.threads:
            thread.join(60)
        for each in self.pipes:
            each.close()


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
