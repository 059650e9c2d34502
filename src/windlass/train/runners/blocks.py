"""Blocks of parameters, dispatched by how much they change: Petuum's STRADS.

    server     schedule: some blocks that hardly depend on each other        ──► workers
    worker     the gradient of its own blocks, on the whole batch            ──► server
    server     updates them all, sees how much each changed; the next round

Workers share the parameters out, not the samples: useful where blocks are many and each matters
for a while only (factors, embedding tables, sparse regressions).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from windlass.core.errors import InvalidInput
from windlass.train.comm.transport import Answer, Endpoint
from windlass.train.data import Batch
from windlass.train.failures import lost
from windlass.train.policies.curvature import blocks_of
from windlass.train.policies.dispatch import Order
from windlass.train.runners.base import Outcome, Runner
from windlass.train.state.flat import BY_ELEMENT
from windlass.train.state.stored import read
from windlass.train.strategy import Strategy
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.base import Serving
    from windlass.train.seat import Seat

_SERVER = "server 0"
_LONG_SECONDS = 120.0
"""For a server that lives: between two rounds it may have curvature to measure."""


class Blocks(Strategy):
    """Block coordinate descent (STRADS): a server dispatches blocks of parameters that hardly
    depend on each other, those first that changed most; each worker updates its own.

    All workers see the whole batch. One block at a time in their order is sequential block
    coordinate descent, to the bit; plain SGD with a rate of at most 1/curvature never makes a
    convex loss of the whole data set larger. When a worker dies its blocks are dispatched again;
    it may come back, and takes part from the next round.
    """

    name: ClassVar[str] = "blocks"
    has_servers: ClassVar[bool] = True
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "rejoin"

    size: int | None = Field(
        None, ge=1, description="elements of a parameter, in memory order, that make a block (a "
        "row of a table has as many as it is wide); None: each parameter is one",
    )  # fmt: skip
    at_once: int | None = Field(
        None, ge=1, description="blocks that are updated at the same time; None: one for each "
        "worker",
    )  # fmt: skip
    order: Order = Field(
        "priority", description="drawn by how much each changed last, or one after another"
    )
    dependence: float | None = Field(
        2.0, gt=0, description="how much blocks that are updated together may depend on each "
        "other: the sum of a row of rate x curvature over them; None: is not measured",
    )  # fmt: skip
    measure_every: int = Field(
        0, ge=0, description="rounds after which dependences are measured again; 0: never, as "
        "suits a quadratic loss",
    )  # fmt: skip
    l1: float = Field(
        0.0, ge=0, description="the weight of the sum of absolute values of all parameters but "
        "biases (Lasso): each update ends with the proximal step",
    )  # fmt: skip
    trace: bool = Field(False, description="keep a line for each round, to replay the training")

    def together_at(self, workers: int) -> int:
        return self.at_once or workers

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        if servers != 1:
            raise InvalidInput(f"servers: {self.name} has one, which schedules (found {servers})")
        kind = type(task.optimizer).__name__
        if kind not in BY_ELEMENT:
            raise InvalidInput(
                f"task.optimizer: one that steps each element by itself (found {kind})",
                hint="SGD, Adam and their like",
            )
        moved = any(group.get("momentum") for group in task.optimizer.param_groups)
        if self.l1 and (kind != "SGD" or moved):
            raise InvalidInput(
                "l1: a proximal step is one of plain SGD (found "
                f"{kind}{' with momentum' if moved else ''})"
            )
        if not all(each.is_contiguous() for each in _trained(task)):
            raise InvalidInput("task.model: its parameters are contiguous, to be cut into blocks")
        return warnings

    def share_of(self, seat: Seat) -> tuple[int, int]:
        return 0, 1

    def runner(self, task: Task, seat: Seat) -> Runner:
        return BlockRunner(task, seat, self)

    def serving(self, task: Task, seat: Seat) -> Serving:
        from windlass.train.runners.blockserving import BlockServing

        return BlockServing(task, seat, self)


def _trained(task: Task) -> list[Tensor]:
    return [
        each for group in task.optimizer.param_groups for each in group["params"]
        if each.requires_grad
    ]  # fmt: skip


class BlockRunner(Runner):
    """Has no state of its own: what it holds it was told, and is told again after a loss."""

    apart = 1

    def __init__(self, task: Task, seat: Seat, strategy: Blocks) -> None:
        super().__init__(task, seat)
        self.strategy = strategy
        self.parameters = _trained(task)
        self.blocks = blocks_of(self.parameters, strategy.size)
        self.version = -1
        """What of the server's is in the model."""
        self.round = 0
        self._loads = 0
        self.endpoint = Endpoint(
            seat.name, seat.meeting.secret, host=seat.host, counters=seat.counters
        )
        try:
            self.endpoint.publish(seat.meeting)
            self._server = self.endpoint.find(
                _SERVER, seat.meeting, deadline_seconds=max(_LONG_SECONDS, seat.deadline_seconds)
            )
            self._join()
        except BaseException:
            self.endpoint.close()
            raise

    def _join(self) -> None:
        seat = self.seat
        seat.meeting.wait_for(
            [seat.name], operation="joining", step=None, deadline_seconds=seat.deadline_seconds
        )
        told = {
            "worker": seat.rank, "shapes": [list(p.shape) for p in self.parameters],
            "fell": seat.meeting.roster.fell.count(seat.name),
        }  # fmt: skip
        given = [each.detach().cpu() for each in self.parameters]
        answer = self._call("join", told, given, "parameters").header
        self.round = int(answer["round"])
        self.came_back = bool(answer["again"])
        if self.came_back:
            self.row = int(answer["row"])

    # -- the loop ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        answer = self._next("blocks")
        mine = [int(each) for each in answer.header["blocks"]]
        loss: Tensor | float = 0.0
        count, tensors = 0.0, list[Tensor]()
        if batch.content is not None and mine:
            total, count = self.task.loss_of(batch.content)
            loss, tensors = total.detach(), self._gradients(total, mine)
        rates = [float(group["lr"]) for group in self.task.optimizer.param_groups]
        header = {
            "worker": self.seat.rank, "round": self.round, "blocks": mine, "count": count,
            "rates": rates, "row": self.task.data.row(batch.cursor),
        }  # fmt: skip
        self._call("push", header, tensors, "gradient")
        self.round += 1
        if not answer.header["first"]:
            return Outcome(0.0, 0.0)  # the same samples as whoever has the first block
        return Outcome(loss, count)

    def _gradients(self, total: Tensor, mine: list[int]) -> list[Tensor]:
        numbers = sorted({self.blocks[each].parameter for each in mine})
        found = torch.autograd.grad(
            total, [self.parameters[n] for n in numbers], allow_unused=True
        )
        gradients = dict(zip(numbers, found, strict=True))
        tensors = []
        for each in mine:
            block = self.blocks[each]
            gradient = gradients[block.parameter]
            if gradient is None:
                gradient = torch.zeros_like(self.parameters[block.parameter])
            tensors.append(block.of(gradient.contiguous()).cpu())
        return tensors

    def drain(self) -> None:
        self._next("final")

    def close(self) -> None:
        try:
            self._server.send(
                "done", {"worker": self.seat.rank}, kind="control", deadline_seconds=2.0
            ).result(2.5)
        except Exception:
            pass  # it need not hear it: it sees that we are gone
        self.endpoint.close()

    # -- the server -------------------------------------------------------------------------

    def _next(self, what: str) -> Answer:
        """When the round before is over: what is new, into the model. Raises MemberLost with
        those waited for when they make no progress until the deadline."""
        header = {
            "worker": self.seat.rank, "round": self.round, "version": self.version, "what": what,
        }  # fmt: skip
        seen, since = -1, time.monotonic()
        while True:
            answer = self._call("next", header, (), "control")
            waits = answer.header.get("wait")
            if waits is None:
                self._install(answer)
                return answer
            if answer.header["progress"] != seen:
                seen, since = answer.header["progress"], time.monotonic()
            waited = time.monotonic() - since
            if waited >= self.seat.deadline_seconds:
                names = [f"worker {rank}" for rank in waits]
                raise lost(names, "a round of blocks", self.round, waited=waited)

    def _install(self, answer: Answer) -> None:
        with torch.no_grad():
            for number, value in zip(answer.header["new"], answer.tensors, strict=True):
                block = self.blocks[number]
                block.of(self.parameters[block.parameter].detach()).copy_(value)
        self.version = int(answer.header["version"])

    def _call(self, operation: str, header: dict[str, Any], tensors: Any, kind: str) -> Answer:
        return self._server.call(
            operation, header, tensors, kind=kind, step=self.round,
            deadline_seconds=max(_LONG_SECONDS, self.seat.deadline_seconds),
        )  # fmt: skip

    # -- state ------------------------------------------------------------------------------

    def assemble(self) -> None:
        self._next("final")

    def shared_state(self) -> dict[str, Any] | None:
        self.assemble()
        if not self.seat.leads:
            return None
        answer = self._call("state", {"round": self.round}, (), "control")
        rest = iter(answer.tensors)
        state: dict[int, dict[str, Any]] = {}
        for place, name, value in answer.header["slots"]:
            state.setdefault(int(place), {})[name] = next(rest) if value is None else value
        groups = self.task.optimizer.state_dict()["param_groups"]
        return {
            "model": {name: each.clone() for name, each in self.task.model.state_dict().items()},
            "optimizer": {"state": state, "param_groups": groups},
            "blocks": {"size": self.strategy.size or 0, "told": answer.header["blocks"]},
        }

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Worker 0 gives it to the server; the others wait until it has. One that came back
        takes what the server has."""
        if self.came_back:
            return
        super().load_shared_state({name: state[name] for name in ("model", "optimizer")})
        self._loads += 1
        key = f"loaded/{self._loads}"
        if self.seat.rank == 0:
            tensors = [each.detach().cpu() for each in self.parameters]
            slots = []
            for number, each in enumerate(self.parameters):
                for name, value in self.task.optimizer.state.get(each, {}).items():
                    if isinstance(value, Tensor):
                        tensors.append(value.cpu())
                    slots.append([number, name, None if isinstance(value, Tensor) else value])
            kept = read(state["blocks"]) if "blocks" in state else None
            fits = kept is not None and kept["size"] == (self.strategy.size or 0)
            header = {"slots": slots, "blocks": kept["told"] if kept and fits else None}
            self._call("load", header, tensors, "state")
            self.seat.meeting.put(key, b"1")
        else:
            self.seat.meeting.get(
                key, owner="worker 0", operation="loading a checkpoint",
                deadline_seconds=max(60.0, self.seat.deadline_seconds),
            )  # fmt: skip
        self.task.optimizer.state.clear()  # the server has it
        self.version = -1
