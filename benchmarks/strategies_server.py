"""Claim: a parameter server moves at least 0.5x of what as many raw sockets move over loopback.

100 MB of parameters, 2 workers, 1 server, all on this machine. A round of a worker is a pull and a
push, each answered; the server also steps its optimiser with each push. The peer is the same
processes with a plain socket for each worker: the server sends 100 MB and receives 100 MB into
memory that is used again, a thread for each socket. Nothing is computed by the workers. What is
large is read out of the sender's memory, as always on one machine (`comm/lending.py`).
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import torch
from torch import nn

from benchmarks.measure import Row, at_least, interleave, median, script
from windlass.train.data import Data
from windlass.train.group import Group
from windlass.train.runners.server import GradientRunner
from windlass.train.runners.serverstrategies import Async
from windlass.train.seat import Seat
from windlass.train.task import Task, sum_loss

REPEATS = 5
WORKERS = 2
ELEMENTS = 25_000_000  # float32: 100 MB
ROUNDS = 4
SECONDS = 120.0


def measure() -> list[Row]:
    with Group(WORKERS, 1, threads=1, deadline_seconds=SECONDS, silent_seconds=30.0) as group:
        found = interleave(
            {
                "server": lambda: _rate(group.call(_through_the_server)),
                "sockets": lambda: _rate(group.call(_through_sockets)),
            },
            REPEATS,
        )
    claim = f"{WORKERS} workers pull and push 100 MB (as many raw sockets)"
    return [at_least(claim, median(found["server"]), median(found["sockets"]), 0.5, _shown)]


def _rate(answers: dict[str, Any]) -> float:
    """Bytes a second of all workers together, both ways."""
    slowest = max(seconds for seconds in answers.values() if seconds is not None)
    return WORKERS * ROUNDS * 2 * ELEMENTS * 4 / slowest


def _shown(rate: float) -> str:
    return f"{rate / 1e6:,.0f} MB/s"


def _make() -> Task:
    model = nn.Linear(ELEMENTS, 1, bias=False)
    data = Data((torch.zeros(4, 1), torch.zeros(4)), 4)
    return Task(
        model, sum_loss(nn.functional.mse_loss), torch.optim.SGD(model.parameters(), 0.1), data
    )


def _through_the_server(seat: Seat) -> float | None:
    task, strategy = _make(), Async()
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            serving.run()
        return None
    runner = strategy.runner(task, seat)
    assert isinstance(runner, GradientRunner)
    try:
        gradient = [torch.zeros(1, ELEMENTS)]
        runner.push(gradient, 1.0, [0], 0, [])  # once unmeasured: memory is there then
        runner.pull(0)
        _all_here(seat)
        began = time.perf_counter()
        for number in range(ROUNDS):
            runner.pull(number)
            runner.push(gradient, 1.0, [number], number, [])
        return time.perf_counter() - began
    finally:
        runner.close()


def _through_sockets(seat: Seat) -> float | None:
    if seat.role == "server":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            seat.meeting.put("port", str(listener.getsockname()[1]).encode())
            serving = [
                threading.Thread(target=_serve, args=(listener.accept()[0],))
                for _ in range(seat.workers)
            ]
            for each in serving:
                each.start()
            for each in serving:
                each.join()
        return None
    port = int(seat.meeting.get("port", operation="meeting", deadline_seconds=SECONDS))
    memory = memoryview(bytearray(ELEMENTS * 4))
    with socket.create_connection(("127.0.0.1", port)) as mine:
        _receive(mine, memory)
        mine.sendall(memory)
        _all_here(seat)
        began = time.perf_counter()
        for _ in range(ROUNDS):
            _receive(mine, memory)
            mine.sendall(memory)
        mine.shutdown(socket.SHUT_WR)
        mine.recv(1)  # it has everything
        return time.perf_counter() - began


def _serve(connection: socket.socket) -> None:
    memory = memoryview(bytearray(ELEMENTS * 4))
    with connection:
        for _ in range(ROUNDS + 1):
            connection.sendall(memory)
            _receive(connection, memory)
        connection.recv(1)


def _receive(connection: socket.socket, memory: memoryview) -> None:
    at = 0
    while at < len(memory):
        count = connection.recv_into(memory[at:])
        if not count:
            raise ConnectionResetError("the other side is gone")
        at += count


def _all_here(seat: Seat) -> None:
    names = [f"worker {n}" for n in range(seat.workers)]
    seat.meeting.gather("here", b"", names, operation="meeting", deadline_seconds=SECONDS)


if __name__ == "__main__":
    script(measure)
