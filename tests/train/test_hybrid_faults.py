"""1.19, the contract of failure: a replica falls with any of its members, who is named, and the
others go on; it comes back whole; checkpoints are whole, by name, and load under other
strategies."""

from __future__ import annotations

import copy
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hybrids import Ended, chosen, member, replayed, tasks_for, trained
from pipelines import task_of
from torch import Tensor, nn

import windlass.train as wt
from windlass.core.errors import MemberLost
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.tasks import alone, flat, regression
from windlass.train.testing.town import Town

SYNCHRONOUS = {"rule": "ssp", "staleness": 0}


def adam() -> Task:
    return task_of("straight", optimizer=lambda p: torch.optim.Adam(p, 0.01))


def tied() -> Task:
    return task_of("tied", optimizer=lambda p: torch.optim.Adam(p, 0.01))


@pytest.mark.parametrize(
    ("name", "rule", "victim"),
    [
        ("ps:pipeline", "ssp", 0), ("ps:pipeline", "softsync", 1), ("ps:pipeline", "async", 3),
        ("ps:tensor", "ssp", 2), ("ps:tensor", "ssp", 1),
    ],
)  # fmt: skip
def test_a_replica_falls_with_its_member_and_the_others_go_on(
    name: str, rule: str, victim: int
) -> None:
    """Between two steps, so that all that was pushed was pushed by all of the replica."""
    strategy = chosen(
        name, rule=rule, staleness=0 if rule == "ssp" else None, trace=True,
        **({"micro_batches": 2} if name == "ps:pipeline" else {}),
    )  # fmt: skip
    here, its_mate, go = threading.Event(), threading.Event(), threading.Event()

    def pace(seat: Seat, step: int) -> None:
        if seat.rank // 2 == victim // 2 and step == 3:
            (here if seat.rank == victim else its_mate).set()
            assert seat.rank != victim or go.wait(60)

    torch.set_num_threads(1)
    with Town(4, 1) as town:
        tasks = tasks_for(town, adam)
        running = {
            each: town.start(each, member, strategy, tasks, range(7), pace, None, True)
            for each in town.seats
        }
        try:
            assert here.wait(60) and its_mate.wait(60)
            town.fell(f"worker {victim}")
            first = victim - victim % 2
            with pytest.raises(MemberLost) as caught:
                running[f"worker {first + 1 - victim % 2}"].result(60)
            assert caught.value.details["missing"] == [f"worker {victim}"]
            others = [f"worker {n}" for n in range(4) if n // 2 != victim // 2]
            ended: list[Ended] = [running[each].result(60) for each in others]
            rows = running["server 0"].result(60).rows
            fell = sorted(town.seats["server 0"].meeting.roster.fell)
        finally:
            go.set()
        with pytest.raises(MemberLost):
            running[f"worker {victim}"].result(60)
    assert fell == [f"worker {first}", f"worker {first + 1}"], "and the other falls with it"
    faults = [fault.who for fault in town.seats["server 0"].counters.faults]
    assert f"worker {victim}" in faults
    assert ended[0].model is not None, "the first of those that are left has the whole"
    pushes = [(row.worker, row.number) for row in rows if row.range == 0]
    assert sorted(n for w, n in pushes if w != victim // 2) == list(range(1, 12))
    assert sorted(n for w, n in pushes if w == victim // 2) == [1, 2, 3]
    used = [
        (row.steps[0], *(row.shares[0] if row.shares else (row.worker, 2)))
        for row in rows
        if row.range == 0
    ]
    assert sorted(used) == [(step, share, 2) for step in range(7) for share in (0, 1)], "once each"
    again = replayed(adam, strategy, ended[0].table, 2, 1, rows, 2 if name == "ps:pipeline" else 1)
    assert float((again - ended[0].model).abs().max()) < 1e-12


@pytest.mark.parametrize(
    ("name", "rule", "victim"), [("ps:pipeline", "ssp", 0), ("ps:tensor", "softsync", 3)]
)
def test_a_replica_comes_back_whole_and_goes_on(name: str, rule: str, victim: int) -> None:
    """The others are not let past their third step before it has made one again, so nothing of
    its line is left for them; the log replays, and each sample is used once."""
    strategy = chosen(
        name, rule=rule, staleness=1 if rule == "ssp" else None, trace=True,
        **({"micro_batches": 2} if name == "ps:pipeline" else {}),
    )  # fmt: skip
    group = victim // 2
    fallen = [f"worker {2 * group}", f"worker {2 * group + 1}"]
    here, its_mate, go, back = (threading.Event() for _ in range(4))

    def pace(seat: Seat, step: int) -> None:
        its = seat.rank // 2 == group
        if its and not go.is_set() and step == 2:
            (here if seat.rank == victim else its_mate).set()
            assert seat.rank != victim or go.wait(60)
        elif its and go.is_set() and step > 2:
            back.set()
        elif not its and step == 3:
            assert back.wait(60)

    torch.set_num_threads(1)
    with Town(4, 1, deadline_seconds=60) as town:
        tasks = tasks_for(town, adam)
        town.seats["worker 0"].meeting.put("resume", b"")  # as the loop does when it begins

        def start(each: str) -> Any:
            return town.start(each, member, strategy, tasks, range(7), pace, None, True)

        running = {each: start(each) for each in town.seats}
        assert here.wait(60) and its_mate.wait(60)
        town.fell(f"worker {victim}")
        with pytest.raises(MemberLost):
            running[fallen[1 - victim % 2]].result(60)
        go.set()
        with pytest.raises(MemberLost):
            running[f"worker {victim}"].result(60)
        for each in fallen:
            tasks[each] = adam()
            town.sit("worker", int(each.split()[1]))
        running.update({each: start(each) for each in fallen})
        ended: dict[str, Ended] = {each: found.result(60) for each, found in running.items()}
    rows = ended["server 0"].rows
    whole = ended["worker 0"].model
    assert whole is not None, "worker 0 leads, also where it came back"
    used = [
        (row.steps[0], *(row.shares[0] if row.shares else (row.worker, 2)))
        for row in rows
        if row.range == 0
    ]
    assert sorted(used) == [(step, share, 2) for step in range(7) for share in (0, 1)], "once each"
    pushed = sorted(row.number for row in rows if row.range == 0 and row.worker == group)
    assert pushed[:3] == [1, 2, 3] and pushed == list(range(1, len(pushed) + 1))
    again = replayed(
        adam, strategy, ended["worker 0"].table, 2, 1, rows, 2 if name == "ps:pipeline" else 1
    )
    assert float((again - whole).abs().max()) < 1e-12


# -- checkpoints ----------------------------------------------------------------------------------


def continued(state: Mapping[str, Any], make: Any, steps: range) -> Tensor:
    """In one process, by torch alone."""
    task = make()
    task.model.load_state_dict(state["model"])
    task.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # it would keep ours
    for step in steps:
        task.optimizer.zero_grad()
        total, count = task.loss_of(task.data.batch(task.data.at(step)).content)
        total.backward()
        for each in task.model.parameters():
            each.grad.div_(count)
        task.optimizer.step()
    return flat(task.model)


@pytest.mark.parametrize("make", [adam, tied])
def test_a_checkpoint_in_mid_run_is_whole_and_loads_anywhere(make: Any) -> None:
    """Written by two pipelines of two; read by torch, by one pipeline of three, by tensor groups
    and by one worker that holds everything; on other numbers of servers."""
    end = flat(alone(make(), 6).model)
    strategy = chosen("ps:pipeline", **SYNCHRONOUS)
    _, _, members, _ = trained(strategy, make, 4, 2, 3)
    assert members["worker 1"].state is None and members["worker 2"].state is None
    state = members["worker 0"].state
    assert list(state["model"]) == list(make().model.state_dict())
    assert float((continued(state, make, range(3, 6)) - end).abs().max()) < 1e-13
    later = range(3, 6)
    others = [(chosen("ps:pipeline", size=3, **SYNCHRONOUS), 3, 1)]
    if make is adam:
        others.append((chosen("ps:tensor", **SYNCHRONOUS), 4, 3))
    for other, workers, servers in others:
        found, _, _, _ = trained(other, make, workers, servers, later, state=state)
        assert float((found - end).abs().max()) < 1e-13


def test_it_goes_on_from_what_one_process_saved() -> None:
    half = alone(adam(), 3)
    state = {"model": half.model.state_dict(), "optimizer": half.optimizer.state_dict()}
    strategy = chosen("ps:tensor", **SYNCHRONOUS)
    found, _, _, _ = trained(strategy, adam, 4, 1, range(3, 6), state=state)
    assert float((found - flat(alone(adam(), 6).model)).abs().max()) < 1e-13


def normed() -> Task:
    torch.manual_seed(2)
    layers = [nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6), nn.BatchNorm1d(6)]
    return regression(model=nn.Sequential(*layers, nn.Linear(6, 2)).double())


def test_what_no_server_has_is_in_the_checkpoint_too() -> None:
    """Running statistics of both stages, as the first replica has them."""
    strategy = chosen("ps:pipeline", micro_batches=1, **SYNCHRONOUS)
    _, _, members, _ = trained(strategy, normed, 2, 1, 4)
    task = alone(normed(), 4)
    for name, expected in task.model.state_dict().items():
        found = members["worker 0"].state["model"][name]
        assert float((found.double() - expected.double()).abs().max()) < 1e-12, name


# -- real processes -------------------------------------------------------------------------------


def lives() -> Task:
    return task_of("straight", optimizer=lambda p: torch.optim.SGD(p, 0.05))


def dies() -> Task:
    """Worker 1 kills itself in its third step; the other replica stops in its fifth until it is
    seen at work again."""
    task = lives()
    mark, back = Path(os.environ["MARK"]), Path(os.environ["MARK"] + " back")
    plain, calls = task.loss, [0]

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, float]:
        calls[0] += 1
        if os.environ["RANK"] == "1" and mark.exists():
            back.touch()
        elif os.environ["RANK"] == "1" and calls[0] == 3:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        ends = time.monotonic() + 120
        while os.environ["RANK"] == "3" and calls[0] == 5 and not back.exists():
            assert time.monotonic() < ends, "it did not come back"
            time.sleep(0.02)
        return plain(model, batch)

    task.loss = loss
    task.evaluate = lambda model: {"norm": float(flat(model).norm())}
    return task


@pytest.mark.slow
def test_fit_goes_on_without_a_replica_and_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker 0 falls with worker 1, and worker 2 leads meanwhile; both are started again, and
    worker 0 has the model and the checkpoints at the end."""
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    options: dict[str, Any] = {
        "strategy": "ps:pipeline", "balance": "blocks", "rule": "scaled", "micro_batches": 1,
        "workers": 4, "servers": 1, "progress": False, "checkpoint": tmp_path / "saved",
        "save_every": 4, "deadline": 120, "restarts": 1,
    }  # fmt: skip
    run = wt.fit(dies, steps=12, **options)
    assert (tmp_path / "mark back").exists(), "the replica was at work again"
    assert sorted(run.result.lost) == ["worker 0", "worker 1"]
    assert list(run.state) == list(dies().model.state_dict())
    assert not any(each.is_meta for each in run.state.values())
    dies().model.load_state_dict(run.state)
    assert run.result.events["applied"] == 24, "12 steps of 2 shares: each once, also those left"
    assert [each.step for each in run.result.evaluation] != [], "by worker 0, who came back"
    again = wt.fit(lives, workers=1, steps=14, progress=False, checkpoint=tmp_path / "saved")
    assert again.result.steps == 14, "here, by one that holds everything"
