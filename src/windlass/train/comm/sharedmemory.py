"""Tensors that several processes of one machine hold in common.

The memory is a file without a name (memfd): whoever knows the owner's pid and descriptor opens it
through /proc, and when the last process is gone so is the memory. Nothing is left to unlink,
however they end.

    bytes    0: a token, to be sure that it is the same memory
            16: numbers, 64 bits each: one for each slot (a worker), one for each tensor
          then: the tensors, each at a multiple of 64 bytes

A lock is a lock on one byte of the file: the kernel lets go of it when its holder dies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

_TOKEN = 16
_ALIGNED = 64
# struct flock of Linux on 64 bits: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


class Busy(Exception):
    """A lock was not to be had in time. `pid` holds it (0: nobody knows)."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


class SharedTensors:
    """Of the shapes and kinds of `like`. The first process makes the memory, with `like` in it;
    the others open `where` (its `where`). Raises OSError or ValueError when it is not there."""

    def __init__(self, like: Sequence[Tensor], slots: int, where: str | None = None) -> None:
        offset = _TOKEN + 8 * (slots + len(like))
        offsets = []
        for each in like:
            offset = -(-offset // _ALIGNED) * _ALIGNED
            offsets.append(offset)
            offset += each.numel() * each.element_size()
        size = max(offset, 1)
        pid, number, token = (0, 0, secrets.token_bytes(_TOKEN).hex())
        if where is None:
            self._fd = os.memfd_create("windlass-train")
            os.ftruncate(self._fd, size)
            pid, number = os.getpid(), self._fd
        else:
            told = where.split()
            pid, number, token = int(told[0]), int(told[1]), told[2]
            self._fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
        try:
            if os.fstat(self._fd).st_size != size:
                raise ValueError("it is of another size")
            self._map = mmap.mmap(self._fd, size)
            if where is None:
                self._map[:_TOKEN] = bytes.fromhex(token)
            elif self._map[:_TOKEN] != bytes.fromhex(token):
                raise ValueError("it is not the same memory")
        except BaseException:
            os.close(self._fd)
            raise
        self.where = f"{pid} {number} {token}"
        numbers = memoryview(self._map)[_TOKEN : _TOKEN + 8 * (slots + len(like))].cast("q")
        self.slots = numbers[:slots]
        self.versions = numbers[slots:]
        self.tensors = [
            self._view(each, offset) for each, offset in zip(like, offsets, strict=True)
        ]
        if where is None:
            for mine, first in zip(self.tensors, like, strict=True):
                mine.copy_(first)

    @contextmanager
    def lock(self, index: int, deadline_seconds: float) -> Iterator[None]:
        """One tensor for this process alone. Raises Busy at the deadline."""
        self._take(index, deadline_seconds)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, index)

    def close(self) -> None:
        """The memory itself goes with the last tensor that lies in it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, index: int, deadline_seconds: float) -> None:
        # Asked again and again instead of waited for: a wait in the kernel has no deadline.
        pause, ends = 5e-6, 0.0
        while True:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, index)
                return
            except BlockingIOError:
                now = time.monotonic()
                ends = ends or now + deadline_seconds
                if now >= ends:
                    raise Busy(self._holder(index)) from None
                time.sleep(pause)
                pause = min(pause * 2, 1e-3)

    def _holder(self, index: int) -> int:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, index, 1, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))
        return 0 if kind == fcntl.F_UNLCK else int(pid)

    def _view(self, like: Tensor, offset: int) -> Tensor:
        if like.numel() == 0:
            return torch.empty_like(like)
        flat = torch.frombuffer(self._map, dtype=like.dtype, count=like.numel(), offset=offset)
        return flat.view(like.shape)
