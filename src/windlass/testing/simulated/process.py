"""A server's process: it can be killed at any of its points, or stopped and woken up later.

A point is where a process waits for the world: before and after a commit, at a read, before and
after an effect on an engine. There tasks switch, and there a process may die. A dead process does
nothing more: all its tasks are cancelled, and a task that reaches a point after that is cancelled
there, before any effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_current: ContextVar[Process | None] = ContextVar("process", default=None)


class Points:
    """Numbers every point of a run, and says at which one the process dies."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.crash_at: int | None = None

    def dies(self, kind: str) -> bool:
        self.kinds.append(kind)
        return self.crash_at == len(self.kinds) - 1


class Process:
    def __init__(
        self,
        name: str,
        points: Points,
        chance: random.Random,
        *,
        slow: float,
        died: Callable[[Process, str], None],
    ) -> None:
        self.name = name
        self.alive = True
        self._points = points
        self._chance = chance
        self._slow = slow
        self._died = died
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order: a set's order is chance
        self._stopped: asyncio.Future[None] | None = None

    def spawn(self, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """A task of this process; tasks that it makes belong to the process too."""
        context = copy_context()
        context.run(_current.set, self)
        return asyncio.get_running_loop().create_task(work, name=name, context=context)

    async def point(self, kind: str) -> None:
        if not self.alive:
            raise asyncio.CancelledError
        if self._points.dies(kind):
            self.crash(kind)
            raise asyncio.CancelledError
        await asyncio.sleep(self._chance.random() * self._slow)
        while self._stopped is not None:
            await asyncio.shield(self._stopped)
        if not self.alive:
            raise asyncio.CancelledError

    def crash(self, where: str = "") -> None:
        """kill -9."""
        if not self.alive:
            return
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        self._died(self, where)

    def stop(self) -> None:
        """SIGSTOP: it does nothing more, and does not know it."""
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_future()

    def go_on(self) -> None:
        """SIGCONT."""
        if self._stopped is not None:
            self._stopped.set_result(None)
            self._stopped = None

    def own(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))


def outside(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task of no server, whoever makes it: what an engine started outlives its caller."""
    context = copy_context()
    context.run(_current.set, None)
    return asyncio.get_running_loop().create_task(work, context=context)


def belonging(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **options: Any
) -> asyncio.Task[T]:
    """The loop's task factory: a task belongs to the process that makes it."""
    task = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    process = context.get(_current) if context is not None else _current.get()
    if process is not None:
        process.own(task)
    return task
