"""D-PSGD, AD-PSGD and SGP with real processes: conserved sums, contraction, replays to the bit."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.counters import Counters
from windlass.train.group import Group
from windlass.train.policies import topology
from windlass.train.runners.gossip import AdPsgd, DPsgd, Gossip, Sgp
from windlass.train.runners.swarm import Swarm
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing import tasks
from windlass.train.testing.gossip_replay import Play, play_mix, play_pair, play_push, replay

WORKERS = 3
PLAYS: dict[type[Gossip], Play] = {AdPsgd: play_pair, DPsgd: play_mix, Sgp: play_push}


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


def regression() -> Task:
    return tasks.regression(23, 7, optimizer=momentum)


def still() -> Task:
    """A task without steps: only averaging changes anything."""
    return tasks.regression(optimizer=lambda parameters: torch.optim.SGD(parameters, 0.0))


def runner_of(seat: Seat, task: Task, strategy: Gossip) -> Swarm:
    found = strategy.runner(task, replace(seat, counters=Counters()))
    assert isinstance(found, Swarm)
    return found


def take(runner: Swarm, steps: range) -> None:
    for step in steps:
        data, seat = runner.task.data, runner.seat
        runner.step(data.batch(data.at(step), seat.rank, seat.workers))


def train(seat: Seat, strategy: Gossip, steps: int) -> dict[str, Any]:
    task = regression()
    if seat.rank:
        with torch.no_grad():
            for each in task.model.parameters():
                each.add_(1.0)  # worker 0's are what all begin with
    runner = runner_of(seat, task, strategy)
    take(runner, range(steps))
    runner.finish()
    runner.settle()
    given = runner.to_give()
    own = torch.cat(runner.current())
    runner.drain()
    final = tasks.flat(task.model)
    runner.close()
    return {
        "trace": runner.trace, "own": own, "final": final, "given": given,
        "counters": runner.counters.to_json(),
    }  # fmt: skip


def average(seat: Seat, strategy: Gossip, steps: int) -> list[Tensor]:
    """From other parameters on each worker, gradients of nothing: what each has after each step,
    and what it gives to the mean at the end."""
    runner = runner_of(seat, still(), strategy)
    dice = torch.Generator().manual_seed(seat.rank)
    begin = [torch.randn(x.shape, generator=dice, dtype=x.dtype) for x in runner.current()]
    runner.mean_of_all("all are here")
    runner.parameters.write(begin)
    runner.adopt([x.clone() for x in begin])
    runner.mean_of_all("all begin")
    found = [torch.cat(begin)]
    for step in range(steps):
        take(runner, range(step, step + 1))
        found.append(torch.cat(runner.current()))
    runner.finish()
    runner.settle()
    found.append(torch.cat(runner.to_give()))
    runner.drain()
    runner.close()
    return found


def save_and_go_on(seat: Seat, strategy: Gossip) -> dict[str, Tensor]:
    """Six steps with a save after three; and from that save three by another runner."""
    runner = runner_of(seat, regression(), strategy)
    take(runner, range(3))
    saved = io.BytesIO()
    torch.save((runner.shared_state(), runner.local_state()), saved)
    found = {"middle": torch.cat(runner.to_give())}
    take(runner, range(3, 6))
    runner.finish()
    runner.drain()
    runner.close()
    found["went on"] = tasks.flat(runner.task.model)
    everybody = [f"worker {n}" for n in range(seat.workers)]
    seat.meeting.gather("over", b"", everybody, operation="a pause", deadline_seconds=30)
    seat.meeting.scope += "again/"
    again = runner_of(seat, regression(), strategy)
    shared, local = torch.load(io.BytesIO(saved.getvalue()), weights_only=True)
    if shared is not None:
        again.load_shared_state(shared)
        found["mean"] = tasks.flat(again.task.model)
    again.load_local_state(local)
    take(again, range(3, 6))
    again.finish()
    again.drain()
    again.close()
    found["loaded"] = tasks.flat(again.task.model)
    return found


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(WORKERS, silent_seconds=60.0) as found:
        yield found


@pytest.mark.parametrize(
    "strategy",
    [
        AdPsgd(trace=True),
        AdPsgd(topology="complete", trace=True),
        DPsgd(trace=True),
        DPsgd(topology="bipartite", trace=True),
        Sgp(trace=True),
        Sgp(topology="complete", one_peer=False, trace=True),
        Sgp(topology="ring", overlap=2, trace=True),
    ],
    ids=lambda each: f"{each.name}-{each.topology}",
)
def test_the_trace_replayed_in_one_process_gives_the_same_bits(
    group: Group, strategy: Gossip
) -> None:
    """1.4: trace replay, with momentum and uneven shares; the final model is the mean."""
    answers = group.call(train, strategy, 25, timeout_seconds=240)
    traces = {rank: answers[f"worker {rank}"]["trace"] for rank in range(WORKERS)}
    found = replay(regression, traces, WORKERS, PLAYS[type(strategy)])
    for rank in range(WORKERS):
        given = answers[f"worker {rank}"]["given"]
        assert torch.equal(torch.cat(found[rank]), torch.cat(given[: len(found[rank])]))
    exchanges = sum(each["counters"]["events"].get("exchanges", 0) for each in answers.values())
    assert exchanges >= 5
    parts = [answers[f"worker {rank}"]["given"] for rank in range(WORKERS)]
    mean = [torch.stack(each).mean(0) for each in zip(*parts, strict=True)]
    if isinstance(strategy, Sgp):
        assert float(mean[-1]) == pytest.approx(1.0, abs=1e-12), "the weights add up to p"
        mean = [each / float(mean[-1]) for each in mean[:-1]]
    for each in answers.values():
        assert torch.equal(each["final"], torch.cat(mean)), "the same bits on all of them"


@pytest.mark.parametrize(
    "strategy",
    [AdPsgd(), AdPsgd(topology="complete"), DPsgd(), Sgp(), Sgp(one_peer=False, overlap=1)],
    ids=lambda each: f"{each.name}-{each.topology}",
)
def test_without_gradients_the_sum_stays_and_the_workers_agree(
    group: Group, strategy: Gossip
) -> None:
    """1.4: g = 0, sum of x_i conserved."""
    answers = group.call(average, strategy, 40, timeout_seconds=240)
    before = torch.stack([each[0] for each in answers.values()])
    given = torch.stack([each[-1] for each in answers.values()])[:, : before.shape[1]]
    assert torch.allclose(before.sum(0), given.sum(0), rtol=0, atol=1e-12)
    after = torch.stack([each[-2] for each in answers.values()])
    # Without a barrier one worker may be done before another has begun to average.
    left = 0.9 if isinstance(strategy, AdPsgd) else 1e-2
    assert (after - before.mean(0)).norm() < left * (before - before.mean(0)).norm()


def test_disagreement_contracts_by_lambda_2_of_the_graph(group: Group) -> None:
    """1.4: D-PSGD contracts by lambda_2(W); every step is X W, on a path of three."""
    answers = group.call(average, DPsgd(topology="bipartite"), 12, timeout_seconds=240)
    members = list(range(WORKERS))
    weights = topology.mixing(topology.links("bipartite", members), members)
    rate = topology.lambda_2(weights)
    assert rate == pytest.approx(2 / 3)
    x = torch.stack([answers[f"worker {rank}"][0] for rank in members])
    spread = (x - x.mean(0)).norm()
    for step in range(1, 13):
        x = weights @ x
        found = torch.stack([answers[f"worker {rank}"][step] for rank in members])
        assert torch.allclose(found, x, rtol=0, atol=1e-14)
        left = (found - found.mean(0)).norm()
        assert left <= rate * spread * (1 + 1e-12)
        spread = left
    assert float(spread) > 0


@pytest.mark.parametrize("strategy", [DPsgd(), Sgp()], ids=lambda each: each.name)
def test_a_save_in_the_middle_changes_nothing(group: Group, strategy: Gossip) -> None:
    """The contract of `local_state`; the shared state of worker 0 is the mean."""
    answers = group.call(save_and_go_on, strategy, timeout_seconds=240)
    for each in answers.values():
        assert torch.equal(each["went on"], each["loaded"])
    mean = torch.stack([each["middle"] for each in answers.values()]).mean(0)
    if isinstance(strategy, Sgp):
        mean = mean[:-1] / mean[-1]
    assert torch.allclose(answers["worker 0"]["mean"], mean, rtol=0, atol=1e-15)


def test_options_that_cannot_work_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="topology"):
        registry.choose("dpsgd", {"topology": "star"})
    with pytest.raises(InvalidInput, match="degree: only a `regular`"):
        AdPsgd(degree=4).check(regression(), 4, 0)
    with pytest.raises(InvalidInput, match="servers: sgp has none"):
        Sgp().check(regression(), 4, 1)
    lines = registry.strategies()
    assert lines["adpsgd"].startswith("AD-PSGD: each worker steps at its own pace")
