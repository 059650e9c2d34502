"""What one member of a replica exchanges with the servers: the ranges of its own part.

To the servers a range's worker is the replica (`group`), of which this member alone pushes and
pulls this range; so clocks, staleness and the rules of consistency are of replicas.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from windlass.core.errors import Fenced
from windlass.train.failures import lost
from windlass.train.ledger import Position, Share
from windlass.train.runners import rests, serverstate
from windlass.train.runners.parted import PartedLayout
from windlass.train.runners.routing import Servers
from windlass.train.state.flat import write

if TYPE_CHECKING:
    from windlass.train.runners.grouped import GroupStrategy
    from windlass.train.seat import Seat


class Link:
    def __init__(
        self, seat: Seat, strategy: GroupStrategy, layout: PartedLayout, part: int, group: int,
        since: int,
    ) -> None:  # fmt: skip
        """`layout` holds this member's tensors already. `since`: a roster in which all of this
        replica are there."""
        self.seat = seat
        self.strategy = strategy
        self.layout = layout
        self.part = part
        self.group = group
        self.servers = Servers(layout, strategy, seat)
        self.mine = layout.ranges_of(part, self.servers.ranges)
        self.every = list(self.servers.all)
        self.servers.all = self.mine
        self.versions: dict[str, int] = {}
        self.number = 0
        """Of this member's last push."""
        self.row = 0
        """Where the account of samples has the replica, for who `asks`."""
        self._since = since
        self.entries = layout.entries(part)
        self.position: Position | None = None
        """Which samples are in the state that was asked for last."""
        self.cut: dict[str, Any] = {}
        """And whether it is of one moment."""

    # -- beginning --------------------------------------------------------------------------

    def begin(self) -> None:
        """The first replica's parameters are what all begin with."""
        self.servers.wait()
        if self.group == 0:
            self.servers.ask(
                "begin", {"layout": self.layout.digest}, step=None, kind="parameters",
                tensors=self._shares({n: self._own(n) for n in self.entries}),
            )  # fmt: skip
        self._join(None)
        self.pull(None)

    def _join(self, step: int | None) -> None:
        header = {"worker": self.group, "member": self.seat.rank, "since": self._since}
        for _, answer in self.servers.ask("join", header, step=step):
            self.number = max(self.number, int(answer.header["number"]))
            self.row = max(self.row, int(answer.header.get("row", 0)))

    @property
    def asks(self) -> bool:
        """Whether the account of samples, that of range 0, is this member's to ask."""
        return 0 in self.mine

    # -- exchange ---------------------------------------------------------------------------

    def pull(self, step: int | None, *, final: bool = False) -> None:
        """This member's part, into the buffers; waits as the strategy's rule says. Raises
        MemberLost with those waited for when they make no progress until the deadline."""
        header = {
            "worker": self.group, "final": final, "begun": self.number > 0, "delay": None,
        }  # fmt: skip
        seen, since = -1, time.monotonic()
        pending = True
        while pending:
            pending = False
            for _, answer in self.servers.ask("pull", header, step=step, receive=True):
                waits = answer.header.get("wait")
                if waits is None:
                    self.versions.update(answer.header["versions"])
                    continue
                pending = True
                if answer.header["progress"] != seen:
                    seen, since = answer.header["progress"], time.monotonic()
                waited = time.monotonic() - since
                if waited >= self.seat.deadline_seconds:
                    # In each replica this part is with the member of our own position.
                    size = self.strategy.size
                    names = [f"worker {group * size + self.part}" for group in waits]
                    raise lost(names, "pull", step, waited=waited)

    def install(self) -> None:
        """What was pulled, into the model: after all of it is here."""
        for index in self.mine:
            self.servers.staging[index].scatter(self.layout.parameters)

    def push(
        self, gradients: Mapping[int, Tensor | None] | None, count: float,
        rates: Sequence[float], row: int, share: Share | None, step: int,
    ) -> None:  # fmt: skip
        """One push of this member's part, by the entries' numbers; None: nothing but the fact (an
        empty share). `share`: of that row, where it is not this replica's own."""
        number = self.number + 1
        header: dict[str, Any] = {
            "worker": self.group, "number": number, "versions": self.versions, "count": count,
            "rates": list(rates), "steps": [row],
        }  # fmt: skip
        if share is not None:
            header["shares"] = [list(share[1:])]
        if self.strategy.trace:
            header["reads"] = [dict(self.versions)]
        shares = None if gradients is None else self._shares(gradients)
        for _ in range(3):
            try:
                self.servers.ask("push", header, step=step, kind="gradient", tensors=shares)
                break
            except Fenced as err:  # we were silent for long, or one of this replica is lost
                self.check_replica("push", step, str(err))
                self._join(step)
        else:
            raise lost([self.seat.name], "push", step, why="the servers take it for lost")
        self.number = max(self.number, number)

    def check_replica(self, operation: str, step: int | None, why: str) -> None:
        """Raises MemberLost where one of this replica is lost."""
        roster = self.seat.meeting.roster
        gone = [name for name in self.seat.group_of(self.seat.rank) if name in roster.lost]
        if gone:
            raise lost(gone, operation, step, why=f"{roster.lost[gone[0]]}; {why}")

    def rest(self, before: int, step: int, *, last: bool) -> list[Share]:
        """Of rows before that one, what lost replicas have left, for this one to take. With
        `last`, when there can be nothing more."""
        header = {"worker": self.group, "before": before, "most": 1, "last": last}
        while True:
            try:
                return rests.ask(self.servers, header, step, self._members)
            except Fenced as err:
                self.check_replica("asking for more samples", step, str(err))
                self._join(step)

    def _members(self, group: int) -> list[str]:
        return self.seat.group_of(group * self.strategy.size)

    def finish(self, step: int) -> None:
        self.servers.ask("finish", {"worker": self.group}, step=step)

    def close(self, *, done: bool) -> None:
        told = self.servers.tell("done", {"worker": self.seat.rank}) if done else []
        for future in told:
            try:
                future.result(2.5)
            except Exception:
                continue  # it need not hear it: it sees that we are gone
        self.servers.endpoint.close()

    # -- all parts --------------------------------------------------------------------------

    def whole(self, step: int, *, final: bool = False) -> list[Tensor]:
        """Everybody's entries as the servers have them, on the CPU."""
        self.servers.all = self.every
        versions = dict(self.versions)
        try:
            self.pull(step, final=final)
        finally:
            self.servers.all, self.versions = self.mine, versions
        values = self._room()
        for index in self.every:
            staging = self.servers.staging[index]
            for part, buffer in zip(staging.parts, staging.buffers, strict=True):
                write(part, buffer, values)
        return values

    def state(self, step: int) -> tuple[list[Tensor], list[dict[str, Any]]]:
        """The same with what the optimiser keeps for each entry."""
        self.servers.all = self.every
        try:
            answers = self.servers.ask("state", {}, step=step)
        finally:
            self.servers.all = self.mine
        self.position, self.cut = serverstate.stood(answers)
        return serverstate.collected(self.servers, answers, self._room())

    def load(
        self, values: Sequence[Tensor], states: Sequence[Mapping[str, Any]], position: Position
    ) -> None:
        """A checkpoint to all servers."""
        shares, slots = serverstate.shared_out(self.servers, values, states)
        self.servers.all = self.every
        try:
            self.servers.ask(
                "load", {"position": position.to_json()}, step=None, kind="state",
                tensors=shares, each={"slots": slots},
            )  # fmt: skip
        finally:
            self.servers.all = self.mine

    # -- inside -----------------------------------------------------------------------------

    def _room(self) -> list[Tensor]:
        return [torch.empty(each.shape, dtype=each.dtype) for each in self.layout.parameters]

    def _own(self, number: int) -> Tensor:
        return self.layout.parameters[number].detach()

    def _shares(self, tensors: Mapping[int, Tensor | None]) -> list[list[Tensor]]:
        """By range, of one tensor for each of this member's entries (None is zeros)."""
        every = [tensors.get(n) for n in range(len(self.layout.parameters))]
        return [
            self.servers.staging[n].gather(every) if n in self.mine else [] for n in self.every
        ]
