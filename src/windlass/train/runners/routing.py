"""All servers together, as one worker sees them: each range is asked of whoever has it now."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from torch import Tensor

from windlass.core.errors import MemberLost, Unavailable
from windlass.train.comm.frames import Payload
from windlass.train.comm.transport import Answer, Endpoint, Peer
from windlass.train.counters import Fault
from windlass.train.failures import lost
from windlass.train.policies.keys import owners
from windlass.train.state.flat import Layout, Staging

if TYPE_CHECKING:
    from windlass.train.runners.serverstrategies import ServerStrategy
    from windlass.train.seat import Seat

_AGAIN_SECONDS = 0.02


class Servers:
    """All servers together, as one worker sees them: ranges go to whoever has them now."""

    def __init__(self, layout: Layout, strategy: ServerStrategy, seat: Seat) -> None:
        self.seat = seat
        self.layout = layout
        self.strategy = strategy
        self.ranges = layout.cut(strategy.range_count(seat.servers))
        self.staging = [Staging(layout, each) for each in self.ranges]
        self.all = list(range(len(self.ranges)))
        self.endpoint = Endpoint(
            seat.name, seat.meeting.secret, host=seat.host, counters=seat.counters
        )
        self._peers: dict[str, Peer] = {}
        try:
            self.endpoint.publish(seat.meeting)
        except BaseException:
            self.endpoint.close()
            raise

    def wait(self) -> None:
        """Until each server has come (or gone again): who has what depends on who is there."""
        meeting = self.seat.meeting
        self._check_over("meeting the servers", None)
        for name in (f"server {n}" for n in range(self.seat.servers)):
            if name not in meeting.roster.lost and name not in meeting.roster.left:
                meeting.wait_for(
                    [name], operation="meeting the servers", step=None,
                    deadline_seconds=self.seat.deadline_seconds,
                )  # fmt: skip

    def ask(
        self,
        operation: str,
        header: dict[str, Any],
        *,
        step: int | None,
        kind: str = "control",
        tensors: Sequence[Sequence[Payload]] | None = None,
        receive: bool = False,
        each: dict[str, Sequence[Any]] | None = None,
        only: Sequence[int] | None = None,
    ) -> list[tuple[list[int], Answer]]:
        """One thing of all ranges (or `only` of these); each range exactly once. `tensors` and
        `each` are by range. Raises MemberLost past the deadline, or when a range is lost with its
        only server."""
        left, answers = set(self.all if only is None else only), []
        ends = time.monotonic() + self.seat.deadline_seconds
        trouble: Exception | None = None
        while left:
            asked = self._send(operation, header, left, step, kind, tensors, receive, each or {})
            for name, ranges, future in asked:
                try:
                    answers.append((ranges, future.result(self.seat.deadline_seconds + 10)))
                    left.difference_update(ranges)
                except MemberLost as err:
                    trouble = err
                    self._peers.pop(name, None)
                    if not self.strategy.survives_servers:
                        raise
                    self.seat.counters.survived(Fault("server lost", name, step, str(err)))
                except Unavailable as err:
                    trouble = err
            if left:
                self._check_over(operation, step)
                if time.monotonic() >= ends:
                    raise self._given_up(operation, step, trouble)
                time.sleep(_AGAIN_SECONDS)  # its new owner may not have it yet
        return answers

    def tell(self, operation: str, header: dict[str, Any]) -> list[Future[Answer]]:
        """To every server that is there, also one that has nothing now; without waiting."""
        found = []
        for name in sorted(self.seat.meeting.roster.present):
            if name.startswith("server "):
                try:
                    peer = self._peers.get(name) or self.endpoint.find(
                        name, self.seat.meeting, deadline_seconds=1.0
                    )
                except MemberLost:
                    continue
                found.append(peer.send(operation, header, kind="control", deadline_seconds=2.0))
        return found

    def _send(
        self, operation: str, header: dict[str, Any], left: set[int], step: int | None, kind: str,
        tensors: Sequence[Sequence[Payload]] | None, receive: bool, each: dict[str, Sequence[Any]],
    ) -> list[tuple[str, list[int], Future[Answer]]]:  # fmt: skip
        found = []
        for name, ranges in self._routes(left, operation, step).items():
            try:
                peer = self._peer(name, step)
            except MemberLost as err:
                if not self.strategy.survives_servers:
                    why = self.seat.meeting.roster.lost.get(name, str(err))
                    raise lost([name], operation, step, why=why) from err
                continue
            payload = [t for n in ranges for t in tensors[n]] if tensors is not None else []
            into = functools.partial(self._buffers, ranges) if receive else None
            told = {key: [values[n] for n in ranges] for key, values in each.items()}
            future = peer.send(
                operation, {**header, **told, "ranges": ranges}, payload, kind=kind, step=step,
                into=into, deadline_seconds=self.seat.deadline_seconds,
            )  # fmt: skip
            found.append((name, ranges, future))
        return found

    def _buffers(self, ranges: Sequence[int], header: dict[str, Any]) -> list[Tensor]:
        """For what an answer brings: nothing of a range that is as we have it."""
        same = header.get("same", ())
        return [b for n in ranges if n not in same for b in self.staging[n].buffers]

    def _routes(self, left: set[int], operation: str, step: int | None) -> dict[str, list[int]]:
        roster = self.seat.meeting.roster
        if self.strategy.copies > 1:
            names = [each for each in roster.present if each.startswith("server ")]
        else:  # a range stays where it is: its server may come back with a snapshot
            names = [f"server {n}" for n in range(self.seat.servers)]
        if not names:
            every = [f"server {n}" for n in range(self.seat.servers)]
            raise lost(every, operation, step, why="no server is left")
        found: dict[str, list[int]] = {}
        for index in sorted(left):
            found.setdefault(owners(index, names, 1)[0], []).append(index)
        return found

    def _peer(self, name: str, step: int | None) -> Peer:
        found = self._peers.get(name)
        if found is None or found.is_cut:
            found = self._peers[name] = self.endpoint.find(
                name, self.seat.meeting, deadline_seconds=self.seat.deadline_seconds, step=step
            )
        return found

    def _check_over(self, operation: str, step: int | None) -> None:
        """Raises MemberLost where there will be no server any more, at once: servers leave when
        all workers are done, or when they give up."""
        roster = self.seat.meeting.roster
        every = [f"server {n}" for n in range(self.seat.servers)]
        left = [name for name in every if name in roster.left]
        if left and not any(name in roster.present for name in every):
            why = "the training is over: its servers have left"
            raise lost(left, operation, step, why=why)

    def _given_up(self, operation: str, step: int | None, trouble: Exception | None) -> MemberLost:
        if isinstance(trouble, MemberLost):
            return trouble
        gone = sorted(n for n in self.seat.meeting.roster.lost if n.startswith("server "))
        return lost(
            gone or ["a server"], operation, step,
            why=f"{trouble} for {self.seat.deadline_seconds:.0f} s",
        )  # fmt: skip
