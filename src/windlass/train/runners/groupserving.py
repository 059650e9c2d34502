"""A server whose workers are replicas: each range is pushed by one member of each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from windlass.train.comm.meeting import Roster
from windlass.train.comm.transport import Request
from windlass.train.runners.parted import KEY, Outline, PartedLayout, from_bytes
from windlass.train.runners.serving import ParameterServing
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.grouped import GroupStrategy
    from windlass.train.seat import Seat

_SECONDS = 600.0
"""The longest wait for worker 0 to know who holds what: it may measure the blocks first."""


class GroupServing(ParameterServing):
    """A replica is lost with any of its members: the others' clocks go on without it."""

    def __init__(self, task: Task, seat: Seat, strategy: GroupStrategy) -> None:
        super().__init__(task, seat, strategy)
        self._size = strategy.size
        self._epoch = 0
        self._to_join: list[Request] = []
        """Those who came before the news of it."""
        try:
            told = seat.meeting.get(
                KEY, owner="worker 0", operation="hearing who holds what",
                deadline_seconds=max(_SECONDS, seat.deadline_seconds),
            )  # fmt: skip
        except BaseException:
            self.close()
            raise
        layout = PartedLayout(Outline.of(task.optimizer), from_bytes(told))
        self.layout = layout
        self.ranges = layout.cut(strategy.range_count(seat.servers))
        self._parts = [layout.parts(each) for each in self.ranges]

    def _player(self, rank: int) -> int:
        return rank // self._size

    def _roster(self, roster: Roster) -> None:
        super()._roster(roster)
        self._epoch = max(self._epoch, roster.epoch)
        to_join, self._to_join = self._to_join, []
        for request in to_join:
            self._posting(self._join)(request)

    def _join(self, request: Request) -> None:
        if int(request.header["since"]) > self._epoch:  # its loss may not have been heard yet
            self._to_join.append(request)
            return
        group, member = int(request.header["worker"]), int(request.header["member"])
        before = self._incarnations.get(member)
        self._incarnations[member] = request.incarnation
        again = before is not None and before != request.incarnation
        # All of a replica are there when the first of them joins.
        self._gone.difference_update(range(group * self._size, (group + 1) * self._size))
        self._done.discard(member)

        def join(index: int, _: list[Tensor], then: Callable[[Exception | None], None]) -> None:
            held = self.copies.owned(index)
            if again:
                self._propose_all(held, {"what": "lose", "worker": group})
            self.copies.propose(held, {"what": "join", "worker": group}, [], then)

        self._each(request, request.header["ranges"], join, self._standing)
