"""Pipelines whose members are processes: dropout, a kill, `fit` from end to end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import windlass.train as wt
from windlass.core.errors import MemberLost
from windlass.train import registry
from windlass.train.group import Group
from windlass.train.runners.ends import cut_batch
from windlass.train.runners.flushing import PipelineRunner
from windlass.train.runners.stages import StageWork
from windlass.train.seat import Seat
from windlass.train.testing.stopped import strike
from windlass.train.testing.tasks import alone


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(2) as found:
        yield found


def make() -> wt.Task:
    torch.manual_seed(1)
    dice = torch.Generator().manual_seed(2)
    x = torch.randn(24, 4, generator=dice, dtype=torch.float64)
    y = torch.randn(24, 2, generator=dice, dtype=torch.float64)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.Dropout(0.4), nn.Tanh(), nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh(),
        nn.Linear(8, 2),
    ).double()  # fmt: skip
    loss = wt.sum_loss(functional.mse_loss, reduction="sum")
    return wt.Task(
        model, loss, torch.optim.SGD(model.parameters(), 0.05), wt.Data((x, y), 7),
        evaluate=lambda net: {"loss": float(functional.mse_loss(net(x), y))},
    )  # fmt: skip


def steady() -> wt.Task:
    """The same without dropout."""
    task = make()
    for each in task.model.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.0
    return task


def with_dice(seat: Seat, name: str, recompute: bool) -> tuple[dict[str, Tensor], list[Any]]:
    """One step, and the state of the dice before each forward of a micro-batch."""
    task = make()
    options = {"micro_batches": 3, "cuts": (3,), "recompute": recompute}
    if name == "interleaved":
        options["cuts"] = (2, 3, 5)
    chosen = registry.choose(name, options)
    torch.manual_seed(100 + seat.rank)
    runner = chosen.runner(task, seat)
    assert isinstance(runner, PipelineRunner)
    dice: list[tuple[int, int, int, Tensor]] = []

    def note(work: StageWork, first: int, last: int) -> None:
        usual, now = type(work.stage).forward, [0]

        def forward(*values: Any) -> Any:
            dice.append((first, last, now[0], torch.get_rng_state()))
            return usual(work.stage, *values)

        def of_batch(do: Any) -> Any:
            def done(batch: int, *values: Any, **options: Any) -> Any:
                now[0] = batch
                return do(batch, *values, **options)

            return done

        work.stage.forward = forward  # type: ignore[method-assign]
        for name in ("forward", "backward", "input_gradient"):
            setattr(work, name, of_batch(getattr(work, name)))

    for stage, work in runner.works.items():
        note(work, *runner.parts[stage])
    try:
        runner.step(task.data.batch(task.data.at(0)))
        own = {name: each.detach().clone() for name, each in runner.parameters.items()}
        runner.drain()
        return own, dice
    finally:
        runner.close()


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["gpipe", "zb1p", "interleaved"])
def test_with_dropout_the_gradient_is_that_of_the_same_dice(
    group: Group, name: str, recompute: bool
) -> None:
    """1.8: each micro-batch is done again in one process, block after block, with the dice that
    the pipeline's stages had for it. Computed twice, they are the same twice."""
    answers = group.call(with_dice, name, recompute)
    found: dict[str, Tensor] = {}
    first: dict[tuple[int, int], tuple[int, Tensor]] = {}
    for own, dice in answers.values():
        found.update(own)
        for begin, end, batch, state in dice:
            _, before = first.setdefault((begin, batch), (end, state))
            assert torch.equal(before, state), "again, for the backward: the same dice"
        times = len(dice) / len({(begin, batch) for begin, _, batch, _ in dice})
        assert times > 1 if recompute and dice[0][0] == 0 else times >= 1
    task = make()
    content = task.data.batch(task.data.at(0)).content
    for number, (x, y) in enumerate(cut_batch(content, 3)):
        for begin in sorted({start for start, _ in first}):
            end, state = first[begin, number]
            torch.set_rng_state(state)
            x = task.model[begin : end + 1](x)  # type: ignore[index]
        functional.mse_loss(x, y, reduction="sum").backward()  # type: ignore[no-untyped-call]
    for parameter in task.model.parameters():
        assert parameter.grad is not None
        parameter.grad.div_(7)
    task.optimizer.step()
    for name_of, wanted in task.model.named_parameters():
        assert torch.allclose(found[name_of], wanted.detach(), rtol=0, atol=1e-14), name_of


def wait_in_a_pipeline(seat: Seat, path: str) -> None:
    task = steady()
    runner = registry.choose("gpipe", {"micro_batches": 3, "cuts": (3,)}).runner(task, seat)
    for step in range(100000):
        runner.step(task.data.batch(task.data.at(step)))
        if step == 3 and seat.rank == 1:
            Path(path).write_text(str(os.getpid()))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_stage_that_is_killed_or_stopped_is_named_within_seconds(
    how: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "far enough"
    with Group(2, silent_seconds=60.0, deadline_seconds=300.0) as group:
        number = group.begin(wait_in_a_pipeline, str(path))
        ends = time.monotonic() + 120
        while not path.exists():
            assert time.monotonic() < ends, "it never came so far"
            threading.Event().wait(0.05)
        began = time.monotonic()
        strike(group, "worker 1", how)
        with pytest.raises(MemberLost) as caught:
            group.finish(number, only=["worker 0"])
        assert time.monotonic() - began < 120, "long before its deadline"
        assert caught.value.details["missing"] == ["worker 1"]
        assert "at step" in str(caught.value)


def test_fit_trains_saves_evaluates_and_reports(tmp_path: Path) -> None:
    run = wt.fit(
        steady, "gpipe", workers=2, steps=6, micro_batches=3, balance="blocks",
        checkpoint=tmp_path, save_every=4, progress=False,
    )  # fmt: skip
    wanted = alone(steady(), 6)
    for name, value in wanted.model.state_dict().items():
        assert torch.allclose(run.state[name], value, rtol=0, atol=1e-13), name
    result = run.result
    assert (result.steps, result.samples) == (6, 7 + 7 + 7 + 3 + 7 + 7)
    assert [point.step for point in result.losses] == [1, 2, 3, 4, 5, 6]
    assert [point.step for point in result.evaluation] == [4, 6]
    assert result.sent_bytes["activation"] > 0 and result.sent_bytes["gradient"] > 0
    text = run.report()
    assert "gpipe" in text and "activation" in text
    more = wt.fit(steady, "allreduce", steps=8, checkpoint=tmp_path, progress=False)
    assert more.result.losses[0].step == 5
    for name, value in alone(steady(), 8).model.state_dict().items():
        assert torch.allclose(more.state[name], value, rtol=0, atol=1e-13), name
