"""Networks of simulated devices: blocks that sleep as long as a profile says and carry real
tensors of the sizes that it says, so that several "GPUs" and their links fit on two cores.

What is real: processes, messages, their bytes over limited links (`windlass.train.sim`),
schedules, the exchange of gradients, the optimiser. What is not: the arithmetic, whose place a
sleep takes. Half of a backward is the inputs', half the weights', so that schedules that do them
apart can.
"""

from __future__ import annotations

import socket
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn

from windlass.train import Data, Task
from windlass.train.planning.links import Link
from windlass.train.planning.profile import BlockCost, Profile
from windlass.train.seat import Seat

FIXED = 0.2
"""Of a batch's time that a part of it takes, however small."""
_BULK, _PINGS = 3 << 20, 20


class _Compute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, block: Block) -> Tensor:
        ctx.shapes, ctx.block = (value.shape, weight.shape), block
        block.sleep(block.cost.forward_ms, len(value))
        return value.new_zeros(len(value), block.width)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        block: Block = ctx.block
        share = 1.0 if not block.cost.parameter_bytes else 0.5
        value, weight = ctx.shapes
        block.sleep(share * block.cost.backward_ms, len(gradients[0]))
        given = gradients[0].new_zeros(value) if ctx.needs_input_grad[0] else None
        return given, gradients[0].new_zeros(weight), None


class _Weigh(torch.autograd.Function):
    """The weights' half of a backward, on the branch that leads to them alone."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, block: Block, samples: int) -> Tensor:
        ctx.block, ctx.samples = block, samples
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        block: Block = ctx.block
        block.sleep(0.5 * block.cost.backward_ms, ctx.samples)
        return gradients[0], None, None


class Block(nn.Module):
    """One block of a profile, of a batch of any size."""

    def __init__(self, cost: BlockCost, batch: int) -> None:
        super().__init__()
        self.cost = cost
        self.batch = batch
        self.width = max(1, round(cost.activation_bytes / batch / 4))
        self.weight = nn.Parameter(torch.zeros(max(1, cost.parameter_bytes // 4)))

    def sleep(self, milliseconds: float, samples: int) -> None:
        share = 1.0 if samples == self.batch else FIXED + (1 - FIXED) * samples / self.batch
        time.sleep(milliseconds / 1000 * share)

    def forward(self, value: Tensor) -> Tensor:
        weight: Tensor = self.weight
        if self.cost.parameter_bytes:
            weight = _Weigh.apply(weight, self, len(value))  # type: ignore[no-untyped-call]
        found: Tensor = _Compute.apply(value, weight, self)  # type: ignore[no-untyped-call]
        return found


def chain(profile: Profile) -> Profile:
    """The blocks in a row, each that has no parameters as a part of the one before it."""
    merged: list[BlockCost] = []
    for block in profile.blocks:
        if merged and not block.parameter_bytes:
            last = merged.pop()
            block = BlockCost(
                last.name, last.forward_ms + block.forward_ms,
                last.backward_ms + block.backward_ms,
                block.activation_bytes if block.time_ms else last.activation_bytes,
                last.parameter_bytes, last.saved_bytes + block.saved_bytes,
            )  # fmt: skip
        merged.append(block)
    edges = tuple((at, at + 1) for at in range(len(merged) - 1))
    return Profile(profile.batch, tuple(merged), edges, optimiser_factor=0.0)


def scaled(profile: Profile, times: float, sizes: float) -> Profile:
    """The same with other units: milliseconds and bytes times these."""
    blocks = tuple(
        BlockCost(
            block.name, block.forward_ms * times, block.backward_ms * times,
            round(block.activation_bytes * sizes), round(block.parameter_bytes * sizes),
            round(block.saved_bytes * sizes),
        )
        for block in profile.blocks
    )  # fmt: skip
    return Profile(profile.batch, blocks, profile.edges, profile.optimiser_factor)


def task_of(profile: Profile, batch: int) -> Task:
    """`batch` samples in a step, over all workers."""
    model = nn.Sequential(*(Block(each, profile.batch) for each in profile.blocks))
    inputs = torch.zeros(batch, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    return Task(model, _loss, optimizer, Data((inputs,), batch, shuffle=False))


def _loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    return model(batch[0]).sum(), len(batch[0])


def measured_link(seat: Seat) -> Link:
    """Between worker 0 and worker 1, by ping and by bulk, one way; told to the others too. A
    ring's sync then counts twice the parameters: these links are as fast both ways at once."""
    if seat.rank == 1:
        with socket.create_server((seat.host, 0)) as listener:
            seat.meeting.put("link probe", f"{seat.host} {listener.getsockname()[1]}".encode())
            connection, _ = listener.accept()
        with connection:
            for size in [1] * _PINGS + [_BULK] * 3:
                left = size
                while left:
                    left -= len(connection.recv(left))
                connection.sendall(b".")
    elif seat.rank == 0:
        where = seat.meeting.get("link probe", operation="probing", deadline_seconds=60)
        host, port = where.decode().split()
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ping = statistics.median(_sent(connection, 1) for _ in range(_PINGS))
            bulk = statistics.median(_sent(connection, _BULK) for _ in range(3))
        rate = _BULK / max(bulk - ping, 1e-6)
        seat.meeting.put("link", f"{rate} {ping / 2}".encode())
    found = seat.meeting.get("link", operation="probing", deadline_seconds=120)
    rate, latency = map(float, found.split())
    return Link(rate, f"measured {rate * 8 / 1e6:.0f}Mbit", latency, sync_factor=2.0)


def _sent(connection: socket.socket, size: int) -> float:
    began = time.perf_counter()
    connection.sendall(bytes(size))
    connection.recv(1)
    return time.perf_counter() - began
