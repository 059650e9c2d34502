"""A Ray cluster, asked through the bridge: a process with Ray in it, started when it is needed and
again when it died. The server itself never imports Ray."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

BRIDGE = Path(__file__).with_name("bridge.py")
_START_SECONDS = 40.0
_SECONDS = 20.0
_SILENT_SECONDS = 10.0
"""So long after it did not answer the cluster is asked by nobody but who looks for it."""
_LINE_BYTES = 64 * 2**20
_STOP_SECONDS = 5.0


class RayFailed(Exception):
    """`unreachable`: the cluster did not answer, so nothing is known."""

    def __init__(self, message: str, *, unreachable: bool) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class Cluster:
    def __init__(
        self, where: Callable[[], Awaitable[str]], python: str, token_file: str = ""
    ) -> None:
        """`where`: asked for the address each time that a bridge is built."""
        self._where, self._python = where, python
        self._environment = environment(token_file)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: list[asyncio.Task[None]] = []
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._words: deque[str] = deque(maxlen=20)
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._is_ready = False
        self._silent_until = 0.0

    async def look(self, attempts: list[str], *, trying: bool = False) -> dict[str, Any]:
        """`trying`: also when the cluster did not answer a moment ago."""
        found: dict[str, Any] = await self.ask("look", trying=trying, attempts=attempts)
        return found

    async def ask(
        self, what: str, *, waits: float = _SECONDS, trying: bool = False, **given: Any
    ) -> Any:
        if self._is_silent() and not trying:
            raise RayFailed("the cluster did not answer a moment ago", unreachable=True)
        try:
            found = await self._ask(what, waits, given)
        except RayFailed as err:
            if err.unreachable:
                self._silent_until = time.monotonic() + _SILENT_SECONDS
            raise
        self._silent_until = 0.0
        return found

    def _is_silent(self) -> bool:
        """It did not answer a moment ago, or before, and somebody is just trying again."""
        tries = self._starting is not None and not self._starting.done()
        return (tries and self._silent_until > 0) or time.monotonic() < self._silent_until

    async def _ask(self, what: str, seconds: float, given: Mapping[str, Any]) -> Any:
        process = await self._bridge()
        assert process.stdin is not None
        self._number += 1
        number = self._number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(json.dumps({"id": number, "do": what, **given}).encode() + b"\n")
            await process.stdin.drain()
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            # It may hang for good: the next question gets a new one.
            _kill(process)
            raise RayFailed(
                f"the cluster did not answer within {seconds:g} s", unreachable=True
            ) from None
        except (ConnectionError, BrokenPipeError) as err:
            raise RayFailed(f"the bridge to Ray ended: {self._last()}", unreachable=True) from err
        finally:
            self._asked.pop(number, None)

    async def _bridge(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None and self._is_ready:
            return self._process
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._build(), name="build the bridge to Ray")
        return await asyncio.shield(self._starting)  # one for all who wait for it

    async def _build(self) -> asyncio.subprocess.Process:
        await self._end_bridge()
        self._words.clear()
        address = await self._where()
        ready = self._asked[0] = asyncio.get_running_loop().create_future()
        try:
            process = await asyncio.create_subprocess_exec(
                self._python, "-I", str(BRIDGE), address,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, cwd="/", start_new_session=True,
                env={**self._environment, "RAY_NUM_REDIS_GET_RETRIES": "3"}, limit=_LINE_BYTES,
            )  # fmt: skip
        except OSError as err:
            raise RayFailed(f"{self._python}: {err}", unreachable=True) from err
        self._process, self._is_ready = process, False
        self._reading = [
            asyncio.create_task(self._hear(process), name="hear the bridge to Ray"),
            asyncio.create_task(self._note(process), name="note what the bridge prints"),
        ]
        try:
            async with asyncio.timeout(_START_SECONDS):
                await ready
        except TimeoutError:
            _kill(process)
            raise RayFailed(
                f"no cluster answers at {address}: {self._last()}", unreachable=True
            ) from None
        except RayFailed as err:
            raise RayFailed(str(err), unreachable=True) from err
        finally:
            self._asked.pop(0, None)
        self._is_ready = True
        return process

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                told = json.loads(line)
                waiting = self._asked.get(told["id"])
                if waiting is None or waiting.done():
                    continue  # nobody waits any more
                if "failed" in told:
                    waiting.set_exception(RayFailed(told["failed"], unreachable=False))
                else:
                    waiting.set_result(told["answer"])
        finally:
            _kill(process)
            await process.wait()
            await asyncio.gather(*self._reading[1:], return_exceptions=True)  # its last words
            for waiting in self._asked.values():
                if not waiting.done():
                    waiting.set_exception(RayFailed(self._last(), unreachable=True))

    async def _note(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self._words.append(line.decode("utf-8", "replace").strip()[:500])

    def _last(self) -> str:
        """What it said of its end: the error's own line, which Ray often follows with advice."""
        told = [each for each in self._words if each]
        errors = [each for each in told if "Error" in each.split(":")[0] or "too old" in each]
        return (errors or told or ["the bridge ended without a word"])[-1]

    async def close(self) -> None:
        """The bridge ends; what runs in the cluster goes on."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
            self._starting = None
        await self._end_bridge()

    async def _end_bridge(self) -> None:
        process, self._process, self._is_ready = self._process, None, False
        if process is not None and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                _kill(process)
        await asyncio.gather(*self._reading, return_exceptions=True)
        self._reading = []


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def environment(token_file: str) -> dict[str, str]:
    """Ours, with every switch of Ray's set by us: a token that happens to lie in a user's home
    would else switch authentication on."""
    found = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    found["RAY_AUTH_MODE"] = "token" if token_file else "disabled"
    if token_file:
        found["RAY_AUTH_TOKEN_PATH"] = token_file
    found["RAY_USAGE_STATS_ENABLED"] = "0"
    return found
