"""`ps:async` as a user has it: a Trainer on each member, one server."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from benchmarks.peers import network
from windlass import train as wt
from windlass.train.group import Group
from windlass.train.seat import Seat


def contest(seat: Seat, size: str, updates: int) -> dict[str, Any] | None:
    model = network.network(size)
    x, y = (torch.from_numpy(each) for each in network.digits())
    task = wt.Task(
        model,
        wt.sum_loss(cross_entropy, reduction="sum"),
        torch.optim.SGD(model.parameters(), network.RATE),
        wt.Data((x, y), network.BATCH * seat.workers, drop_last=True),
    )
    with wt.Trainer(task, "ps:async", seat=seat) as trainer:
        if seat.role == "server":
            return None
        names = [f"worker {n}" for n in range(seat.workers)]
        seat.meeting.gather("ready", b"", names, operation="a start", deadline_seconds=60)
        began = time.perf_counter()
        while trainer.cursor.steps < updates:
            for batch in trainer.batches():
                trainer.step(batch)
                if trainer.cursor.steps == updates:
                    break
        seconds = time.perf_counter() - began
        trainer.drain()
    counted = seat.counters.to_json()
    moved = sum(counted["sent_bytes"].values()) + sum(counted["received_bytes"].values())
    loss = network.loss_of(model) if seat.rank == 0 else None
    return {"seconds": seconds, "loss": loss, "bytes": moved}


def main() -> None:
    with Group(network.WORKERS, 1, threads=1, silent_seconds=60) as group:
        before = {"bytes": 0}

        def run(size: str, updates: int) -> dict[str, Any]:
            answers = group.call(contest, size, updates, timeout_seconds=300)
            found = [each for each in answers.values() if each is not None]
            moved = sum(each["bytes"] for each in found)  # the members count on from call to call
            fresh, before["bytes"] = moved - before["bytes"], moved
            return {
                "seconds": max(each["seconds"] for each in found),
                "updates": updates * network.WORKERS,
                "loss": answers["worker 0"]["loss"],
                "bytes": fresh,
            }

        network.answer(run)


if __name__ == "__main__":
    from benchmarks.peers.ours import main as begin  # the members import it by this name

    begin()
