"""Saving while the training goes on; what comes out is torch's own format. Members are threads."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from alone import Alone, make
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from windlass.core.errors import InvalidInput, MemberLost
from windlass.job import checkpoint as writer
from windlass.job.manifest import CheckpointError, in_order, verify
from windlass.train.runners.base import Outcome, Runner
from windlass.train.seat import Seat
from windlass.train.state import checkpoint as checkpoints
from windlass.train.state.checkpoint import opened
from windlass.train.state.pieces import Piece
from windlass.train.state.saving import Saver
from windlass.train.state.snapshot import Snapshot
from windlass.train.state.stored import read
from windlass.train.testing.tasks import regression
from windlass.train.testing.town import Town
from windlass.train.trainer import Trainer

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Halves(Runner):
    """Each of two workers has a half of every tensor; what counts is set from outside."""

    is_spread: ClassVar[bool] = True

    def __init__(self, seat: Seat) -> None:
        super().__init__(regression(), seat)
        self.value = 0.0
        self.lacks: str = ""

    def step(self, batch: Any) -> Outcome:
        raise NotImplementedError

    def shared_state(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, each in self.task.model.state_dict().items():
            rows = each.shape[0] // 2
            mine = torch.full((rows, *each.shape[1:]), self.value + self.seat.rank).double()
            offsets = (rows * self.seat.rank, *(0 for _ in each.shape[1:]))
            if name != self.lacks:
                found[name] = Piece(mine, offsets, tuple(each.shape))
        return {"model": found, "optimizer": self.task.optimizer.state_dict()}


@contextmanager
def halves(tmp_path: Path, needs: tuple[str, ...] = ()) -> Iterator[tuple[Town, Any]]:
    with Town(2, 0, silent_seconds=60) as town:
        runners = {name: Halves(seat) for name, seat in town.seats.items()}
        savers = {
            name: Saver(runners[name], seat, folder=str(tmp_path), needs=needs)
            for name, seat in town.seats.items()
        }
        yield town, (runners, savers)


def everywhere(town: Town, do: Callable[[Seat], Any]) -> dict[str, Any]:
    """What each raised, or gave."""
    futures = {name: town.start(name, do) for name in town.seats}
    return {name: each.exception(60) or each.result() for name, each in futures.items()}


def test_the_parts_of_two_are_one_checkpoint(tmp_path: Path) -> None:
    with halves(tmp_path) as (town, (runners, savers)):
        for runner in runners.values():
            runner.value = 5.0

        def save(seat: Seat) -> None:
            savers[seat.name].save(7, more=["words", 3])
            savers[seat.name].wait()

        assert everywhere(town, save) == {"worker 0": None, "worker 1": None}
    (path,) = in_order(tmp_path)
    files = {each.name for each in path.iterdir()}
    assert files == {"__0_0.distcp", "__1_0.distcp", ".metadata", "manifest.json"}
    verify(path)
    stored = opened(path)
    assert read(stored["windlass"]) == {"format": 1, "steps": 7, "more": ["words", 3]}
    weight = stored["model"]["0.weight"]
    assert torch.equal(weight[:4], torch.full((4, 4), 5.0).double())
    assert torch.equal(weight[4:], torch.full((4, 4), 6.0).double())
    with pytest.raises(KeyError):
        stored["model"]["another"]


def test_the_loop_goes_on_while_it_is_written_and_the_next_save_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is the state as it was; nothing is left out."""
    begun, gate = threading.Event(), threading.Event()
    usual = writer.gathered

    @contextmanager
    def held_up(*given: Any, **more: Any) -> Iterator[Path]:
        with usual(*given, **more) as path:
            begun.set()
            assert gate.wait(60)
            yield path

    monkeypatch.setattr(writer, "gathered", held_up)
    with halves(tmp_path) as (town, (runners, savers)):
        second = threading.Event()

        def save(seat: Seat) -> None:
            mine, saver = runners[seat.name], savers[seat.name]
            mine.value = 1.0
            saver.save(1)
            mine.value = 2.0  # while the first is being written
            if seat.rank == 0:
                assert begun.wait(60) and not in_order(tmp_path)
                threading.Timer(0.2, gate.set).start()
            saver.save(2)
            if seat.rank == 0:
                assert [p.name for p in in_order(tmp_path)] == ["step-000000000001-000001"]
                second.set()
            saver.wait()

        assert everywhere(town, save) == {"worker 0": None, "worker 1": None}
        assert second.is_set()
    for path, value in zip(in_order(tmp_path), (2.0, 1.0), strict=True):
        assert float(opened(path)["model"]["0.bias"][0]) == value


def test_a_part_that_nobody_has_is_no_checkpoint_on_any(tmp_path: Path) -> None:
    with halves(tmp_path) as (town, (runners, savers)):

        def save(seat: Seat) -> None:
            savers[seat.name].save(1)
            savers[seat.name].wait()
            runners[seat.name].lacks = "0.bias" if seat.rank else ""
            savers[seat.name].save(2)
            savers[seat.name].wait()

        told = everywhere(town, save)
        for runner in runners.values():
            runner.lacks = "2.weight"

        def again(seat: Seat) -> None:
            savers[seat.name].save(3)
            savers[seat.name].wait()

        none = everywhere(town, again)
    for err in told.values():
        assert isinstance(err, CheckpointError)
        assert "step 2 was not saved: model.0.bias: its pieces have 4 of 8" in str(err)
    for err in none.values():
        assert isinstance(err, CheckpointError) and "nobody has 2.weight" in str(err)
    assert [verify(path).step for path in in_order(tmp_path)] == [1]
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_worker_that_cannot_write_is_named_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = torch.save

    def full(what: Any, where: Any, *given: Any, **more: Any) -> None:
        if "worker-1.pt" in str(where):
            raise OSError(28, "No space left on device")
        usual(what, where, *given, **more)

    monkeypatch.setattr(torch, "save", full)
    with halves(tmp_path) as (town, (runners, savers)):
        runners["worker 1"].local_state = lambda: {"clock": 3}

        def save(seat: Seat) -> None:
            savers[seat.name].save(4)
            savers[seat.name].wait()

        told = everywhere(town, save)
    assert "worker 1: OSError: [Errno 28] No space left" in str(told["worker 0"])
    assert "No space left" in str(told["worker 1"])
    assert all(isinstance(err, CheckpointError) for err in told.values())
    assert not in_order(tmp_path)


@pytest.mark.parametrize("victim", ["worker 0", "worker 1"])
def test_one_that_is_lost_is_named_and_nothing_is_committed(tmp_path: Path, victim: str) -> None:
    with halves(tmp_path, ("worker 0", "worker 1")) as (town, (_, savers)):

        def save(seat: Seat) -> None:
            if seat.name == victim:
                town.fell(victim)
                return
            savers[seat.name].save(4)
            savers[seat.name].wait()

        told = everywhere(town, save)
    (other,) = set(told) - {victim}
    assert isinstance(told[other], MemberLost) and victim in str(told[other]), told
    assert not in_order(tmp_path)


# -- through the trainer ------------------------------------------------------------------------


def train(seat: Seat, folder: Path, steps: int) -> Trainer:
    trainer = Trainer(make(), Alone(), seat=seat, checkpoint=str(folder), save_every=2)
    try:
        while trainer.cursor.steps < steps:
            for batch in trainer.batches():
                trainer.step(batch)
                if trainer.cursor.steps >= steps:
                    break
        trainer.drain()
        return trainer
    finally:
        trainer.abandon()


def test_the_end_waits_for_the_write_and_raises_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Town(1, 0, silent_seconds=60) as town:
        town.call(train, tmp_path, 4)
    assert [verify(path).step for path in in_order(tmp_path)] == [4, 2]

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refused)
    with Town(1, 0, silent_seconds=60) as town:
        with pytest.raises(CheckpointError, match="step 6 was not saved: .*Input/output error"):
            town.call(train, tmp_path, 6)
    monkeypatch.undo()
    assert [verify(path).step for path in in_order(tmp_path)] == [4, 2]
    with Town(1, 0, silent_seconds=60) as town:
        found = town.call(train, tmp_path, 5)["worker 0"]
    assert found.runner.kept == 5, "from step 4 on, with what was its own"


def test_torch_reads_it_without_us(tmp_path: Path) -> None:
    """By `load` into tensors of one's own, and as one file by `dcp_to_torch_save`."""
    with Town(1, 0, silent_seconds=60) as town:
        trainer = town.call(train, tmp_path, 2)["worker 0"]
    (path,) = in_order(tmp_path)
    model = trainer.task.model.state_dict()
    mine = {"model": {name: torch.zeros_like(value) for name, value in model.items()}}
    dcp.load(mine, checkpoint_id=str(path))
    dcp_to_torch_save(path, tmp_path / "one.pt")
    one = torch.load(tmp_path / "one.pt", weights_only=False)
    state = trainer.task.optimizer.state_dict()["state"]
    for number, (name, value) in enumerate(model.items()):
        assert torch.equal(mine["model"][name], value)
        assert torch.equal(one["model"][name], value)
        moment = one["optimizer"]["state"][name]["momentum_buffer"]
        assert torch.equal(moment, state[number]["momentum_buffer"])
    (group,) = one["optimizer"]["param_groups"]
    assert group["params"] == list(model) and group["lr"] == 0.5
    assert one["windlass"]["steps"] == 2


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("it ran",))


def test_an_index_cannot_run_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InvalidInput, match=r"an index of a checkpoint has no builtins\.print"):
        opened(tmp_path)
    assert capsys.readouterr().out == ""


def test_what_is_no_checkpoint_of_a_training_is_told(tmp_path: Path) -> None:
    with writer.checkpoint(3, folder=tmp_path) as path:
        (path / "model.bin").write_bytes(b"something else")
    found = checkpoints.find(str(tmp_path), True)
    assert found is not None
    with pytest.raises(InvalidInput, match=r"no checkpoint of windlass\.train"):
        opened(found)


def test_an_optimiser_of_other_parameters_is_refused(tmp_path: Path) -> None:
    with Town(1, 0, silent_seconds=60) as town:
        town.call(train, tmp_path, 2)

    def other(seat: Seat) -> None:
        task = make()
        task.optimizer = torch.optim.SGD([task.model.bias], 0.5, momentum=0.9)  # type: ignore[list-item]
        with pytest.raises(InvalidInput, match="steps other parameters: weight"):
            Trainer(task, Alone(), seat=seat, checkpoint=str(tmp_path))

    with Town(1, 0, silent_seconds=60) as town:
        town.call(other)


# -- copies -------------------------------------------------------------------------------------


def test_a_copy_is_of_that_moment_and_its_memory_is_used_again() -> None:
    source = torch.arange(6.0).reshape(2, 3)
    state = {"a": [source.t(), 3], "b": Piece(source, (0, 0), (4, 3)), "c": ("x", source[0])}
    snapshot = Snapshot()
    first = snapshot.take(state)
    source += 1
    assert torch.equal(first["a"][0], torch.arange(6.0).reshape(2, 3).t())
    assert first["a"][1] == 3 and first["c"][0] == "x" and first["b"].shape == (4, 3)
    where = [first["a"][0].data_ptr(), first["b"].value.data_ptr()]
    second = snapshot.take(state)
    assert [second["a"][0].data_ptr(), second["b"].value.data_ptr()] == where
    assert torch.equal(second["b"].value, source)
    grown = snapshot.take({"b": Piece(torch.zeros(5, 3), (0, 0), (5, 3))})
    assert grown["b"].value.shape == (5, 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_copy_of_a_gpus_tensor_is_pinned_and_done() -> None:
    source = torch.full((1 << 20,), 3.0, device="cuda")
    found: Tensor = Snapshot().take({"a": source})["a"]
    source.zero_()
    assert found.is_pinned() and bool((found == 3.0).all())
