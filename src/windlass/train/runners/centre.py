"""Elastic averaging with a centre on the servers: workers step by themselves, and every so often
each and the centre draw nearer to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from windlass.train.data import Batch
from windlass.train.runners.base import Outcome
from windlass.train.runners.server import ServerRunner
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.serverstrategies import ElasticStrategy
    from windlass.train.seat import Seat


class ElasticRunner(ServerRunner):
    """The worker steps by itself; every tau steps it and the centre draw nearer to each other.
    What counts is the centre."""

    keeps_state = False

    def __init__(self, task: Task, seat: Seat, strategy: ElasticStrategy) -> None:
        super().__init__(task, seat, strategy)
        self._elastic = strategy
        self.install()
        self._pulls_now = False
        self._since: list[int] = []
        self._began: dict[str, int] | None = dict(self.versions)
        self._centre = self._copies()

    def step(self, batch: Batch) -> Outcome:
        optimizer = self.task.optimizer
        optimizer.zero_grad(set_to_none=True)
        total: Tensor | float = 0.0
        count = 0.0
        if batch.content is not None:
            loss, count = self.task.loss_of(batch.content)
            loss.backward()  # type: ignore[no-untyped-call]
            total = loss.detach()
            for each in self.layout.parameters:
                if each.grad is not None:
                    each.grad.div_(count)
            optimizer.step()
        self._taken += 1
        self._since.append(self.task.data.row(batch.cursor))
        self._whose.append(batch.share)
        if len(self._since) >= self._elastic.tau:
            self.exchange(batch.cursor.steps)
        return Outcome(total, count)

    def deliver(self) -> None:
        if self._since:
            self.exchange(self._taken)

    def exchange(self, step: int) -> None:
        """d = alpha (x - c); the centre gains it, we lose it: their sum stays."""
        self.pull(step)
        parameters = [each.detach() for each in self.layout.parameters]
        centre = [each.clone() for each in parameters]
        for each in self.servers.staging:
            each.scatter(centre)
        differences = [
            (own - there).mul_(self._elastic.alpha)
            for own, there in zip(parameters, centre, strict=True)
        ]
        self._centre = centre
        reads = [self._began, dict(self.versions)]
        counts = self.push(differences, 1.0, self._since, step, reads)
        self._since, self._began = [], None
        if not counts:
            return
        with torch.no_grad():
            for own, difference in zip(parameters, differences, strict=True):
                own.sub_(difference)

    @contextmanager
    def as_it_counts(self) -> Iterator[nn.Module]:
        mine = self._copies()
        self._write(self._centre)  # as it was pulled last; the buffers have been pushed from since
        try:
            yield self.task.model
        finally:
            self._write(mine)

    def local_state(self) -> dict[str, Any]:
        return {
            "parameters": [each.detach().clone() for each in self.layout.parameters],
            "optimizer": self.task.optimizer.state_dict(),
            "taken": self._taken,
        }

    def load_local_state(self, state: dict[str, Any]) -> None:
        self._centre = self._copies()  # the shared state has just been loaded
        self._write(state["parameters"])
        self.task.optimizer.load_state_dict(state["optimizer"])
        self._taken = int(state["taken"])

    def drain(self) -> None:
        super().drain()
        self._centre = self._copies()

    def _copies(self) -> list[Tensor]:
        return [each.detach().clone() for each in self.layout.parameters]

    def _write(self, values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for each, value in zip(self.layout.parameters, values, strict=True):
                each.copy_(value)
