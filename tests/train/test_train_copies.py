"""1.18: a server may be lost at any message. Each acknowledged push is in the state exactly once,
versions go on, and the log of what is left replays to the same bits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from windlass.core.errors import MemberLost, TrainingFailed
from windlass.train.comm.transport import Request
from windlass.train.policies.compression import OneBit, TopK
from windlass.train.policies.filters import Filter
from windlass.train.runners.inbox import Inbox
from windlass.train.runners.server import GradientRunner
from windlass.train.runners.serverstrategies import (
    Async,
    ServerStrategy,
    SoftSync,
    StaleSynchronous,
)
from windlass.train.runners.serving import ParameterServing
from windlass.train.runners.shard import Row
from windlass.train.seat import Seat
from windlass.train.testing.replay import replay
from windlass.train.testing.tasks import alone, flat, regression
from windlass.train.testing.town import Town

Log = dict[tuple[int, bool], list[Row]]
"""What a server has of each range, as its owner (True) or as the second copy."""


def rows_of(logs: list[Log | None]) -> list[Row]:
    """The owners' rows; the copy's, of a range whose owner was lost when all was done."""
    found: Log = {}
    for log in logs:
        found.update(log or {})
    return [
        row
        for (index, is_owner), rows in found.items()
        if is_owner or (index, True) not in found
        for row in rows
    ]


class Felled(BaseException):
    pass


class Mortal(Inbox):
    """An inbox whose owner ends at its n-th message: before it, or after it was done but before
    anything that it sends has left."""

    def __init__(self, town: Town, serving: ParameterServing, at: int, after: bool) -> None:
        super().__init__(serving._serve)
        self._left, self._afterwards, self._felled = at, after, False
        self._town, self._serving = town, serving

    def do(self, what: Callable[[], None]) -> None:
        self._left -= 1
        if self._felled or self._left > 0:
            if not self._felled:
                super().do(what)
            return
        self._felled = True
        if self._afterwards:
            _stop_sending(self._serving)
            super().do(what)
        self.end()

    def end(self) -> None:
        self._felled = True
        self._serving.endpoint.close()
        self._town.fell(self._serving.seat.name)
        self.put(lambda: None)  # its thread, if this is another

    def next(self, seconds: float) -> None:
        super().next(seconds)
        if self._felled:
            raise Felled


def _stop_sending(serving: ParameterServing) -> None:
    """In the endpoint's thread, which may be this one."""
    endpoint, done = serving.endpoint, threading.Event()

    def stop() -> None:
        for door in list(endpoint.doors):
            door.close()
        done.set()

    if threading.current_thread() is endpoint._thread:
        stop()
    else:
        endpoint.post(stop)
        assert done.wait(20)


def serve(seat: Seat, strategy: ServerStrategy, town: Town, at: int, after: bool) -> Log | None:
    serving = strategy.serving(regression(), seat)
    assert isinstance(serving, ParameterServing)
    if at:
        serving._inbox = Mortal(town, serving, at, after)
    try:
        serving.run()
        return {
            (index, held.is_owner): list(held.shard.rows)
            for index, held in serving.copies.held.items()
        }
    except Felled:
        return None
    finally:
        serving.close()


def work(
    seat: Seat, strategy: ServerStrategy, steps: int, on: Callable[[int], None] | None = None
) -> tuple[torch.Tensor, int]:
    """The final parameters, and how many pushes were acknowledged."""
    task = regression()
    runner = strategy.runner(task, seat)
    assert isinstance(runner, GradientRunner)
    try:
        for step in range(steps):
            if on is not None:
                on(step)
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
        runner.finish()
        runner.drain()
        return flat(task.model), runner.number
    finally:
        runner.close()


def fell(
    strategy: ServerStrategy, victim: int, at: int, after: bool, steps: int = 4
) -> tuple[torch.Tensor, list[Row], bool]:
    torch.set_num_threads(1)
    with Town(2, 3, deadline_seconds=60) as town:
        servers = [
            town.start(f"server {n}", serve, strategy, town, at if n == victim else 0, after)
            for n in range(3)
        ]
        workers = [town.start(f"worker {n}", work, strategy, steps) for n in range(2)]
        answers = [each.result(60) for each in workers]
        logs = [each.result(60) for each in servers]
    assert torch.equal(answers[0][0], answers[1][0])
    rows = rows_of(logs)
    found = Counter((row.range, row.worker, row.number) for row in rows)
    assert found == Counter(
        {
            (index, worker, number): 1
            for index in range(strategy.range_count(3))
            for worker, (_, acknowledged) in enumerate(answers)
            for number in range(1, acknowledged + 1)
        }
    ), "each acknowledged push, exactly once"
    for index in range(strategy.range_count(3)):
        versions = sorted({row.version for row in rows if row.range == index})
        assert versions == list(range(len(versions))), "versions go on"
    assert torch.equal(replay(regression, strategy, 2, 3, rows), answers[0][0])
    return answers[0][0], rows, logs[victim] is None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("filter", [OneBit(), TopK(ratio=0.2)], ids=lambda each: each.name)
def test_a_server_lost_at_any_message_loses_nothing_that_was_coded(
    filter: Filter, after: bool
) -> None:
    """With residuals on the workers: what is asked of the new owner again is the same code."""
    strategy = Async(trace=True, copies=2, ranges=5, compress=filter)
    died = [fell(strategy, victim, at, after)[2] for victim, at in ((0, 9), (1, 22), (2, 37))]
    assert any(died), "it did die"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_server_lost_at_any_message_loses_and_repeats_nothing(victim: int, after: bool) -> None:
    strategy = Async(trace=True, copies=2, ranges=5)
    died = [fell(strategy, victim, at, after)[2] for at in range(3 + victim, 60, 8)]
    assert any(died), "it did die"


@pytest.mark.soak  # seven minutes; every eighth message is above
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("strategy", [Async, SoftSync, StaleSynchronous])
def test_a_server_lost_at_each_message_loses_and_repeats_nothing(
    strategy: type[ServerStrategy], victim: int, after: bool
) -> None:
    for at in range(1, 90):
        fell(strategy(trace=True, copies=2, ranges=5), victim, at, after)


@pytest.mark.parametrize("at", [12, 25, 40])
def test_a_synchronous_training_stays_exact_through_the_loss_of_a_server(at: int) -> None:
    found, _, _ = fell(SoftSync(trace=True, copies=2, ranges=5), 1, at, False, steps=6)
    assert float((found - flat(alone(regression(), 6).model)).abs().max()) < 1e-13


def test_a_server_that_comes_back_takes_its_ranges_again() -> None:
    """A loss, then a join; the ranges move twice while pushes go on."""
    torch.set_num_threads(1)
    strategy = SoftSync(trace=True, copies=2, ranges=6)
    back = threading.Event()
    with Town(2, 3, deadline_seconds=60) as town:
        servers = {
            n: town.start(f"server {n}", serve, strategy, town, 30 if n == 1 else 0, False)
            for n in range(3)
        }

        def on(step: int) -> None:
            if step == 8 and not back.is_set():
                servers[1].result(60)
                town.sit("server", 1)
                servers[1] = town.start("server 1", serve, strategy, town, 0, False)
                back.set()
            if step == 20:
                assert town.seats["worker 0"].meeting.roster.present >= {"server 1"}

        workers = [
            town.start("worker 0", work, strategy, 24, on),
            town.start("worker 1", work, strategy, 24, None),
        ]
        answers = [each.result(60) for each in workers]
        logs = [each.result(60) for each in servers.values()]
    assert any(is_owner for _, is_owner in logs[1]), "it holds ranges at the end"
    rows = rows_of(logs)
    assert len(rows) == 24 * 2 * 6
    assert torch.equal(replay(regression, strategy, 2, 3, rows), answers[0][0])
    assert float((answers[0][0] - flat(alone(regression(), 24).model)).abs().max()) < 1e-12


def test_two_successive_servers_lost_at_once_stop_the_training_in_words(tmp_path: Path) -> None:
    strategy = Async(copies=2, ranges=6, snapshots=str(tmp_path), snapshot_every=2)
    servings: dict[str, ParameterServing] = {}

    def serve_known(seat: Seat) -> None:
        serving = strategy.serving(regression(), seat)
        assert isinstance(serving, ParameterServing)
        servings[seat.name] = serving
        try:
            serving.run()
        finally:
            serving.close()
            town.fell(seat.name)  # as its process would end: nobody waits for it to come back

    def on(step: int) -> None:
        if step == 6:
            for name in ("server 1", "server 2"):
                servings[name].endpoint.close()
            for name in ("server 1", "server 2"):
                town.fell(name)

    with Town(2, 3, deadline_seconds=30) as town:
        servers = [town.start(f"server {n}", serve_known) for n in range(3)]
        workers = [
            town.start(f"worker {n}", work, strategy, 4000, None if n else on) for n in range(2)
        ]
        with pytest.raises(
            TrainingFailed, match="both copies were on servers that were lost"
        ) as e:
            servers[0].result(60)
        assert "snapshots of" in str(e.value) and str(tmp_path) in str(e.value)
        for each in (*workers, *servers[1:]):
            with pytest.raises(TrainingFailed):
                each.result(60)
    assert list(tmp_path.glob("*/range-*.pt"))


def test_without_a_second_copy_a_lost_server_ends_the_training_at_once() -> None:
    strategy = Async()
    with Town(2, 2, deadline_seconds=20) as town:
        servers = [
            town.start(f"server {n}", serve, strategy, town, 20 if n else 0, False)
            for n in range(2)
        ]
        workers = [town.start(f"worker {n}", work, strategy, 4000) for n in range(2)]
        for each in workers:
            with pytest.raises(MemberLost, match="server 1 lost in (push|pull) at step"):
                each.result(60)
        for name in ("worker 0", "worker 1"):
            town.fell(name)
        servers[0].result(60)


def test_a_server_started_again_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    """Without a second copy: what came after the snapshot is lost, the training is not."""
    torch.set_num_threads(1)
    strategy = Async(trace=True, snapshots=str(tmp_path), snapshot_every=3)
    with Town(2, 1, deadline_seconds=60) as town:
        first = town.start("server 0", serve, strategy, town, 40, False)
        workers = [town.start(f"worker {n}", work, strategy, 60) for n in range(2)]
        assert first.result(60) is None
        town.sit("server", 0)
        second = town.start("server 0", serve, strategy, town, 0, False)
        answers = [each.result(60) for each in workers]
        rows = rows_of([second.result(60)])
    assert torch.equal(answers[0][0], answers[1][0])
    versions = [row.version for row in rows]
    assert versions == list(range(len(versions)))
    assert 3 * 60 // 2 < len(rows) <= 120


def serve_pushes(seat: Seat, strategy: ServerStrategy, town: Town, pushes: int) -> None:
    """Ends when that many have been applied, before the last one is answered."""
    serving = strategy.serving(regression(), seat)
    assert isinstance(serving, ParameterServing)
    serving._inbox = inbox = Mortal(town, serving, 1 << 30, False)
    answer, done = serving._pulls.answer_push, 0

    def answer_push(request: Request) -> None:
        nonlocal done
        done += 1
        if done < pushes:
            answer(request)
        else:
            inbox.end()

    serving._pulls.answer_push = answer_push  # type: ignore[method-assign]
    try:
        serving.run()
    except Felled:
        return
    finally:
        serving.close()
    raise AssertionError("it was not felled")


@pytest.mark.parametrize("pushes", [1, 6, 11])
def test_a_push_that_was_applied_and_not_answered_is_answered_by_the_next_server(
    pushes: int, tmp_path: Path
) -> None:
    """The server is lost between the two; the next one knows the push from the snapshot."""
    torch.set_num_threads(1)
    strategy = Async(trace=True, snapshots=str(tmp_path), snapshot_every=1)
    with Town(2, 1, deadline_seconds=30) as town:
        first = town.start("server 0", serve_pushes, strategy, town, pushes)
        workers = [town.start(f"worker {n}", work, strategy, 10) for n in range(2)]
        first.result(60)
        town.sit("server", 0)
        second = town.start("server 0", serve, strategy, town, 0, False)
        answers = [each.result(90) for each in workers]
        rows = rows_of([second.result(60)])
    assert [row.version for row in rows] == list(range(20))
    assert Counter((row.worker, row.number) for row in rows) == Counter(
        {(worker, number): 1 for worker in range(2) for number in range(1, 11)}
    ), "each push, exactly once"
    assert torch.equal(replay(regression, strategy, 2, 1, rows), answers[0][0])
