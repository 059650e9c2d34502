"""A TCP proxy that cuts connections where a test wants it, in a thread of its own.

with Proxy(socket_path) as proxy:
    proxy.cut_after(120, "up")      # the next 120 bytes to the server pass, then a reset
    proxy.cut_after(40, "down")     # the same for bytes from the server
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self


class Proxy:
    """Listens on a loopback port, passes everything on to a Unix socket."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._left: dict[str, int | None] = {"up": None, "down": None}
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0
        self.cuts = 0
        self.passed = {"up": 0, "down": 0}

    def cut_after(self, count: int, direction: str) -> None:
        """Once; then whole connections pass again."""
        self._left[direction] = count

    def turn_to(self, target: Path) -> None:
        """New connections go there; those that are open stay what they are."""
        self._target = target

    def heal(self) -> None:
        self._left = {"up": None, "down": None}

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stop.wait()
        server.close()
        for writer in [*self._open]:
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            upstream, up = await asyncio.open_unix_connection(str(self._target))
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, up}
        try:
            await asyncio.gather(
                self._pump(reader, up, "up", writer), self._pump(upstream, writer, "down", up)
            )
        finally:
            self._open -= {writer, up}
            writer.transport.abort()
            up.transport.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        direction: str,
        other: asyncio.StreamWriter,
    ) -> None:
        try:
            while data := await source.read(65536):
                left = self._left[direction]
                if left is not None:
                    data, self._left[direction] = data[:left], left - min(left, len(data))
                sink.write(data)
                await sink.drain()
                self.passed[direction] += len(data)
                if left is not None and self._left[direction] == 0:
                    self._left[direction] = None
                    self.cuts += 1
                    break
        except OSError:
            pass
        # What was passed on must arrive before the end does, so close there, reset here.
        sink.close()
        other.transport.abort()
