"""One worker of a replica that several hold together: its part goes to the servers and comes from
them, whatever the replica is inside.

    all members      pull own part ── forward and backward of the replica ── push own part
                     (a rule of the servers)                                 (its gradient, count)

Replicas know nothing of each other. Inside one, every member has made as many pulls and pushes as
the others; a replica that loses a member falls as one, and the servers go on without it. When all
of its members were started again it comes back as one, with what the servers have by then.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from windlass.core.errors import MemberLost
from windlass.train.data import Batch
from windlass.train.ledger import Position, Share
from windlass.train.runners import replicaroom
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.link import Link
from windlass.train.runners.parted import KEY, Outline, PartedLayout, Slice, Table, to_bytes
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.grouped import GroupStrategy
    from windlass.train.seat import Seat


class Replica(Protocol):
    """What the members of one do together. All of them call each method, in the same order."""

    count: float
    """Of the last step: samples, or what the loss counts."""

    def table(self) -> Table:
        """Who holds what: the same on all."""

    def tensors(self) -> dict[Slice, Tensor]:
        """What is in this member's part: contiguous, and the model's own memory."""

    def step(self, batch: Batch) -> Outcome:
        """Forward and backward; no parameter changes."""

    def gradients(self) -> dict[Slice, Tensor | None]:
        """Of the sum, after a step: of this member's part."""

    def alike(self, step: int | None) -> None:
        """What several members hold is as the one has it in whose part it is."""

    def told(self, ask: Callable[[], list[Share]] | None, who: int, step: int) -> list[Share]:
        """What the member at position `who`, which has `ask`, is told, on all of them."""

    def others(self, step: int) -> dict[str, Any] | None:
        """What no server has of the whole model's `state_dict()`, on the first member; None on
        the others. When it returns on the first, all have come so far."""

    def load(self, state: Mapping[str, Any]) -> None:
        """This member's part of a whole `shared_state()`. Raises ValueError."""

    def filled(self, state: Mapping[str, Any]) -> AbstractContextManager[nn.Module]:
        """On the first: the whole model with this `state_dict()`."""

    def part(self, step: int) -> None:
        """At the end of the work: until all have what they were sent."""

    def close(self) -> None: ...


class ReplicaRunner(Runner):
    apart = 1
    """Within a replica."""
    keeps_account = True

    def __init__(
        self, task: Task, seat: Seat, strategy: GroupStrategy, make: Callable[[Seat], Replica]
    ) -> None:
        """`make`: with a seat that meets the members of the replica, who have all come."""
        super().__init__(task, seat)
        self.strategy = strategy
        self.group, self.position = divmod(seat.rank, strategy.size)
        self._outline = Outline.of(task.optimizer)
        self._options = [_without(group) for group in task.optimizer.param_groups]
        self._names = _names(task)
        self._order = list(task.model.state_dict())
        self._others: dict[str, Any] | None = None
        self._is_gathered = False
        """Since the last step: all members agree on it, though only the first has what came."""
        self._values: list[Tensor] | None = None
        """All parts, where this member leads, since the last step."""
        self._taken = 0
        self._loads = 0
        self._pulls_now = False
        self._link: Link | None = None
        self._fell = False
        self._room = replicaroom.enter(seat)
        self._opened = ExitStack()
        self._opened.callback(self._room.close)
        try:
            here = replace(seat, meeting=self._room.meeting, formed=Counter())
            self.replica = make(here)
            self._opened.callback(self.replica.close)
            table = self.replica.table()
            if seat.rank == 0:
                seat.meeting.put(KEY, to_bytes(table))
            self.layout = PartedLayout(self._outline, table)
            self.layout.hold(self.position, self.replica.tensors())
            self._asks = next(n for n, (a, b) in enumerate(self.layout.bounds) if b > a)
            self._link = Link(
                seat, strategy, self.layout, self.position, self.group, self._room.since
            )
            self._link.begin()
            if self._room.life:
                self._stand_again()
            self._install(None)
        except BaseException:
            self.close()
            raise

    def _stand_again(self) -> None:
        """Of a replica that was lost: the same on all of its members. Where it was lost before the
        training had begun, it begins with the others."""
        meeting, key, operation = self._room.meeting, "stands", "coming back"
        if self.link.asks:
            begun = self.seat.meeting.look(
                "resume", operation=operation, deadline_seconds=self.seat.deadline_seconds
            )
            meeting.put(key, json.dumps([begun is not None, self.link.row]).encode())
        asking = self.seat.group_of(self.seat.rank)[self._asks]
        told = meeting.get(
            key, owner=asking, operation=operation, deadline_seconds=self.seat.deadline_seconds
        )
        self.came_back, row = json.loads(told)
        if self.came_back:
            self.row = row

    @property
    def link(self) -> Link:
        assert self._link is not None, "the runner is open"
        return self._link

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Without one of its members a replica is of no use: the others fall too, so that nobody
        waits for them, nor takes one of them for the first worker."""
        try:
            yield
        except MemberLost as err:
            if self.seat.falls_with(err.details.get("missing", ())):
                self._fell = True
                self.seat.meeting.fall()
            raise

    # -- the loop ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        at = batch.cursor.steps
        with self._together():
            if self._taken or self._pulls_now:
                self.link.pull(at)
                self._install(at)
                self._pulls_now = False
            outcome = self.replica.step(batch)
            self._push(batch)
        self._taken += 1
        self._forget()
        return outcome

    def _forget(self) -> None:
        """What was gathered is of before."""
        self._others, self._values, self._is_gathered = None, None, False

    def _push(self, batch: Batch) -> None:
        count, gradients = self.replica.count, None
        if count:
            found = self.replica.gradients()
            gradients = {n: found[self.layout.slices[n]] for n in self.link.entries}
        rates = [float(group["lr"]) for group in self.task.optimizer.param_groups]
        row = self.task.data.row(batch.cursor)
        self.link.push(gradients, count, rates, row, batch.share, batch.cursor.steps)

    def rest(self, before: int, *, last: bool) -> list[Share]:
        with self._together():
            if last:
                self.link.finish(self._taken)
            ask = partial(self.link.rest, before, self._taken, last=last)
            return self.replica.told(ask if self.link.asks else None, self._asks, self._taken)

    def _install(self, step: int | None) -> None:
        self.link.install()
        self.replica.alike(step)

    def finish(self) -> None:
        with self._together():
            self.link.finish(self._taken)

    def drain(self) -> None:
        """The first worker has the whole model from here on."""
        with self._together():
            self.link.pull(self._taken, final=True)
            self._install(self._taken)
            self._others = self.replica.others(self._taken)
            self._is_gathered = True
            if self._leads:
                self._values = self.link.whole(self._taken, final=True)
            self.replica.part(self._taken)

    def close(self) -> None:
        if self._link is not None:
            self._link.close(done=not self._fell)
        self._opened.close()

    # -- the whole model --------------------------------------------------------------------

    @property
    def _leads(self) -> bool:
        return self.seat.leads and self._others is not None

    def assemble(self) -> None:
        with self._together():
            if not self._is_gathered:
                self._others = self.replica.others(self._taken)
                self._is_gathered = True
            if self._leads and self._values is None:
                self._values = self.link.whole(self._taken)

    @contextmanager
    def as_it_counts(self) -> Iterator[nn.Module]:
        if self._values is None:  # whoever led before was lost at the very end
            self._values = self.link.whole(self._taken, final=True)
        mine = {number: self.layout.parameters[number] for number in self.link.entries}
        before = {number: each.detach().clone() for number, each in mine.items()}
        state = self._state_dict(self._values)
        with torch.no_grad():
            for number, each in mine.items():
                each.copy_(self._values[number])
        try:
            with self.replica.filled(state) as model:
                yield model
        finally:
            with torch.no_grad():
                for number, each in mine.items():
                    each.copy_(before[number])

    def _state_dict(self, values: list[Tensor]) -> dict[str, Any]:
        found: dict[str, Any] = dict(self._others or {})
        for place, value in self.layout.together(values).items():
            found.update(dict.fromkeys(self._names[place], value))
        return {name: found[name] for name in self._order}

    def shared_state(self) -> dict[str, Any] | None:
        self.assemble()  # by the rule: what this replica pushed last is in it, where that waits
        if not self._leads:
            return None
        values, kept = self.link.state(self._taken)
        groups, numbers = self.task.optimizer.param_groups, range(len(self._outline.groups))
        return {
            "model": self._state_dict(values),
            "optimizer": {
                "state": self.layout.states_together(kept),
                "param_groups": [
                    {
                        **before, **_without(group), "foreach": before.get("foreach"),
                        "params": [n for n in numbers if self._outline.groups[n] == at],
                    }
                    for at, (before, group) in enumerate(zip(self._options, groups, strict=True))
                ],
            },
        }  # fmt: skip

    def stands(self) -> dict[str, Any]:
        link = self.link
        return {} if link.position is None else {**link.position.words(), **link.cut}

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Worker 0 gives it to the servers; the others wait until it has. A replica that came back
        takes what the servers have."""
        self.replica.load(state)
        theirs = state["optimizer"]["param_groups"]
        self._pulls_now = True
        self._forget()
        if self.came_back:
            return
        self._loads += 1
        key = f"loaded/{self._loads}"
        if self.seat.rank == 0:
            # Numbers of a state_dict are its own: its n-th parameter is our n-th.
            numbers = [number for group in theirs for number in group["params"]]
            states = {
                place: state["optimizer"]["state"].get(number, {})
                for place, number in enumerate(numbers)
            }
            values = {n: state["model"][names[0]] for n, names in enumerate(self._names)}
            self.link.load(*self.layout.apart(values, states), Position.of(self.stood))
            self.seat.meeting.put(key, b"1")
        else:
            self.seat.meeting.get(
                key, owner="worker 0", operation="loading a checkpoint",
                deadline_seconds=max(60.0, self.seat.deadline_seconds),
            )  # fmt: skip


def _without(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _names(task: Task) -> list[tuple[str, ...]]:
    """Of each parameter of the optimiser its names in the model: several, where it is tied."""
    names: dict[int, list[str]] = {}
    for name, each in task.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(each), []).append(name)
    return [
        tuple(names[id(each)]) for group in task.optimizer.param_groups for each in group["params"]
    ]
