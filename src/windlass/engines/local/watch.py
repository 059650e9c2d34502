"""Told by the kernel when a process is gone: nobody asks again and again.

A pidfd becomes readable at the death of its process, ours or not, child or adopted. Where there
is none, a thread waits in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import psutil

from windlass.engines.processes import Identity, collect, open_pidfd

Key = TypeVar("Key", bound=Hashable)


class Watch(Generic[Key]):
    """Call only from the event loop's thread. `gone(key)` is called there too, once for each
    process watched, also when it was gone before the watch began."""

    def __init__(self, gone: Callable[[Key], None]) -> None:
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._watched: dict[Key, tuple[Identity, int | None]] = {}

    def add(self, key: Key, identity: Identity) -> None:
        """Watch this process under `key`; a process watched there before is let go."""
        if key in self._watched and self._watched[key][0] == identity:
            return
        self.remove(key)
        try:
            pidfd = open_pidfd(identity)
        except NotImplementedError:
            self._watched[key] = (identity, None)
            threading.Thread(target=self._wait, args=(key, identity), daemon=True).start()
            return
        if pidfd is None:
            self._loop.call_soon(self._gone, key)
            return
        self._watched[key] = (identity, pidfd)
        self._loop.add_reader(pidfd, self._readable, key)

    def remove(self, key: Key) -> None:
        _, pidfd = self._watched.pop(key, (None, None))
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        for key in list(self._watched):
            self.remove(key)

    def __contains__(self, key: Key) -> bool:
        return key in self._watched

    def _readable(self, key: Key) -> None:
        _, pidfd = self._watched[key]
        if pidfd is not None:
            collect(pidfd)
        self.remove(key)
        self._gone(key)

    def _wait(self, key: Key, identity: Identity) -> None:
        with contextlib.suppress(psutil.Error):
            psutil.Process(identity.pid).wait()
        # The loop may be closed by now: then nobody listens any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._waited, key, identity)

    def _waited(self, key: Key, identity: Identity) -> None:
        if self._watched.get(key) == (identity, None):
            self.remove(key)
            self._gone(key)
