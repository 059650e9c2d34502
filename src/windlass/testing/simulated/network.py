"""Between users, workers and servers: messages are lost, repeated, late and out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from windlass.core.errors import WindlassError
from windlass.testing.simulated.process import Process

T = TypeVar("T")
LATEST = 40.0
"""Seconds that a message may be on its way."""


class Reachable(Protocol):
    up: bool
    process: Process


S = TypeVar("S", bound=Reachable)


class Lost(Exception):
    """No answer came: it may have been done, or not, or it may still be done."""


@dataclass
class Weather:
    """Chances per message. `calm` is a network as in a rack."""

    lose: float = 0.0
    repeat: float = 0.0
    late: float = 0.0

    def calm(self) -> None:
        self.lose = self.repeat = self.late = 0.0


class Network(Generic[S]):
    def __init__(
        self,
        servers: Callable[[], list[S]],
        weather: Weather,
        chance: random.Random,
        broken: Callable[[BaseException], None],
    ) -> None:
        self._servers = servers
        self._weather = weather
        self._chance = chance
        self._broken = broken

    async def call(self, handler: Callable[[S], Awaitable[T]], seconds: float = 5.0) -> T:
        """Run `handler` in a server that lives. Raises Lost, and what the handler raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        weather, chance = self._weather, self._chance
        for _ in range(2 if chance.random() < weather.repeat else 1):
            if chance.random() >= weather.lose:
                loop.call_later(self._delay(), self._arrive, handler, answer)
        limit = loop.call_later(seconds, _give_up, answer)
        try:
            return await answer
        finally:
            limit.cancel()

    def _arrive(self, handler: Callable[[S], Awaitable[T]], answer: asyncio.Future[T]) -> None:
        up = [server for server in self._servers() if server.up]
        if not up:
            return _give_up(answer)
        server = up[0] if len(up) == 1 else self._chance.choice(up)

        async def handle() -> T:
            return await handler(server)

        task = server.process.spawn(handle())
        task.add_done_callback(lambda done: self._back(done, answer))

    def _back(self, done: asyncio.Task[T], answer: asyncio.Future[T]) -> None:
        loop = asyncio.get_running_loop()
        if done.cancelled():
            loop.call_later(self._delay(), _give_up, answer)  # the connection is cut
            return
        error = done.exception()
        if error is not None and not isinstance(error, WindlassError):
            self._broken(error)
            error = Lost()  # a 500: the caller tries again
        if self._chance.random() >= self._weather.lose:
            loop.call_later(self._delay(), _settle, answer, error, error or done.result())

    def _delay(self) -> float:
        if self._chance.random() < self._weather.late:
            return self._chance.random() * LATEST
        return 0.001 + self._chance.random() * 0.02


def _settle(answer: asyncio.Future[Any], error: BaseException | None, result: Any) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(Lost())
