"""Ensembles (1.15): members that know nothing of each other, and what they say together."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import windlass.train as wt
from windlass.core.errors import InvalidInput
from windlass.train.fitting import Plan, Trained, train_and_tell
from windlass.train.group import Group
from windlass.train.runners.ensemble import Ensemble, combine, networks_of


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(3, threads=1, seed=5) as found:
        yield found


def samples() -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(1)
    x = torch.randn(60, 6, generator=dice, dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def make() -> wt.Task:
    model = nn.Sequential(
        nn.Linear(6, 8, dtype=torch.float64), nn.Tanh(), nn.Dropout(0.1),
        nn.Linear(8, 3, dtype=torch.float64),
    )  # fmt: skip
    return wt.Task(
        model=model,
        loss=wt.sum_loss(functional.cross_entropy, reduction="sum"),
        optimizer=torch.optim.SGD(model.parameters(), 0.2, momentum=0.5),
        data=wt.Data(samples(), 8, seed=2),
    )


def make_and_die() -> wt.Task:
    """Worker 1 dies at its twentieth step."""
    task, seen = make(), []

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, float]:
        seen.append(1)
        if len(seen) == 20 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        total = functional.cross_entropy(model(batch[0]), batch[1], reduction="sum")
        return total, len(batch[1])

    task.loss = loss
    return task


def plan(**options: Any) -> Plan:
    return Plan(make, Ensemble(**options), 3, None, None, None, None, False, False)


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.fixture(scope="module")
def trained(group: Group) -> dict[str, Trained]:
    return group.call(train_and_tell, plan())


@pytest.fixture(scope="module")
def networks(trained: dict[str, Trained]) -> list[nn.Module]:
    models = {name: state for each in trained.values() for name, state in each.models.items()}
    assert len(models) == 3
    return networks_of(make, models)


def test_a_member_alone_is_the_member_of_the_ensemble_to_the_bit(
    trained: dict[str, Trained],
) -> None:
    """1.15, first oracle: weights, order of the data and dropout."""
    states = []
    for number in range(3):
        run = wt.fit(make, "ensemble", workers=1, epochs=3, seed=5, first=number, progress=False)
        (state,) = run.models.values()
        assert same(state, trained[f"worker {number}"].models[f"member {number}"])
        states.append(state)
    assert not same(states[0], states[1]) and not same(states[1], states[2])


def test_a_member_is_an_ordinary_training_of_its_seed(trained: dict[str, Trained]) -> None:
    torch.manual_seed(5)
    task = make()
    torch.manual_seed(5 + 1_000_003)
    for step in range(3 * task.data.steps_per_epoch):
        task.optimizer.zero_grad()
        total, count = task.loss_of(task.data.batch(task.data.at(step)).content)
        total.backward()
        for each in task.model.parameters():
            assert each.grad is not None
            each.grad.div_(count)
        task.optimizer.step()
    assert same(task.model.state_dict(), trained["worker 0"].models["member 0"])


def test_nothing_is_sent_and_each_member_sees_every_sample(trained: dict[str, Trained]) -> None:
    for each in trained.values():
        assert each.report is not None
        assert each.report.counters["sent_bytes"] == {}
        assert each.report.samples == 180


def test_the_mean_probability_is_what_a_hand_computes(networks: list[nn.Module]) -> None:
    x, _ = samples()
    by_hand = torch.zeros(60, 3, dtype=torch.float64)
    for network in networks:
        scores = network(x).exp()
        by_hand += scores / scores.sum(1, keepdim=True) / 3
    assert torch.allclose(combine(networks, x), by_hand, rtol=0, atol=1e-15)


def test_the_log_loss_of_the_mean_is_at_most_the_mean_log_loss(networks: list[nn.Module]) -> None:
    """1.15: Jensen."""
    x, y = samples()
    together = functional.nll_loss(combine(networks, x).log(), y)
    alone = [functional.cross_entropy(network(x), y) for network in networks]
    assert together <= sum(alone) / 3
    assert max(alone) - min(alone) > 1e-6, "the members differ"


def test_a_vote_counts_heads() -> None:
    said = [
        torch.tensor([[3.0, 0.0], [0.0, 1.0]]),
        torch.tensor([[0.0, 1.0], [0.0, 1.0]]),
        torch.tensor([[0.0, 1.0], [0.0, 9.0]]),
    ]
    models = [lambda _, each=each: each for each in said]
    shares = combine(models, None, "vote")
    assert torch.allclose(shares, torch.tensor([[1 / 3, 2 / 3], [0.0, 1.0]]))
    likely = torch.tensor([[0.25, 0.75]])
    assert torch.equal(combine([lambda _: likely], None, outputs="probabilities"), likely)
    for wrong in (lambda: combine([], None), lambda: combine(models, None, "loudest")):
        with pytest.raises(InvalidInput):
            wrong()


def test_one_run_gives_snapshots(group: Group) -> None:
    answers = group.call(train_and_tell, plan(snapshot_every=10), only=["worker 0"])
    models = answers["worker 0"].models
    assert list(models) == ["member 0", "member 0 at step 10", "member 0 at step 20"]
    assert not same(models["member 0"], models["member 0 at step 10"])
    assert len(networks_of(make, models)) == 3


def test_a_member_that_dies_is_missing_from_the_report() -> None:
    """1.15, failure: k-1 are reported, and the others are as if nothing had happened."""
    run = wt.fit(make_and_die, "ensemble", workers=2, epochs=3, seed=5, progress=False)
    assert run.result.lost == ("worker 1",)
    assert run.result.workers == 1 and list(run.models) == ["member 0"]
    assert "worker 1 was lost" in run.report()


def test_an_ensemble_resumes_member_by_member(tmp_path: Any) -> None:
    whole = wt.fit(make_plain, "ensemble", workers=1, epochs=3, first=1, progress=False)
    for epochs in (1, 3):
        run = wt.fit(
            make_plain, "ensemble", workers=1, epochs=epochs, first=1, progress=False,
            checkpoint=tmp_path, snapshot_every=5,
        )  # fmt: skip
    assert same(run.models["member 1"], whole.models["member 1"])
    assert list(run.models)[1:] == [f"member 1 at step {n}" for n in (5, 10, 15, 20)]


def make_plain() -> wt.Task:
    task = make()
    task.model[2] = nn.Identity()
    return task
