"""1.14 with real processes and real kills, through `fit`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import windlass.train as wt
from windlass.core.errors import InvalidInput
from windlass.train.testing.tasks import alone, flat, regression

STEPS = 8


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


def make() -> wt.Task:
    """Worker 1's process ends in its fifth batch, once."""
    task = regression(22, 6, optimizer=momentum)
    loss, mark, seen = task.loss, Path(os.environ["ELASTIC_MARK"]), 0

    def mortal(model: Any, batch: Any) -> Any:
        nonlocal seen
        seen += 1
        if os.environ["RANK"] == "1" and seen == 5 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(model, batch)

    task.loss = mortal
    return task


@pytest.mark.parametrize("strategy", ["allreduce", "fsdp", "tensor"])
def test_a_run_whose_worker_is_killed_ends_as_if_nothing_had_been(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `fsdp` and `tensor` no state is left in memory: they go on from a checkpoint."""
    monkeypatch.setenv("ELASTIC_MARK", str(tmp_path / "mark"))
    reference = regression(22, 6, optimizer=momentum)
    alone(reference, STEPS)
    run = wt.fit(
        make, strategy, elastic=(1, 2), steps=STEPS, progress=False, save_every=3,
        checkpoint=tmp_path / "saved" if strategy != "allreduce" else None,
        restarts=1 if strategy == "allreduce" else 0,
    )  # fmt: skip
    task = regression(22, 6)
    task.model.load_state_dict(run.state)
    torch.testing.assert_close(flat(task.model), flat(reference.model), rtol=1e-12, atol=1e-12)
    assert (tmp_path / "mark").exists(), "it was killed"
    assert any(fault.who == "worker 1" for fault in run.result.faults), run.report()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"elastic": (0, 2)}, "1 <= least <= most"),
        ({"elastic": 3}, "(least, most)"),
        ({"elastic": (2, 3), "workers": 4}, "from 2 to 3"),
        ({"elastic": (1, 2), "strategy": "ensemble"}, "a network of its own"),
    ],
)
def test_bounds_and_strategies_that_make_no_sense_are_refused(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as found:
        wt.fit(make, **{"strategy": "allreduce", "steps": 1, "progress": False, **options})
    assert said in str(found.value)
