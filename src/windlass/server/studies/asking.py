"""Parameters for the next trial: our own samplers here, Optuna's in a process of its own.

The process (`python -m windlass.tune`) is started by the first question and ended when nobody has
asked for a while: the server neither waits for it nor grows by it. It keeps nothing in mind, so
it may be killed at any time: the question is asked again and has the same answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from windlass.core.errors import Unavailable
from windlass.core.studies import OUR_OWN, StudySpec
from windlass.tune.history import Past
from windlass.tune.plan import own
from windlass.tune.samplers import question

log = logging.getLogger("windlass.studies")

IDLE_SECONDS = 30.0
PATIENCE_SECONDS = 120.0
"""For one answer; a process that takes longer is killed and asked once more."""
_LINE_BYTES = 2**24


class NoAnswer(Exception):
    """The sampler refused: asking again would not help."""


class Sampling:
    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: dict[asyncio.Task[int], asyncio.subprocess.Process] = {}

    @property
    def pid(self) -> int | None:
        """Of the process, if it runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def ask(
        self, spec: StudySpec, number: int, history: Sequence[Past], warm: Sequence[Past]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """(parameters, what the sampler wants to find again). Raises NoAnswer, Unavailable."""
        if spec.sampler.kind in (None, *OUR_OWN):
            return own(spec, number), {}
        line = json.dumps(question(spec, number, history, warm)).encode() + b"\n"
        async with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            for turn in (1, 2):
                try:
                    answer = await asyncio.wait_for(self._exchange(line), PATIENCE_SECONDS)
                    break
                except (TimeoutError, OSError, EOFError, ValueError) as err:
                    log.warning("the sampler's process gave no answer: %s", err or "too late")
                    self._kill()
                    if turn == 2:
                        raise Unavailable("the sampler's process gives no answer") from err
            self._wait_to_end()
        if "error" in answer:
            hint = "; pip install 'windlass[tune]'" if answer.get("missing") else ""
            raise NoAnswer(f"the sampler {spec.sampler.kind} failed: {answer['error']}{hint}")
        return dict(answer["params"]), dict(answer["attrs"])

    async def _exchange(self, line: bytes) -> dict[str, Any]:
        if self.pid is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "windlass.tune",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, limit=_LINE_BYTES,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(line)
        await process.stdin.drain()
        answer = await process.stdout.readline()
        if not answer:
            raise EOFError("it ended")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _wait_to_end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_seconds, self._end)

    def _end(self) -> None:
        """Its input ends, and with it the process; whoever asks next starts another."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            self._leave(process)

    def _leave(self, process: asyncio.subprocess.Process) -> None:
        """Waits for its end, apart: a process that nobody waits for stays as a shadow."""
        task = asyncio.get_running_loop().create_task(process.wait())
        self._leaving[task] = process
        task.add_done_callback(lambda done: self._leaving.pop(done, None))

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._leave(process)
            _kill(process)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._kill()
        leaving = dict(self._leaving)
        for process in leaving.values():
            _kill(process)
        await asyncio.gather(*leaving, return_exceptions=True)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
