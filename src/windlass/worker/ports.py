"""Ports for the ranks: held by the worker, given to nobody else.

A held port is bound but does not listen: nobody can reach it, and nobody else can take it.
A framework that sets SO_REUSEADDR or SO_REUSEPORT can listen on it all the same, so for those
(`ports_stay_held`, see `contracts/base.py`) it is held as long as the attempt lives:

    worker   bind ───────────────────────────────────────────────── close
    rank                     bind, listen ───────────── close

The others need it free. It is released just before they start, and until they take it anybody
could. So it is one that the kernel gives to nobody who asks for just any port (below the range
of those), and it is claimed in a ledger that the workers of a home share: a file for each port,
locked as long as the worker that claimed it lives.
"""

from __future__ import annotations

import fcntl
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    Sockets = Callable[[Callable[[], List[socket.socket]]], List[socket.socket]]

_TRIES = 10000
_LOWEST, _HIGHEST = 20000, 29999
"""Above those that services like to have, below Kubernetes' node ports."""
_GUESSES = 64
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


class HeldPorts:
    """`count` ports. Raises OSError when there are no more."""

    def __init__(
        self, count: int, ledger: Optional[str] = None, sockets: Optional[Sockets] = None
    ) -> None:
        """`sockets` makes them elsewhere: in a network that nobody else is in."""
        self._ledger = _folder(ledger)
        self._sockets: List[socket.socket] = []
        self._claims: List[int] = []
        if sockets is not None:
            self._sockets = sockets(lambda: [_bind() for _ in range(count)])
        # What others have claimed stays bound until we are done, or we would be offered it again.
        passed_over: List[socket.socket] = []
        try:
            while len(self._sockets) < count:
                opened = _bind()
                (self._sockets if self._claim(opened) else passed_over).append(opened)
                if len(passed_over) > _TRIES:
                    raise OSError("no port is free: %d are claimed by others" % _TRIES)
        except OSError:
            self.close()
            raise
        finally:
            for each in passed_over:
                each.close()
        self.numbers: List[int] = [each.getsockname()[1] for each in self._sockets]

    def release(self) -> None:
        """Let the ranks bind them; no other worker is given them yet."""
        for each in self._sockets:
            each.close()
        self._sockets = []

    def close(self) -> None:
        """Nothing of ours needs them any more."""
        self.release()
        for claim in self._claims:
            os.close(claim)
        self._claims = []

    def _claim(self, opened: socket.socket) -> bool:
        if self._ledger is None:
            return True
        path = os.path.join(self._ledger, str(opened.getsockname()[1]))
        claim = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(claim)
            return False
        self._claims.append(claim)
        return True


def _folder(ledger: Optional[str]) -> Optional[str]:
    if ledger is None:
        return None
    try:
        os.makedirs(ledger, 0o700, exist_ok=True)
    except OSError:
        # Better a small risk than no job: this folder's disk may be read-only.
        return None
    return ledger


def _bind() -> socket.socket:
    highest = min(_HIGHEST, _first_of_the_kernel() - 1)
    for _ in range(_GUESSES if highest - _LOWEST > 1000 else 0):
        try:
            chance = int.from_bytes(os.urandom(4), "big")
            return _on_all_addresses(_LOWEST + chance % (highest - _LOWEST + 1))
        except OSError:
            continue
    return _on_all_addresses(0)  # so many are taken: one that the kernel chooses


def _first_of_the_kernel() -> int:
    try:
        with open(_RANGE) as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _on_all_addresses(number: int) -> socket.socket:
    """Of both families at once, since frameworks listen on either."""
    if socket.has_ipv6:
        try:
            return _bound(socket.AF_INET6, "::", number)
        except OSError:
            pass
    return _bound(socket.AF_INET, "", number)


def _bound(family: int, address: str, number: int) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind((address, number))
        # Without these two on both sides nobody could listen on a port that is still held. Only
        # now: before, the port of another worker that holds it so could be had a second time.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        opened.close()
        raise
    return opened
