"""The payload of a message, read by its receiver straight out of the sender's memory.

Through a socket the kernel copies a payload twice. Between processes of one machine the sender
lends it instead: the message says where it lies, and the receiver copies it once
(`process_vm_readv`), to where it belongs.

    sender                                    receiver
    takes a lease: a number in a cell
    header: where, which cell, what number ─► reads the memory, and then the cell
                                              the number is there: what was read is whole
    takes the memory back: the cell is 0      it is not: the message is none

Whether the receiver may (the same machine, the same user, no rule of the system against it) is
tried when the two connect: each says where a secret of its own lies, and the other reads it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import secrets
import threading
from collections.abc import Sequence
from typing import Any

LENT_BYTES = 1 << 16
"""From this size a payload is lent; below, the socket is as quick."""
_CELLS = 4096
_TOKEN_BYTES = 16
_AT_MOST = 1 << 28  # of one call
_VECTORS = 64  # of one call

Piece = tuple[int, int]
"""Address and bytes."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Lender:
    """This process's side: where its secret lies, and its leases. Threads may share it."""

    def __init__(self) -> None:
        self._token = ctypes.create_string_buffer(secrets.token_bytes(_TOKEN_BYTES), _TOKEN_BYTES)
        self._cells = (ctypes.c_uint64 * _CELLS)()  # never given back while the process lives
        self._free = list(range(_CELLS))
        self._numbers = itertools.count(secrets.randbits(48) + 1)  # no two leases have the same
        self._lock = threading.Lock()

    def told(self) -> list[Any]:
        """For the other side, which tries to read it: process, address, secret."""
        return [os.getpid(), ctypes.addressof(self._token), self._token.raw.hex()]

    def lease(self) -> Lease | None:
        """None when all are taken."""
        with self._lock:
            if not self._free:
                return None
            at = self._free.pop()
            number = next(self._numbers)
        self._cells[at] = number
        return Lease(self, at, ctypes.addressof(self._cells) + 8 * at, number)

    def end(self, at: int) -> None:
        self._cells[at] = 0
        with self._lock:
            self._free.append(at)


class Lease:
    """While it lasts, what was lent may be read. Ends by `end`, or with the object."""

    __slots__ = ("_at", "_lender", "address", "number")

    def __init__(self, lender: Lender, at: int, address: int, number: int) -> None:
        self._lender: Lender | None = lender
        self._at = at
        self.address = address
        self.number = number

    def end(self) -> None:
        lender, self._lender = self._lender, None
        if lender is not None:
            lender.end(self._at)

    def __del__(self) -> None:
        self.end()


class Borrower:
    """The memory of another process, as this one may read it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @classmethod
    def of(cls, told: Any) -> Borrower | None:
        """What the other side told of itself; None when its memory cannot be read."""
        if _READ is None or not isinstance(told, list) or len(told) != 3:
            return None
        pid, address, token = told
        if type(pid) is not int or type(address) is not int or pid <= 0 or address <= 0:
            return None
        found = cls(pid)
        mine = ctypes.create_string_buffer(_TOKEN_BYTES)
        try:
            found._copy(address, ctypes.addressof(mine), _TOKEN_BYTES)
        except OSError:
            return None
        return found if mine.raw.hex() == token else None

    def read(self, pieces: Sequence[Piece], into: Sequence[Piece], cell: int, number: int) -> None:
        """All of `pieces`, one after the other, to all of `into`, which is as long. Raises
        OSError when it is gone, ValueError when it was taken back meanwhile."""
        now = ctypes.c_uint64()
        last = (ctypes.addressof(now), 8)
        if not self._copied_at_once([*pieces, (cell, 8)], [*into, last]):
            self._copy_all(pieces, into)
            self._copy(cell, last[0], 8)
        if now.value != number:
            raise ValueError("what was lent was taken back")

    def _copied_at_once(self, pieces: Sequence[Piece], into: Sequence[Piece]) -> bool:
        """In one call, which copies in the order of the pieces: the cell, the last, is read when
        all before it is here. False: it is too much for one, or came in parts."""
        assert _READ is not None
        size = sum(size for _, size in pieces)
        if size > _AT_MOST or max(len(pieces), len(into)) > _VECTORS:
            return False
        here = (_Vector * len(into))(*(_Vector(*each) for each in into))
        there = (_Vector * len(pieces))(*(_Vector(*each) for each in pieces))
        count: int = _READ(self.pid, here, len(into), there, len(pieces), 0)
        return count == size

    def _copy_all(self, pieces: Sequence[Piece], into: Sequence[Piece]) -> None:
        targets = iter(into)
        target, room = next(targets, (0, 0))
        for piece, size in pieces:
            address = piece
            while size:
                while not room:
                    target, room = next(targets)
                some = min(size, room, _AT_MOST)
                self._copy(address, target, some)
                address, size = address + some, size - some
                target, room = target + some, room - some

    def _copy(self, source: int, target: int, size: int) -> None:
        assert _READ is not None
        done = 0
        while done < size:
            here = _Vector(target + done, size - done)
            there = _Vector(source + done, size - done)
            count = _READ(self.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
            if count <= 0:
                number = ctypes.get_errno()
                raise OSError(number, f"process {self.pid}: {os.strerror(number)}")
            done += count


def _find() -> Any:
    try:
        found = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (AttributeError, OSError):
        return None  # another system
    found.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong,
        ctypes.c_ulong,
    ]  # fmt: skip
    found.restype = ctypes.c_ssize_t
    return found


_READ = _find()
