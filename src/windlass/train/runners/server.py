"""The worker's side of the parameter server: pull, gradient, push.

    worker                       servers (each some ranges of the parameters)
      | pull ------------------> |    returns when the strategy's rule lets it
      | <------ parameters, v0   |
      |  gradient                |
      | push (sum, count, v0) -> |    one optimiser for all, on the servers
      | <------ parameters, v1   |    where the rule lets a pull return at once; else: done
      |  gradient                |

So a step is one exchange, unless its rule makes it wait, or it reads by a rule of its own. A push
has a number of the worker's own. When a server is lost and its ranges have a second copy, what is
not done is asked of whoever has them now, under the same number: it is done once, and answered.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from windlass.core.errors import Fenced, InvalidInput
from windlass.train.comm.frames import Payload
from windlass.train.counters import Fault
from windlass.train.data import Batch
from windlass.train.failures import lost
from windlass.train.ledger import Position, Share
from windlass.train.policies.consistency import Consistency, delay_of
from windlass.train.runners import rests, serverstate
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.filtering import Outbox
from windlass.train.runners.routing import Servers
from windlass.train.state.flat import Layout
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.serverstrategies import (
        GradientStrategy,
        ServerStrategy,
    )
    from windlass.train.seat import Seat


class ServerRunner(Runner):
    """Base of the two: what is pushed differs (gradients; elastic differences)."""

    apart = None
    keeps_state = True
    """Whether the servers have an optimiser's state to keep."""
    keeps_account = True
    caches = False
    """Whether the model is as it was pulled until the next pull: what has not changed on a server
    need not come again."""

    @property
    def made_without(self) -> int:
        """The servers' clock counts pushes."""
        return self.joined_at * self._together if self.came_back else 0

    def __init__(self, task: Task, seat: Seat, strategy: ServerStrategy) -> None:
        super().__init__(task, seat)
        self.strategy = strategy
        self.layout = Layout(task.optimizer)
        self.servers = Servers(self.layout, strategy, seat)
        self.versions: dict[str, int] = {}
        self.number = 0
        self.joined_at = 0
        """The clock of the servers when this worker joined: 0 at the beginning; of one that came
        back, how many pushes the slowest of the others had made."""
        self.came_back = False
        """The servers know pushes of this worker: it was started again in mid-run."""
        self.outbox: Outbox | None = None
        """Codes what is pushed, where a filter is asked for."""
        self._have: dict[int, list[Any]] = {}
        """Of each range: whose history, and which version, the model has or the buffers have."""
        self._arrived: set[int] = set()
        """Ranges that are in the buffers and not in the model yet."""
        self._fetched = False
        """The last push brought all that a pull would have."""
        self._whose: list[Share | None] = []
        """Of the rows that the next push has: whose share, where it was another's."""
        self._position: Position | None = None
        self._cut: dict[str, Any] = {}
        self._loads = 0
        self._pulls_now = True
        self._taken = 0
        try:
            self._begin()
        except BaseException:
            self.servers.endpoint.close()
            raise

    # -- meeting ----------------------------------------------------------------------------

    def _begin(self) -> None:
        self.servers.wait()
        parameters = [each.detach() for each in self.layout.parameters]
        if self.seat.rank == 0:
            self.servers.ask(
                "begin", {"layout": self.layout.digest}, step=None, kind="parameters",
                tensors=[each.lend(parameters) for each in self.servers.staging],
            )  # fmt: skip
        self._join(None)
        self.came_back = self.number > 0
        self.pull(None)

    def _join(self, step: int | None) -> None:
        answers = self.servers.ask("join", {"worker": self.seat.rank}, step=step)
        self.number = max(self.number, *(answer.header["number"] for _, answer in answers))
        self.joined_at = min(answer.header["clock"] for _, answer in answers)
        self.row = max(answer.header.get("row", 0) for _, answer in answers)

    # -- exchange ---------------------------------------------------------------------------

    def pull(self, step: int | None, *, final: bool = False, delay: int | None = None) -> None:
        """What the servers have, into the buffers; waits as the strategy's rule says, or as
        `delay` does for this once. Raises MemberLost with those waited for when they make no
        progress until the deadline."""
        header = {
            "worker": self.seat.rank, "final": final, "begun": self.number > 0, "delay": delay,
        }  # fmt: skip
        seen, since = -1, time.monotonic()
        pending = True
        while pending:
            pending = False
            for ranges, answer in self.servers.ask(
                "pull", header, step=step, receive=True, each=self._known()
            ):
                waits = answer.header.get("wait")
                if waits is None:
                    self._take(ranges, answer.header)
                    continue
                pending = True
                if answer.header["progress"] != seen:
                    seen, since = answer.header["progress"], time.monotonic()
                waited = time.monotonic() - since
                if waited >= self.seat.deadline_seconds:
                    names = [f"worker {n}" for n in waits]
                    raise lost(names, "pull", step, waited=waited)

    def _known(self) -> dict[str, Sequence[Any]]:
        """What the servers need not send again."""
        return {"have": [self._have.get(n) for n in self.servers.all]} if self._have else {}

    def _take(self, ranges: Sequence[int], header: dict[str, Any]) -> None:
        self.versions.update(header["versions"])
        if header["same"]:
            self.counters.event("ranges unchanged", len(header["same"]))
        for index in ranges:
            if index not in header["same"]:
                self._arrived.add(index)
                if self.caches:
                    of = header["histories"][str(index)]
                    self._have[index] = [of, header["versions"][str(index)]]

    def install(self) -> None:
        """What was pulled, into the model: after all of it is here."""
        parameters = [each.detach() for each in self.layout.parameters]
        for index in sorted(self._arrived):
            self.servers.staging[index].scatter(parameters)
        self._arrived.clear()

    def push(
        self,
        tensors: Sequence[Tensor | None] | None,
        count: float,
        steps: Sequence[int],
        step: int,
        reads: Sequence[dict[str, int] | None],
        *,
        fetch: bool = False,
    ) -> bool:
        """One push to all ranges; None: nothing but the fact (an empty share). Whether it counts:
        not where it was given up, since others may take these samples. `fetch`: what a
        pull would bring comes with the answer, where it need not wait."""
        rates = [float(group["lr"]) for group in self.task.optimizer.param_groups]
        number = self.number + 1
        header: dict[str, Any] = {
            "worker": self.seat.rank, "number": number, "versions": self.versions,
            "count": count, "rates": rates, "steps": list(steps), "fetch": fetch,
        }  # fmt: skip
        if self.strategy.trace:
            header["reads"] = list(reads)
        if any(self._whose):
            header["shares"] = [None if each is None else each[1:] for each in self._whose]
        shares, each = self._shares(tensors, count, header)
        if fetch:
            each.update(self._known())
        for _ in range(3):
            try:
                answers = self.servers.ask(
                    "push", header, step=step, kind="gradient", tensors=shares, receive=fetch,
                    each=each,
                )  # fmt: skip
                break
            except Fenced:  # we were silent for long; the others went on
                self._join(step)
                if any(self._whose) or (self.row or 0) > min(steps):
                    # What it did lies open since, for anybody: it is not done twice.
                    self.counters.event("pushes given up")
                    self._whose, self._pulls_now, self.moves_to = [], True, self.row
                    return False
        else:
            raise lost([self.seat.name], "push", step, why="the servers take it for lost")
        self.number = max(self.number, number)
        self._whose = []
        if shares is not None and self.outbox is not None:
            self.outbox.commit()
        self._fetched = fetch and all("versions" in answer.header for _, answer in answers)
        for ranges, answer in answers:
            if "versions" in answer.header:
                self._take(ranges, answer.header)
        return True

    def _shares(
        self, tensors: Sequence[Tensor | None] | None, count: float, header: dict[str, Any]
    ) -> tuple[Sequence[Sequence[Payload]] | None, dict[str, Sequence[Any]]]:
        """What goes to each range, and what is said of it; coded, where there is a filter."""
        if tensors is None:
            return None, {}
        if self.outbox is None:
            return [each.lend(tensors) for each in self.servers.staging], {}
        whole = [each.gather(tensors) for each in self.servers.staging]
        shares, scale = self.outbox.code(whole, count)
        if scale is None:
            return shares, {}
        header["scale"] = scale
        return shares, {"tensors": [len(share) for share in shares]}

    # -- ends -------------------------------------------------------------------------------

    def rest(self, before: int, *, last: bool) -> list[Share]:
        if last or any(self._whose):
            self.deliver()
        if last and self.moves_to is None:
            self.servers.ask("finish", {"worker": self.seat.rank}, step=self._taken)
        header = {
            "worker": self.seat.rank, "before": before, "most": self._together, "last": last,
        }  # fmt: skip
        if self.moves_to is None:
            try:
                return rests.ask(self.servers, header, self._taken, lambda n: [f"worker {n}"])
            except Fenced:
                self._join(self._taken)
                self.moves_to = self.row
        return []

    @property
    def _together(self) -> int:
        """Steps in one push."""
        each: int = getattr(self.strategy, "push_every", 0) or getattr(self.strategy, "tau", 1)
        return each

    def deliver(self) -> None:
        """Push what was gathered for it so far."""
        raise NotImplementedError

    def finish(self) -> None:
        self.servers.ask("finish", {"worker": self.seat.rank}, step=self._taken)

    def drain(self) -> None:
        self.pull(self._taken, final=True)
        self.settle()

    def settle(self) -> None:
        """The final parameters are in the buffers."""
        self.install()

    def close(self) -> None:
        for future in self.servers.tell("done", {"worker": self.seat.rank}):
            try:
                future.result(2.5)
            except Exception:
                continue  # it need not hear it: it sees that we are gone
        self.servers.endpoint.close()

    # -- state ------------------------------------------------------------------------------

    def shared_state(self) -> dict[str, Any] | None:
        if not self.seat.leads:
            return None
        answers = self.servers.ask("state", {}, step=self._taken)
        self._position, self._cut = serverstate.stood(answers)
        return serverstate.assemble(self.task, self.servers, answers)

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Worker 0 gives it to the servers; the others wait until it has. One that came back
        takes what the servers have: they have gone on from there."""
        super().load_shared_state(state)
        self._pulls_now = True
        self._have.clear()
        self._arrived.clear()
        if self.came_back:
            return
        self._loads += 1
        key = f"loaded/{self._loads}"
        if self.seat.rank == 0:
            shares, slots = serverstate.take_apart(self.task, self.servers, self.keeps_state)
            position = Position.of(self.stood)
            self.servers.ask(
                "load", {"position": position.to_json()}, step=None, kind="state", tensors=shares,
                each={"slots": slots},
            )  # fmt: skip
            self.seat.meeting.put(key, b"1")
        else:
            self.seat.meeting.get(
                key, owner="worker 0", operation="loading a checkpoint",
                deadline_seconds=max(60.0, self.seat.deadline_seconds),
            )  # fmt: skip


class GradientRunner(ServerRunner):
    """Gradients go to the servers, whose optimiser steps. With `fetch_every` above 1 the worker
    steps by itself between two pulls, as Downpour does."""

    def __init__(self, task: Task, seat: Seat, strategy: GradientStrategy) -> None:
        self._options = strategy
        self._sums: list[Tensor | None] | None = None
        self._count = 0.0
        self._steps: list[int] = []
        self._reads: list[dict[str, int] | None] = []
        self._delay: int | None = None
        self.caches = strategy.fetch_every == 1
        super().__init__(task, seat, strategy)
        self.install()
        self._fresh = True
        self._pulls_now = False
        if strategy.compress is not None:
            parts = [each.parts for each in self.servers.staging]
            self.outbox = Outbox(strategy.compress, self.layout, parts, self.counters, self.number)
            if self.came_back and strategy.compress.has_feedback:
                self.counters.event("residuals lost")
                why = "it was started again: what its pushes had left for later ones is gone"
                self.counters.survived(Fault("loss of the residual", seat.name, None, why))

    def reads(self, consistency: Consistency) -> None:
        delay = delay_of(consistency)
        if not self.strategy.policy(self.seat.workers).applies_at_once:
            raise InvalidInput(
                f"consistency: {self.strategy.name} collects gradients before it applies them, "
                f"and a pull waits for that (found {consistency!r})",
                hint="ps:async, ps:scaled, or ps:ssp with a staleness let each step choose",
            )
        self._delay, self._pulls_now = delay, True

    def step(self, batch: Batch) -> Outcome:
        options, at = self._options, batch.cursor.steps
        chooses = self._delay is not None
        if self._pulls_now or (self._taken and self._taken % options.fetch_every == 0):
            if self._pulls_now or not self._fetched:
                self.pull(at, delay=self._delay)
            self.install()
            self._delay, self._pulls_now, self._fresh = None, False, True
            self._fetched = False
        outcome = self._gradient(batch)
        self._taken += 1
        if len(self._steps) >= options.push_every:
            # Who chooses what a step reads will most likely choose for the next one too.
            self._deliver(at, fetch=self._taken % options.fetch_every == 0 and not chooses)
        return outcome

    def _gradient(self, batch: Batch) -> Outcome:
        alone = self._options.fetch_every > 1
        if alone or not self._steps:
            for parameter in self.layout.parameters:  # zero_grad, without what torch adds to it
                parameter.grad = None
        total: Tensor | float = 0.0
        count = 0.0
        if batch.content is not None:
            loss, count = self.task.loss_of(batch.content)
            loss.backward()  # type: ignore[no-untyped-call]
            total = loss.detach()
        gradients = [each.grad for each in self.layout.parameters]
        if alone:
            self._sums = gradients_added(self._sums, gradients)
            if count:
                for each in gradients:
                    if each is not None:
                        each.div_(count)
                self.task.optimizer.step()
        else:
            self._sums = gradients
        self._count += count
        self._steps.append(self.task.data.row(batch.cursor))
        self._whose.append(batch.share)
        self._reads.append(dict(self.versions) if self._fresh else None)
        self._fresh = False
        return Outcome(total, count)

    def _deliver(self, step: int, *, fetch: bool = False) -> None:
        if not self._steps:
            return
        empty = self._count == 0
        sums = None if empty else self._sums
        self.push(sums, self._count, self._steps, step, self._reads, fetch=fetch)
        self._sums, self._count, self._steps, self._reads = None, 0.0, [], []

    def deliver(self) -> None:
        self._deliver(self._taken)

    def finish(self) -> None:
        self.deliver()
        super().finish()

    def stands(self) -> dict[str, Any]:
        return {} if self._position is None else {**self._position.words(), **self._cut}

    def local_state(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.outbox is not None:
            found["outbox"] = self.outbox.state()
        return found

    def load_local_state(self, state: dict[str, Any]) -> None:
        """Not of one that came back: what it had left over then was sent since."""
        if self.came_back:
            return
        if self.outbox is not None and "outbox" in state:
            self.outbox.load(state["outbox"])


def gradients_added(
    sums: list[Tensor | None] | None, gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    if sums is None:
        return [None if each is None else each.clone() for each in gradients]
    return [
        (None if each is None else each.clone()) if before is None
        else before if each is None else before.add_(each)
        for before, each in zip(sums, gradients, strict=True)
    ]  # fmt: skip
