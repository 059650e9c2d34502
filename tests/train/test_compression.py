"""1.6: compressed gradients between workers: nothing is lost, and replicas stay the same."""

from __future__ import annotations

import dataclasses
import io
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from windlass.train.comm.torchdist import form
from windlass.train.comm.torchdist.ring import ring_all_reduce
from windlass.train.group import Group
from windlass.train.policies.compression import BF16, FP16, Compression, OneBit, PowerSGD, TopK
from windlass.train.runners.buckets import Bucket
from windlass.train.runners.collective import AllReduce, CollectiveRunner
from windlass.train.runners.compressed import Compressed
from windlass.train.runners.exchanges import reducer_for
from windlass.train.runners.reducers import Reducer
from windlass.train.runners.striped import Striped
from windlass.train.seat import Seat
from windlass.train.testing.tasks import flat, network, regression

WORKERS = ["worker 0", "worker 1", "worker 2"]
KINDS = [
    OneBit(warmup=2), TopK(ratio=0.1), TopK(ratio=0.05, momentum=0.9, clip=1.0, warmup=3),
    PowerSGD(rank=2, warmup=1), FP16(), BF16(),
]  # fmt: skip
SHAPES = [(6, 12), (5,), (4, 3, 5), (1,)]


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(3, silent_seconds=30.0) as found:  # oracles, not faults: a busy machine is no loss
        yield found


def bucket_of(shapes: Sequence[tuple[int, ...]]) -> Bucket:
    parameters = [nn.Parameter(torch.zeros(shape).double()) for shape in shapes]
    return Bucket(0, range(len(parameters)), parameters)


def reduce(reducer: Reducer, bucket: Bucket, gradient: Tensor) -> Tensor:
    bucket.flat.copy_(gradient)
    reducer.number = 1
    reducer.begin(bucket)
    reducer.turn(bucket)
    reducer.end(bucket)
    reducer.commit()
    return bucket.flat.clone()


def gradient(step: int, rank: int, size: int) -> Tensor:
    dice = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(size, generator=dice, dtype=torch.float64)


class Watched(Striped):
    """Adds up what is sent, by the worker and by the owner."""

    sent: dict[str, Tensor]
    phase = "worker"

    def begin_compressed(self, bucket: Bucket) -> None:
        self.phase = "worker"
        super().begin_compressed(bucket)

    def turn_compressed(self, bucket: Bucket) -> None:
        self.phase = "owner"
        super().turn_compressed(bucket)

    def _encode(self, bucket: Bucket, flat: Tensor, owner: int, lost: Tensor | None) -> Tensor:
        data = super()._encode(bucket, flat, owner, lost)
        self._decode(bucket, data, owner, self.sent[self.phase], adds=True)
        return data


def telescope(seat: Seat, asked: Compression) -> dict[str, Any]:
    group = form(seat)
    reducer = reducer_for(asked, group, seat.counters)
    bucket = bucket_of(SHAPES)
    given, results = torch.zeros_like(bucket.flat), torch.zeros_like(bucket.flat)
    for step in range(30):
        mine = gradient(step, seat.rank, bucket.flat.numel())
        given += mine
        results += reduce(reducer, bucket, mine)
    assert isinstance(reducer, Compressed)
    group.close()
    return {"given": given, "results": results, "kept": dict(reducer._kept)}


@pytest.mark.parametrize("asked", [OneBit(), TopK(ratio=0.1), PowerSGD(rank=1), OneBit(warmup=7)])
def test_what_was_applied_and_all_residuals_are_all_gradients(
    group: Group, asked: Compression
) -> None:
    answers = group.call(telescope, asked)
    results = answers["worker 0"]["results"]
    assert all(torch.equal(answers[name]["results"], results) for name in WORKERS)
    given = sum(answers[name]["given"] for name in WORKERS)
    kept = torch.zeros_like(results)
    for rank, name in enumerate(WORKERS):
        for key, value in answers[name]["kept"].items():
            add_to(kept, key, value, rank)
    assert float((results + kept - given).abs().max()) < 2e-13
    assert float((results - given).abs().max()) > 1e-3, "and the residuals are not nothing"


def add_to(total: Tensor, key: str, value: Tensor, rank: int) -> None:
    bucket = bucket_of(SHAPES)
    kind = key.partition("/")[0]
    if kind in ("worker", "unsent"):
        total += value
    elif kind == "residual":
        place = int(key.rpartition("/")[2])
        bucket.flat.zero_()
        bucket.views[place].copy_(value.view(bucket.views[place].shape))
        total += bucket.flat
    elif kind == "owner":
        helper = Striped.__new__(Striped)
        helper.by_column = True
        helper.group = type("Three", (), {"size": 3})()
        helper._spread(bucket, value, total, rank)


def watch(seat: Seat) -> dict[str, float]:
    group = form(seat)
    reducer = Watched(group, seat.counters, OneBit().codec(), by_column=True, has_feedback=True)
    bucket = bucket_of(SHAPES)
    size = bucket.flat.numel()
    reducer.sent = {"worker": torch.zeros(size).double(), "owner": torch.zeros(size).double()}
    given = torch.zeros(size).double()
    for step in range(30):
        mine = gradient(step, seat.rank, size)
        given += mine
        reduce(reducer, bucket, mine)
    sums = reducer.sent["worker"].clone()
    group.all_reduce(sums).wait()
    own = reducer._joined(bucket, sums, seat.rank)
    back = reducer._joined(bucket, reducer.sent["owner"], seat.rank)
    group.close()
    return {
        "worker": float((reducer.sent["worker"] + reducer._kept["worker/0"] - given).abs().max()),
        "owner": float((back + reducer._kept["owner/0"] - own).abs().max()),
    }


def test_both_residuals_of_the_striped_form_hold_what_was_not_sent(group: Group) -> None:
    for errors in group.call(watch).values():
        assert errors["worker"] < 1e-13 and errors["owner"] < 1e-13


class Identity:
    def encode(self, matrix: Tensor) -> list[Tensor]:
        return [matrix]

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return parts[0].view(like.shape)

    def sizes(self, columns: int, length: int) -> list[tuple[torch.dtype, tuple[int, ...]]]:
        return [(torch.float64, (columns, length))]


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


def plain(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05)


def steps(runner: CollectiveRunner, first: int, last: int) -> list[Tensor]:
    data, seat, found = runner.task.data, runner.seat, []
    for step in range(first, last):
        runner.step(data.batch(data.at(step), seat.rank, seat.workers))
        found.append(flat(runner.task.model))
    return found


def identity(seat: Seat, workers: int) -> tuple[list[Tensor], list[Tensor]]:
    if seat.rank >= workers:
        return [], []
    seat = dataclasses.replace(seat, workers=workers)
    runners = [
        AllReduce(compress=OneBit(warmup=99) if whole and workers == 3 else None).runner(
            regression(optimizer=momentum), seat
        )
        for whole in (False, True)
    ]
    if workers == 2:
        runners[1].reducer = Striped(
            runners[1].group, seat.counters, Identity(), by_column=True, has_feedback=True
        )
    found = [steps(runner, 0, 6) for runner in runners]
    for runner in runners:
        runner.close()
    return found[0], found[1]


@pytest.mark.parametrize("workers", [2, 3])
def test_a_compressor_that_loses_nothing_is_the_plain_all_reduce_to_the_bit(
    group: Group, workers: int
) -> None:
    """In stripes for two workers, whose sums have one order; in the warm-up's way for three."""
    for whole, striped in group.call(identity, workers).values():
        for each, other in zip(whole, striped, strict=True):
            assert torch.equal(each, other)


def go_on(seat: Seat, asked: Compression) -> dict[str, Any]:
    """Eight steps at once, and with a save and load after the fourth."""
    make = plain if isinstance(asked, TopK) else momentum

    def begin() -> CollectiveRunner:
        model = network(width=16)
        return AllReduce(compress=asked, bucket_mib=2e-4).runner(
            regression(model=model, optimizer=make), seat
        )

    runner = begin()
    whole = steps(runner, 0, 8)
    runner.close()
    runner = begin()
    steps(runner, 0, 4)
    file = io.BytesIO()
    torch.save((runner.shared_state(), runner.local_state()), file)
    runner.close()
    file.seek(0)
    shared, local = torch.load(file, weights_only=True)
    runner = begin()
    runner.load_shared_state(shared)
    runner.load_local_state(local)
    resumed = steps(runner, 4, 8)
    runner.close()
    return {"whole": whole, "resumed": resumed}


@pytest.mark.parametrize("asked", KINDS, ids=lambda each: each.name)
def test_replicas_are_the_same_to_the_bit_and_a_save_in_mid_run_changes_nothing(
    group: Group, asked: Compression
) -> None:
    answers = group.call(go_on, asked)
    for name in WORKERS:
        for step in range(8):
            assert torch.equal(answers[name]["whole"][step], answers["worker 0"]["whole"][step])
        for step in range(4):
            assert torch.equal(answers[name]["whole"][4 + step], answers[name]["resumed"][step])
    moved = answers["worker 0"]["whole"]
    assert not torch.equal(moved[0], moved[-1])


def wire(seat: Seat) -> int:
    group = form(seat)
    reducer = reducer_for(OneBit(), group, seat.counters)
    bucket = bucket_of([(6, 12)])
    before = seat.counters.sent_bytes["gradient"]
    reduce(reducer, bucket, gradient(0, seat.rank, 72))
    group.close()
    return seat.counters.sent_bytes["gradient"] - before


def test_the_wire_carries_exactly_the_bits_and_two_levels_of_each_column(group: Group) -> None:
    """Two columns of 12 for each owner: to two peers, and the sums back to two peers."""
    column = -(-12 // 8) + 8
    assert set(group.call(wire).values()) == {2 * 2 * column + 2 * 2 * column}


def poison(seat: Seat) -> tuple[bool, int, bool]:
    group = form(seat)
    reducer = reducer_for(OneBit(), group, seat.counters)
    bucket = bucket_of(SHAPES)
    before = seat.counters.events["residual resets"]
    for step in range(3):
        reduce(reducer, bucket, gradient(step, seat.rank, bucket.flat.numel()))
    bad = gradient(3, seat.rank, bucket.flat.numel())
    if seat.rank == 1:
        bad[3] = float("nan")
    result = reduce(reducer, bucket, bad)
    after = reduce(reducer, bucket, gradient(4, seat.rank, bucket.flat.numel()))
    group.close()
    resets = seat.counters.events["residual resets"] - before
    return bool(torch.isnan(result).any()), resets, bool(torch.isfinite(after).all())


def test_a_gradient_that_is_not_a_number_is_seen_and_does_not_poison_the_residuals(
    group: Group,
) -> None:
    answers = group.call(poison)
    assert all(seen and fine for seen, _, fine in answers.values())
    assert answers["worker 1"][1] >= 1, "its own residual"
    assert sum(resets for _, resets, _ in answers.values()) == 2, "and that of the column's owner"


def large_sums(seat: Seat) -> float:
    """A sum of 64 gradients of a thousand is beyond what half precision can hold."""
    task = regression(256, 192, model=nn.Linear(4, 2).double())
    with torch.no_grad():
        task.model.weight.fill_(200.0)  # type: ignore[union-attr,operator]
    runner = AllReduce(compress=FP16()).runner(task, seat)
    steps(runner, 0, 1)
    runner.close()
    found = flat(task.model)
    return float("nan") if not torch.isfinite(found).all() else float(found.abs().max())


def test_half_precision_carries_means_so_sums_do_not_overflow(group: Group) -> None:
    assert all(value < 1e4 for value in group.call(large_sums).values())


def be_late(seat: Seat) -> list[list[float]]:
    """One worker comes a second after the others: to each kind of exchange."""
    group = form(seat)
    found = []
    for kind in range(4):
        if seat.rank == kind % 3:
            threading.Event().wait(0.7)
        mine = torch.full((3,), float(seat.rank + 1), dtype=torch.float64)
        if kind == 0:
            ring_all_reduce(group, mine)
        elif kind == 1:
            group.all_reduce(mine).wait()
        elif kind == 2:
            parts, pending = group.all_to_all(list(mine.split(1)), [1, 1, 1])
            pending.wait()
            mine = torch.cat(parts)
        else:
            rows, pending = group.all_gather(mine)
            pending.wait()
            mine = torch.cat([row[:1] for row in rows])
        found.append(mine.tolist())
    group.part()
    group.close()
    return found


def test_a_worker_that_comes_late_is_waited_for_in_every_kind_of_exchange(group: Group) -> None:
    """A short wait for a send or a receive of gloo breaks the connection: ours do not."""
    for answer in group.call(be_late).values():
        assert answer == [[6.0] * 3, [6.0] * 3, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
