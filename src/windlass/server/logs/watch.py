"""Tells when files in a folder are written, without polling where the kernel can tell (inotify).

Elsewhere `wait` simply returns after a short while: the reader then looks by itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from pathlib import Path

_MODIFY, _CREATE, _MOVED_TO, _ONCE = 0x2, 0x100, 0x80, 0x80000000
_POLL_SECONDS = 0.2


class FolderWatch:
    """Wakes `wait` after a write in one of its folders. Only from the event loop's thread."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._watched: set[Path] = set()
        self._fd = _open()
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)

    def add(self, folder: Path) -> bool:
        """Watch a folder too. False when it is not there yet: then `wait` wakes once something
        comes where it, or the first folder above it that is missing too, is to be."""
        if folder in self._watched:
            return True
        if not self._watch(folder, _MODIFY | _CREATE | _MOVED_TO):
            if not self._await(folder):
                return False
            return self.add(folder)  # it came meanwhile
        self._watched.add(folder)
        self._changed.set()
        return True

    def _await(self, folder: Path) -> bool:
        """Whether it has come. Only for once: what is above it changes for others too."""
        for missing, above in zip((folder, *folder.parents), folder.parents, strict=False):
            if self._watch(above, _CREATE | _MOVED_TO | _ONCE):
                if not missing.is_dir():
                    return False
                return missing == folder or self._await(folder)
        return False

    def _watch(self, folder: Path, mask: int) -> bool:
        if self._fd >= 0:
            return int(_libc().inotify_add_watch(self._fd, os.fsencode(folder), mask)) >= 0
        return folder.is_dir()

    async def wait(self, seconds: float) -> None:
        """Until something was written, at most so long."""
        if self._fd < 0:
            seconds = min(seconds, _POLL_SECONDS)
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            pass
        self._changed.clear()

    def poke(self) -> None:
        self._changed.set()

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        try:
            while os.read(self._fd, 65536):
                pass
        except BlockingIOError:
            pass
        self._changed.set()


def _open() -> int:
    if sys.platform != "linux":
        return -1
    fd = int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    return fd


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
