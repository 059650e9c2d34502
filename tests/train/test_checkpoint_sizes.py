"""1.12, 1.14: saved by four workers, read by two and three, and under other strategies; each
writes its own part. In processes, since torch has one global group in each."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from windlass.train.group import Group
from windlass.train.seat import Seat
from windlass.train.state.checkpoint import opened
from windlass.train.state.pieces import named
from windlass.train.state.stored import read
from windlass.train.task import Task
from windlass.train.testing.joined import joined
from windlass.train.testing.tasks import alone, flat, regression
from windlass.train.trainer import Trainer

OPTIONS: dict[str, dict[str, Any]] = {
    "allreduce": {}, "fsdp": {}, "zero1": {}, "tensor": {},
    "gpipe": {"micro_batches": 2, "balance": "blocks"}, "pipedream": {"balance": "blocks"},
}  # fmt: skip
SAVED_AT, FURTHER = 3, 10


class Scaled(nn.Module):
    """A table that the state_dict has, and no optimiser."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.linspace(2, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept  # type: ignore[operator, no-any-return]


def make() -> Task:
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(),
        nn.Linear(12, 2), Scaled(),
    ).double()  # fmt: skip
    return regression(model=model, optimizer=lambda given: torch.optim.AdamW(given, 0.05))


def train(seat: Seat, size: int, name: str, folder: str, total: int) -> dict[str, Any] | None:
    """With the first `size` workers. What came out of the checkpoint, and of the end."""
    if seat.rank >= size:
        return None
    task = make()
    trainer = Trainer(
        task, name, seat=replace(seat, workers=size), checkpoint=folder,
        save_every=SAVED_AT if total == SAVED_AT else 1000, **OPTIONS[name],
    )  # fmt: skip
    try:
        began, state = trainer.cursor.steps, trainer.runner.shared_state()
        state = pickle.loads(pickle.dumps(state))  # a copy, also of pieces
        while trainer.cursor.steps < total:
            for batch in trainer.batches():
                trainer.step(batch)
                if trainer.cursor.steps >= total:
                    break
        trainer.drain()
        end = None
        if seat.rank == 0:
            with trainer.runner.as_it_counts() as model:
                end = flat(model)
        names = trainer.runner.parameter_names
        return {"began": began, "state": state, "end": end, "names": names}
    finally:
        trainer.abandon()


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(4, silent_seconds=60.0, deadline_seconds=60.0) as found:
        yield found


@pytest.fixture(scope="module")
def saved(group: Group, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By four workers each, at step 3 of 3."""
    found = {}
    for name in OPTIONS:
        folder = tmp_path_factory.mktemp(name)
        group.call(train, 4, name, str(folder), SAVED_AT)
        (found[name],) = folder.glob("step-*")
    return found


def same(found: Any, wanted: Any, at: str = "") -> None:
    if isinstance(wanted, dict):
        assert set(found) == set(wanted), at
        for key in wanted:
            same(found[key], wanted[key], f"{at}.{key}")
    elif isinstance(wanted, Tensor):
        assert torch.equal(found, wanted), at
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), at
        for n, each in enumerate(wanted):
            same(found[n], each, f"{at}.{n}")
    elif not at.endswith(".foreach"):
        assert found == wanted, at


@pytest.mark.parametrize(
    ("writes", "reads", "size"),
    [(name, name, size) for name in ("fsdp", "zero1", "tensor", "gpipe", "pipedream")
     for size in (2, 3)]
    + [("fsdp", "zero1", 3), ("zero1", "tensor", 2), ("tensor", "gpipe", 3),
       ("gpipe", "pipedream", 2), ("pipedream", "fsdp", 3), ("allreduce", "fsdp", 2),
       ("tensor", "allreduce", 1), ("fsdp", "gpipe", 3)],
)  # fmt: skip
def test_what_four_saved_others_read_to_the_bit_and_go_on_from(
    group: Group, saved: dict[str, Path], writes: str, reads: str, size: int, tmp_path: Path
) -> None:
    (tmp_path / saved[writes].name).symlink_to(saved[writes])
    total = SAVED_AT + FURTHER
    answers = group.call(train, size, reads, str(tmp_path), total)
    found = [answers[f"worker {rank}"] for rank in range(size)]
    assert {each["began"] for each in found} == {SAVED_AT}
    together = joined(each["state"] for each in found)
    together["optimizer"] = named(together["optimizer"], found[0]["names"])
    stored = read(opened(saved[writes]))
    same(together["model"], stored["model"], "model")
    same(together["optimizer"], stored["optimizer"], "optimizer")
    if "pipedream" not in (writes, reads):
        wanted = flat(alone(make(), total).model)
        assert torch.allclose(found[0]["end"], wanted, rtol=0, atol=1e-13)


def bytes_of(path: Path) -> dict[str, int]:
    """Of tensors in each file, by the index."""
    with open(path / ".metadata", "rb") as file:
        index = pickle.load(file)
    found: dict[str, int] = {}
    for name, each in index.state_dict_metadata.items():
        for chunk in getattr(each, "chunks", ()):
            where = next(
                at.relative_path for key, at in index.storage_data.items()
                if key.fqn == name and key.offset == chunk.offsets
            )  # fmt: skip
            size = math.prod(chunk.sizes) * each.properties.dtype.itemsize
            found[where] = found.get(where, 0) + size
    return found


@pytest.mark.parametrize("name", ["fsdp", "zero1", "tensor", "gpipe", "pipedream"])
def test_each_worker_writes_its_share_and_nothing_is_written_twice(
    saved: dict[str, Path], name: str
) -> None:
    found = bytes_of(saved[name])
    whole = sum(bytes_of(saved["allreduce"]).values())
    assert sum(found.values()) == whole
    assert set(found) == {f"__{rank}_0.distcp" for rank in range(4)}
    # Whole layers go no finer than the largest, which is a third of all.
    most = whole * {"fsdp": 0.30, "tensor": 0.32}.get(name, 0.45)
    assert max(found.values()) <= most, found
    for file, payload in found.items():
        written = (saved[name] / file).stat().st_size
        entries = 3 * 8 + 8  # of each parameter and plain value, a little for torch's own frame
        assert payload <= written <= payload + 2048 * entries


def test_there_is_no_file_of_the_whole(saved: dict[str, Path]) -> None:
    for path in saved.values():
        own = {each.name for each in path.iterdir()} - {"manifest.json", ".metadata"}
        assert all(re.fullmatch(r"__\d_0\.distcp|worker-\d\.pt", each) for each in own), own
