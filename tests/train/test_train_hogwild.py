"""Hogwild (1.16): one vector in shared memory, many workers, no waiting."""

from __future__ import annotations

import dataclasses
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windlass.train as wt
from windlass.core.errors import InvalidInput, MemberLost
from windlass.train.comm.sharedmemory import SharedTensors
from windlass.train.data import Batch, Cursor
from windlass.train.group import Group
from windlass.train.runners.hogwild import Event, Hogwild, HogwildRunner, write
from windlass.train.seat import Seat

WORKERS = ["worker 0", "worker 1", "worker 2"]


TOLD: queue.SimpleQueue[str] = queue.SimpleQueue()


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    def told(name: str, what: dict[str, Any], _: bytes) -> None:
        TOLD.put(f"{name} {what['is']}")

    with Group(3, threads=1, deadline_seconds=20, silent_seconds=60, told=told) as found:
        yield found


class Vector(nn.Module):
    def __init__(self, size: int = 48) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, size, dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w + self.b.sum()


def squares(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    return ((model(x) - y) ** 2).sum(), len(y)


def linear(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    """Its gradient is the batch itself: elements of x that are 0 are not touched."""
    return (batch * model.w).sum(), 1


def make(loss: Any = squares, momentum: float = 0.0, rate: float = 0.01) -> wt.Task:
    torch.manual_seed(3)
    model = Vector()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=momentum)
    return wt.Task(model, loss, optimizer, wt.Data((torch.zeros(64),), 4))


def data(steps: int, rank: int, size: int = 8) -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(100 * rank + steps)
    x = torch.randn(size, 48, generator=dice, dtype=torch.float64)
    return x, x.sum(1) + 2


def batch(steps: int, content: Any) -> Batch:
    return Batch(Cursor(0, steps, steps), (0,), content)


def train(
    seat: Seat, steps: int, lock: bool, momentum: float = 0.0, rate: float = 0.01
) -> tuple[dict[str, Any], list[Event], dict[str, Any]]:
    task = make(squares, momentum, rate)
    runner = Hogwild(lock=lock).runner(task, seat)
    assert isinstance(runner, HogwildRunner)
    runner.trace = []
    seat.counters = type(seat.counters)()
    runner.counters = seat.counters
    for step in range(steps):
        runner.step(batch(step, data(step, seat.rank)))
    runner.finish()
    runner.drain()
    runner.close()
    return task.model.state_dict(), runner.trace, seat.counters.to_json()


def train_one(seat: Seat, steps: int, lock: bool, momentum: float) -> dict[str, Any]:
    return train(dataclasses.replace(seat, workers=1), steps, lock, momentum)[0]


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_worker_is_sgd_to_the_bit(group: Group, lock: bool, momentum: float) -> None:
    """1.16, first oracle."""
    found = group.call(train_one, 30, lock, momentum, only=["worker 0"])["worker 0"]
    task = make(squares, momentum)
    for step in range(30):
        sgd(task, data(step, 0))
    assert same(found, task.model.state_dict())


def sgd(task: wt.Task, content: Any) -> None:
    task.optimizer.zero_grad()
    total, count = task.loss_of(content)
    total.backward()
    for each in task.model.parameters():
        if each.grad is not None:
            each.grad.div_(count)
    task.optimizer.step()


def train_disjoint(seat: Seat, steps: int) -> tuple[Tensor, int]:
    task = make(linear, momentum=0.9, rate=0.1)
    runner = Hogwild().runner(task, seat)
    for step in range(steps):
        runner.step(batch(step, own_part(step, seat.rank)))
    runner.finish()
    runner.drain()
    runner.close()
    return task.model.state_dict()["w"], seat.counters.events["conflicts"]


def own_part(step: int, rank: int) -> Tensor:
    """Interleaved elements: three workers in every cache line."""
    x = torch.zeros(48, dtype=torch.float64)
    x[rank::3] = torch.randn(
        16, dtype=torch.float64, generator=torch.Generator().manual_seed(step * 3 + rank)
    )
    return x


def test_updates_of_different_elements_add_up_exactly(group: Group) -> None:
    """1.16: disjoint support, any interleaving, to the bit."""
    answers = group.call(train_disjoint, 400)
    expected = torch.empty(48, dtype=torch.float64)
    for rank in range(3):
        task = make(linear, momentum=0.9, rate=0.1)
        for step in range(400):
            sgd(task, own_part(step, rank))
        expected[rank::3] = task.model.state_dict()["w"][rank::3]
    for found, conflicts in answers.values():
        assert torch.equal(found, expected)
        assert conflicts == 0


def test_with_the_lock_the_order_of_events_gives_the_same_bits(group: Group) -> None:
    """1.16: trace replay."""
    answers = group.call(train, 60, True, 0.9)
    replayed = replay([event for _, trace, _ in answers.values() for event in trace], 0.9)
    for state, _, counters in answers.values():
        assert same(state, replayed)
        assert sum(counters["staleness"].values()) == 60
    assert sum(counters["events"].get("conflicts", 0) for _, _, counters in answers.values()) > 0


def replay(events: list[Event], momentum: float) -> dict[str, Any]:
    """The same arithmetic in one process, in an order that the versions allow."""
    first = [each.detach().clone() for each in make().model.parameters()]
    history: list[list[Tensor]] = [[each] for each in first]
    tasks = {rank: make(squares, momentum) for rank in range(3)}
    waiting = {rank: [e for e in events if e.worker == rank] for rank in range(3)}
    writing: list[tuple[int, int, Tensor, Tensor]] = []
    while any(waiting.values()) or writing:
        moved = False
        for rank, left in waiting.items():
            if left and all(len(history[at]) > v for at, v in enumerate(left[0].read)):
                event, moved = left.pop(0), True
                own = [each.detach() for each in tasks[rank].model.parameters()]
                before = [history[at][v].clone() for at, v in enumerate(event.read)]
                for mine, was in zip(own, before, strict=True):
                    mine.copy_(was)
                sgd(tasks[rank], data(event.steps, rank))
                for at, version in enumerate(event.written):
                    if version is not None:
                        writing.append((at, version, before[at], own[at].clone()))
        for each in sorted(writing, key=lambda one: one[:2]):
            at, version, was, new = each
            if len(history[at]) == version:
                history[at].append(history[at][-1].clone())
                write(history[at][-1], was, new)
                writing = [one for one in writing if one is not each]
                moved = True
        assert moved, "the events contradict each other"
    names = [name for name, _ in make().model.named_parameters()]
    return {name: versions[-1] for name, versions in zip(names, history, strict=True)}


def test_where_two_wrote_both_updates_count() -> None:
    shared = torch.tensor([1.0, 1.0, 1.0])
    was, own = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.0, 2.0])
    assert write(shared, was, own) == (True, True)
    assert shared.tolist() == [1.5, 1.0, 2.0]
    assert write(shared, own, own) == (False, False)


def test_without_the_lock_a_convex_problem_ends_as_well(group: Group) -> None:
    """1.16: dense and lock-free, the loss is within 0.2% of the first loss of the locked run's."""
    losses = {}
    for lock in (True, False):
        state = group.call(train, 250, lock, 0.0, 0.005)["worker 0"][0]
        losses[lock] = float(loss_of(state))
    begun = float(loss_of(make().model.state_dict()))
    assert losses[True] < begun / 500
    assert losses[False] <= losses[True] + begun / 500


def loss_of(state: dict[str, Any]) -> Tensor:
    model = Vector()
    model.load_state_dict(state)
    x, y = data(0, 7, 256)
    with torch.no_grad():
        return ((model(x) - y) ** 2).mean()


def train_until_killed(seat: Seat, lock: bool) -> tuple[float, list[Any], int]:
    task = make(squares, rate=0.001)
    runner = Hogwild(lock=lock).runner(task, seat)
    step = 0
    while seat.rank == 2 or "worker 2" not in seat.meeting.roster.lost:
        runner.step(batch(step, data(step % 50, seat.rank)))
        step += 1
        if step == 20 and seat.rank == 2:
            seat.meeting.tell({"is": "busy"})
    for more in range(20):
        runner.step(batch(step + more, data(more, seat.rank)))
    runner.finish()
    runner.drain()
    runner.close()
    faults = [(fault.kind, fault.who) for fault in seat.counters.faults]
    seat.counters.faults.clear()
    return float(loss_of(task.model.state_dict())), faults, step


@pytest.mark.parametrize("lock", [False, True])
def test_a_killed_worker_leaves_the_vector_usable(group: Group, lock: bool) -> None:
    """1.16, failure: also when it dies while it holds a lock, as it often does here."""
    number = group.begin(train_until_killed, lock)
    assert TOLD.get(timeout=60) == "worker 2 busy"
    group.kill("worker 2")
    answers = group.finish(number, only=WORKERS[:2], timeout_seconds=60)
    group.start_again("worker 2")
    first, second = answers["worker 0"], answers["worker 1"]
    assert first[0] == second[0] < float(loss_of(make().model.state_dict()))
    assert first[1] == [("death", "worker 2")]


def make_and_die() -> wt.Task:
    """Worker 0 dies at its twentieth step."""
    task, seen = make(squares, rate=0.001), []
    task.data = wt.Data(data(0, 0, 64), 4)

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        seen.append(1)
        if len(seen) == 20 and os.environ["RANK"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        return squares(model, batch)

    task.loss = loss
    return task


def test_a_training_without_its_first_worker_still_has_a_model() -> None:
    run = wt.fit(make_and_die, "hogwild", workers=2, epochs=4, progress=False)
    assert run.result.lost == ("worker 0",)
    assert run.result.workers == 1 and run.result.steps == 64
    assert float(loss_of(run.state)) < float(loss_of(make().model.state_dict()))


def hold_a_lock(seat: Seat, seconds: float) -> str:
    runner = Hogwild(lock=True).runner(make(), seat)
    assert isinstance(runner, HogwildRunner)
    runner.seat = dataclasses.replace(seat, deadline_seconds=seconds)
    if seat.rank == 2:
        with runner.shared.lock(0, 5):
            seat.meeting.tell({"is": "holding"})
            threading.Event().wait(120)
    seat.meeting.get("go", operation="waiting", deadline_seconds=60)
    runner.step(batch(0, data(0, seat.rank)))
    return "done"


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_holder_that_stops_is_named_and_one_that_dies_lets_go(
    group: Group, how: signal.Signals
) -> None:
    number = group.begin(hold_a_lock, 2.0)
    assert TOLD.get(timeout=60) == "worker 2 holding"
    group.kill("worker 2", how)
    group.gathering._put(f"{number}/go", b"")  # as a member would
    began = time.monotonic()
    if how == signal.SIGSTOP:
        with pytest.raises(MemberLost, match="lock of tensor 0") as caught:
            group.finish(number, only=WORKERS[:2])
        assert f"process {group.pid('worker 2')}" in str(caught.value)
    else:
        assert set(group.finish(number, only=WORKERS[:2]).values()) == {"done"}
    assert time.monotonic() - began < 50
    group.start_again("worker 2")


def save_and_load(seat: Seat) -> bool:
    task = make(squares, 0.9)
    alone = dataclasses.replace(seat, workers=1)
    runner = Hogwild().runner(task, alone)
    for step in range(10):
        runner.step(batch(step, data(step, 0)))
    shared, saved = runner.shared_state(), runner.local_state()
    kept = {name: value.clone() for name, value in task.model.state_dict().items()}
    assert shared is not None and saved == {}
    import copy

    shared = copy.deepcopy(shared)
    for step in range(10, 20):
        runner.step(batch(step, data(step, 0)))
    runner.drain()
    ended = {name: value.clone() for name, value in task.model.state_dict().items()}
    runner.load_shared_state(shared)
    runner.drain()
    back = same(kept, task.model.state_dict())
    for step in range(10, 20):
        runner.step(batch(step, data(step, 0)))
    runner.drain()
    return back and same(ended, task.model.state_dict())


def test_what_was_saved_in_mid_run_goes_on_to_the_same_end(group: Group) -> None:
    assert group.call(save_and_load, only=["worker 0"])["worker 0"]


def on_a_gpu(seat: Seat) -> None:
    Hogwild().runner(make(), dataclasses.replace(seat, device=torch.device("cuda")))


def test_a_gpu_is_refused_with_the_reason(group: Group) -> None:
    with pytest.raises(InvalidInput, match="main memory") as caught:
        group.call(on_a_gpu, only=["worker 0"])
    assert "device='cpu'" in caught.value.hint
    task = make()
    task.model.to("meta")
    with pytest.raises(InvalidInput, match="found a model on meta"):
        Hogwild().check(task, 2, 0)


def from_elsewhere(seat: Seat) -> str:
    """Worker 1 is told a memory that is not there, as it would be on another machine."""
    if seat.rank == 0:
        seat.meeting.put("hogwild/memory", b"999999999 5 " + b"00" * 16)
        return ""
    try:
        Hogwild().runner(make(), dataclasses.replace(seat, workers=2))
    except InvalidInput as err:
        return str(err) + err.hint
    return "it was let in"


def test_a_worker_on_another_machine_is_refused(group: Group) -> None:
    said = group.call(from_elsewhere, only=WORKERS[:2])["worker 1"]
    assert "worker 1 cannot open worker 0's memory" in said and "one machine" in said


def test_other_memory_is_not_taken_for_ours() -> None:
    mine = SharedTensors([torch.ones(4)], 1)
    pid, fd, token = mine.where.split()
    with pytest.raises(ValueError, match="another size"):
        SharedTensors([torch.ones(500)], 1, mine.where)
    with pytest.raises(ValueError, match="not the same memory"):
        SharedTensors([torch.ones(4)], 1, f"{pid} {fd} {'00' * 16}")
    again = SharedTensors([torch.zeros(4)], 1, mine.where)
    again.tensors[0][2] = 5.0
    assert mine.tensors[0].tolist() == [1.0, 1.0, 5.0, 1.0]
    mine.close()
    again.close()
    assert again.tensors[0].sum() == 8.0, "the memory outlives its name"


def test_nothing_is_left_on_the_disk(group: Group) -> None:
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    group.call(train, 3, False)
    after = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    assert not {name for name in after - before if "windlass" in name}


def test_momentum_is_warned_of() -> None:
    assert Hogwild().check(make(momentum=0.9), 2, 0)
    assert not Hogwild().check(make(), 2, 0)
    assert not Hogwild().check(make(momentum=0.9), 1, 0)
