"""1.1: synchronous data parallel equals one process on the whole batch, to the last digits."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput, TrainingFailed
from windlass.train.data import Batch
from windlass.train.group import Group
from windlass.train.runners.collective import AllReduce, CollectiveRunner
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.tasks import alone, flat, network, regression

WORKERS = ["worker 0", "worker 1", "worker 2"]


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(3, silent_seconds=30.0) as found:  # oracles, not faults: a busy machine is no loss
        yield found


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=0.01)


def shares(runner: CollectiveRunner, first: int, last: int) -> Iterator[Batch]:
    data, seat = runner.task.data, runner.seat
    for step in range(first, last):
        yield data.batch(data.at(step), seat.rank, seat.workers)


def train(seat: Seat, options: dict[str, Any], global_batch: int, steps: int) -> dict[str, Any]:
    torch.manual_seed(seat.rank)
    model = network(seed=seat.rank)  # worker 0's is what all begin with
    task = regression(global_batch=global_batch, model=model, optimizer=momentum)
    before = dict(seat.counters.sent_bytes)
    runner = AllReduce(**options).runner(task, seat)
    try:
        states = []
        for batch in shares(runner, 0, steps):
            runner.step(batch)
            states.append(flat(task.model))
        runner.finish()
        runner.drain()
    finally:
        runner.close()
    sent = {k: v - before.get(k, 0) for k, v in seat.counters.sent_bytes.items()}
    return {"states": states, "sent": sent}


def close_to(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == torch.float64
    error = float((found - expected).abs().max() / expected.abs().max())
    assert error < 2e-15, error


@pytest.mark.parametrize("options", [{}, {"ring": True}, {"bucket_mib": 1e-4}, {"check_every": 1}])
@pytest.mark.parametrize("global_batch", [6, 5, 2], ids=["even", "uneven", "with empty shares"])
def test_it_equals_one_process_and_replicas_are_the_same_to_the_bit(
    group: Group, options: dict[str, Any], global_batch: int
) -> None:
    steps = 7
    answers = group.call(train, options, global_batch, steps)
    for step in range(steps):
        for name in WORKERS[1:]:
            assert torch.equal(answers[name]["states"][step], answers["worker 0"]["states"][step])
    reference = alone(regression(global_batch=global_batch, optimizer=momentum), steps)
    close_to(answers["worker 0"]["states"][-1], flat(reference.model))


@pytest.mark.parametrize("ring", [False, True])
def test_each_worker_sends_two_times_p_minus_1_over_p_of_the_gradient(
    group: Group, ring: bool
) -> None:
    answers = group.call(count_bytes, ring)
    assert set(answers.values()) == {4 * (2 * 2 * 30 * 8 // 3)}, "4 steps of 30 doubles, p = 3"


def count_bytes(seat: Seat, ring: bool) -> int:
    frozen = nn.Linear(6, 2, bias=False).double().requires_grad_(False)
    task = regression(model=nn.Sequential(nn.Linear(4, 6).double(), frozen))
    before = seat.counters.sent_bytes["gradient"]
    runner = AllReduce(ring=ring).runner(task, seat)
    for batch in shares(runner, 0, 4):
        runner.step(batch)
    runner.close()
    return seat.counters.sent_bytes["gradient"] - before


def run_out(seat: Seat, ring: bool) -> tuple[Tensor, int]:
    """Worker r has 2 + 2r batches of its own."""
    task = regression(60, 3, optimizer=momentum)
    runner = AllReduce(ring=ring).runner(task, seat)
    for batch in shares(runner, 0, 2 + 2 * seat.rank):
        runner.step(batch)
    runner.finish()
    joined = seat.counters.events["joined steps"]
    runner.close()
    return flat(task.model), joined


def test_a_worker_without_more_data_follows_the_others_who_divide_by_what_was_given(
    group: Group,
) -> None:
    answers = group.call(run_out, False)
    task = regression(60, 3, optimizer=momentum)
    for step in range(6):
        task.optimizer.zero_grad()
        counts = 0.0
        for rank in range(3):
            if step < 2 + 2 * rank:
                share = task.data.batch(task.data.at(step), rank, 3)
                total, count = task.loss_of(share.content)
                total.backward()
                counts += count
        for each in task.model.parameters():
            assert each.grad is not None
            each.grad.div_(counts)
        task.optimizer.step()
    for name in WORKERS:
        assert torch.equal(answers[name][0], answers["worker 0"][0])
        close_to(answers[name][0], flat(task.model))
    assert [answers[name][1] for name in WORKERS] == [4, 2, 0]


class Forked(nn.Module):
    """`spare` is used by nobody, `first` by worker 0 alone."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.spare, self.first = network(), nn.Linear(3, 3).double(), network(seed=5)
        self.wide = False

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.body(inputs)
        return found + self.first(inputs) if self.wide else found


def train_forked(seat: Seat) -> tuple[list[str], Tensor, Tensor]:
    torch.manual_seed(0)
    model = Forked()
    model.wide = seat.rank == 0
    task = regression(model=model, optimizer=momentum)
    before = torch.cat([each.detach().reshape(-1) for each in model.spare.parameters()])
    runner = AllReduce().runner(task, seat)
    for batch in shares(runner, 0, 3):
        runner.step(batch)
    runner.finish()
    runner.close()
    after = torch.cat([each.detach().reshape(-1) for each in model.spare.parameters()])
    assert torch.equal(before, after), "no weight decay on what has no gradient"
    return runner.unused, flat(model), before


def test_parameters_that_no_worker_used_are_named_and_left_alone(group: Group) -> None:
    answers = group.call(train_forked)
    for name in WORKERS:
        assert answers[name][0] == ["spare.weight", "spare.bias"]
        assert torch.equal(answers[name][1], answers["worker 0"][1])


def spoil(seat: Seat) -> None:
    task = regression()
    runner = AllReduce(check_every=2).runner(task, seat)
    try:
        for batch in shares(runner, 0, 2):
            if seat.rank == 1 and batch.cursor.steps == 1:
                with torch.no_grad():
                    task.model[2].weight[0, 0] += 1e-15  # type: ignore[index,union-attr,operator]
            runner.step(batch)
    finally:
        runner.close()


def test_a_replica_that_differs_by_one_bit_is_found_and_named(group: Group) -> None:
    with pytest.raises(TrainingFailed, match=r"worker 1: .* at step 1, first in 2.weight"):
        group.call(spoil)


def halves(seat: Seat) -> tuple[Tensor, Tensor]:
    """Two batches at a time, with a save and load in the middle of a pair; and the same whole."""

    def begin() -> tuple[Task, CollectiveRunner]:
        task = regression(44, 6, optimizer=momentum)
        return task, AllReduce(accumulate=2).runner(task, seat)

    task, runner = begin()
    for batch in shares(runner, 0, 7):
        runner.step(batch)
    runner.finish()
    runner.close()
    other, runner = begin()
    for batch in shares(runner, 0, 3):
        runner.step(batch)
    file, applied = io.BytesIO(), runner.applied
    assert applied == 2, "the third waits for the fourth"
    torch.save((runner.shared_state(), runner.local_state()), file)
    runner.close()
    file.seek(0)
    shared, local = torch.load(file, weights_only=True)
    other, runner = begin()
    runner.load_shared_state(shared)
    runner.load_local_state(local)
    for batch in shares(runner, applied, 7):
        runner.step(batch)
    runner.finish()
    runner.close()
    return flat(task.model), flat(other.model)


def test_gradients_gathered_over_two_batches_equal_the_double_batch_and_survive_a_save(
    group: Group,
) -> None:
    answers = group.call(halves)
    reference = regression(44, 12, optimizer=momentum)
    alone(reference, 3)
    last = reference.data.batch(reference.data.at(3)).content  # 6 of its 8: one batch is left over
    reference.optimizer.zero_grad()
    total, count = reference.loss_of(tuple(part[:6] for part in last))
    total.backward()
    for each in reference.model.parameters():
        assert each.grad is not None
        each.grad.div_(count)
    reference.optimizer.step()
    for whole, resumed in answers.values():
        assert torch.equal(whole, resumed)
        close_to(whole, flat(reference.model))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.body = nn.BatchNorm1d(4).double(), network()

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.body(self.norm(inputs))
        return found


def train_normed(seat: Seat, synced: bool) -> tuple[Tensor, Tensor]:
    task = regression(model=Normed(), optimizer=momentum)
    runner = AllReduce(sync_batchnorm=synced).runner(task, seat)
    for batch in shares(runner, 0, 5 if synced else 3):  # the 4th has a share of one sample
        runner.step(batch)
    runner.finish()
    runner.drain()
    runner.close()
    return flat(task.model), torch.cat([task.model.norm.running_mean, task.model.norm.running_var])


def test_synchronised_batchnorm_equals_the_big_batch_and_the_other_does_not(group: Group) -> None:
    reference = alone(regression(model=Normed(), optimizer=momentum), 5)
    norm = reference.model.norm
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None and norm.running_var is not None
    for parameters, buffers in group.call(train_normed, True).values():
        close_to(parameters, flat(reference.model))
        close_to(buffers, torch.cat([norm.running_mean, norm.running_var]))
    apart = group.call(train_normed, False)
    assert not torch.allclose(apart["worker 0"][0], flat(reference.model), rtol=1e-6)
    assert torch.equal(apart["worker 0"][1], apart["worker 2"][1]), "buffers are worker 0's"


def test_batchnorm_is_spoken_of_at_the_start_and_impossible_options_are_refused() -> None:
    task = regression(model=nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).double())
    said = AllReduce().check(task, 2, 0)
    assert len(said) == 1 and said[0].startswith("1: BatchNorm")
    assert AllReduce(sync_batchnorm=True).check(task, 2, 0) == []
    with pytest.raises(InvalidInput, match="4 samples for 5 workers"):
        AllReduce(sync_batchnorm=True).check(task, 5, 0)
    with pytest.raises(InvalidInput, match="servers: allreduce has none"):
        AllReduce().check(task, 2, 1)
