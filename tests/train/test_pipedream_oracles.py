"""PipeDream and 2BW against their oracles (1.9), with real messages between members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.data import Data
from windlass.train.planning.plan import Plan, PlanStage
from windlass.train.policies.schedules import depth, warm_up
from windlass.train.runners.pipedream import PipeDream, Stashing, TwoBw
from windlass.train.runners.post import Post
from windlass.train.runners.rounds import Rounds
from windlass.train.runners.stashing import Event, StashingRunner
from windlass.train.seat import Seat
from windlass.train.task import Task, sum_loss
from windlass.train.testing import tasks
from windlass.train.testing.pipe_replay import Run, replay
from windlass.train.testing.town import Town
from windlass.train.trainer import Trainer

Make = Callable[[], Task]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.03, momentum=0.9, weight_decay=0.01)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, 0.01)


def network(layers: int = 5) -> nn.Module:
    found: list[nn.Module] = [nn.Linear(4, 8)]
    for _ in range(layers - 2):
        found += [nn.Tanh(), nn.Linear(8, 8)]
    return seeded(nn.Sequential(*found, nn.Tanh(), nn.Linear(8, 2)).double())


def seeded(model: nn.Module) -> nn.Module:
    """Not by torch's own dice, which the members of a town share."""
    dice = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=dice, dtype=torch.float64) * 0.4)
    return model


def make(optimizer: Callable[[Any], torch.optim.Optimizer] = sgd, count: int = 31) -> Make:
    """31 samples in batches of 6: the sixth of an epoch has one sample."""
    return lambda: tasks.regression(count, 6, model=network(), optimizer=optimizer)


@dataclass
class Result:
    state: dict[str, Tensor]
    names: tuple[str, ...]
    trace: list[Event]
    most_alive: int
    runner: StashingRunner
    losses: dict[int, float]


def train(
    seat: Seat, task_of: Make, strategy: Stashing, steps: int,
    flush_at: tuple[int, ...] = (), **options: Any,
) -> Result:  # fmt: skip
    task = task_of()
    trainer = Trainer(task, strategy, seat=seat, **options)
    runner = trainer.runner
    assert isinstance(runner, StashingRunner)
    losses: dict[int, float] = {}
    try:
        while trainer.cursor.steps < steps:
            for batch in trainer.batches():
                at = trainer.cursor.steps
                outcome = trainer.step(batch)
                if outcome.count:
                    losses[at] = float(outcome.loss_sum)
                if trainer.cursor.steps in flush_at:
                    runner.flush()
                if trainer.cursor.steps >= steps:
                    break
        runner.drain()
        runner.assemble()  # nothing has changed: nobody talks to anybody
        state = {n: v.clone() for n, v in task.model.state_dict().items() if not v.is_meta}
        return Result(
            state, runner.work.names, runner.trace, runner.versions.most_alive, runner, losses
        )
    finally:
        trainer.abandon()


def run(
    strategy: Stashing, workers: int, steps: int, task_of: Make | None = None, **options: Any
) -> list[Result]:
    with Town(workers, 0, silent_seconds=30, deadline_seconds=60) as town:
        found = town.call(partial(train, **options), task_of or make(), strategy, steps)
    return [found[f"worker {n}"] for n in range(workers)]


def stages_of(found: list[Result], replicas: tuple[int, ...]) -> list[tuple[str, ...]]:
    return [found[sum(replicas[:s])].names for s in range(len(replicas))]


def check_replay(
    found: list[Result], replicas: tuple[int, ...], flushes: tuple[int, ...], task: Task,
    **more: Any,
) -> None:  # fmt: skip
    trace = [event for each in found for event in each.trace]
    replay(task, Run(stages_of(found, replicas), replicas, flushes, **more), trace)
    whole = task.model.state_dict()
    assert found[0].state.keys() == whole.keys()
    for name, value in found[0].state.items():
        assert torch.equal(value, whole[name]), name


# -- (1), (2), (3), (6): versions, bound, replay, replicas ------------------------------------

LAYOUTS = [(1, 1), (1, 1, 1), (2, 1), (1, 2), (3, 1), (2, 2)]


@pytest.mark.parametrize("replicas", LAYOUTS)
@pytest.mark.parametrize("overlap", [True, False])
def test_a_run_is_replayed_to_the_bit(replicas: tuple[int, ...], overlap: bool) -> None:
    """1.9 (1), (2), (3), (6). 11 steps: uneven for two and three replicas."""
    strategy = PipeDream(replicas=replicas, balance="blocks", overlap=overlap, trace=True)
    found = run(strategy, sum(replicas), 11)
    check_replay(found, replicas, (0, 11), make()())
    at = 0
    for stage, count in enumerate(replicas):
        for _ in range(count):
            assert found[at].most_alive <= warm_up(replicas, stage) + 1
            at += 1
    if all(count == 1 for count in replicas):
        assert [each.most_alive for each in found] == [
            warm_up(replicas, s) + 1 for s in range(len(replicas))
        ]


@pytest.mark.parametrize("optimizer", [momentum, adam])
def test_optimisers_with_state_step_each_stage(optimizer: Any) -> None:
    strategy = PipeDream(replicas=(1, 2), balance="blocks", trace=True)
    found = run(strategy, 3, 9, make(optimizer))
    check_replay(found, (1, 2), (0, 9), make(optimizer)())


def test_replicas_of_a_stage_stay_the_same_to_the_bit() -> None:
    """1.9 (6), and 1.9's all-reduce: the order of versions is everybody's."""
    found = run(PipeDream(replicas=(1, 3), balance="blocks", trace=True), 4, 10)
    replicas = [each.runner.work.parameters for each in found[1:]]
    for others in replicas[1:]:
        assert all(torch.equal(a, b) for a, b in zip(replicas[0], others, strict=True))
    for each in found[1:]:
        mine = {number for kind, _, _, number, _ in each.trace if kind == "F"}
        assert mine == {number for kind, _, _, number, _ in each.trace if kind == "B"}
        assert {number % 3 for number in mine} == {each.runner.replica}


def test_the_rate_of_a_stage_may_follow_its_replicas() -> None:
    strategy = PipeDream(replicas=(1, 2), balance="blocks", scale_lr=True, trace=True)
    found = run(strategy, 3, 7)
    check_replay(found, (1, 2), (0, 7), make()(), rates=(1.0, 2.0))


def test_draining_on_the_way_fills_the_pipeline_anew() -> None:
    strategy = PipeDream(replicas=(2, 1), balance="blocks", trace=True)
    found = run(strategy, 3, 11, flush_at=(4, 7))
    check_replay(found, (2, 1), (0, 4, 7, 11), make()())


@pytest.mark.parametrize("replicas", [(1, 1, 1), (2, 1), (1, 2)])
def test_with_vertical_sync_all_stages_use_the_same_weights(replicas: tuple[int, ...]) -> None:
    """1.9 (1): the version that the input stage stamps, in the batches it holds."""
    strategy = PipeDream(replicas=replicas, balance="blocks", vertical_sync=True, trace=True)
    found = run(strategy, sum(replicas), 13)
    check_replay(found, replicas, (0, 13), make()())
    held: dict[int, set[int]] = {}
    for kind, stage, _, batch, version in (event for each in found for event in each.trace):
        if kind in "FB":
            held.setdefault(batch, set()).add(version * replicas[stage])
    assert len(held) == 13 and all(len(each) == 1 for each in held.values())
    assert max(max(each) for each in held.values()) > 0
    if replicas == (1, 1, 1):
        assert [held[batch] for batch in range(13)] == [{max(0, b - 2)} for b in range(13)]
        assert [each.most_alive for each in found] == [3, 3, 3]


def test_recomputing_changes_nothing() -> None:
    strategy = PipeDream(balance="blocks", recompute=True, trace=True)
    check_replay(run(strategy, 3, 8), (1, 1, 1), (0, 8), make()())


def test_a_stage_without_parameters_is_a_stage_like_any_other() -> None:
    strategy = PipeDream(replicas=(1, 2, 1), cuts=(1, 2), trace=True)
    found = run(strategy, 4, 9)
    assert found[1].names == found[2].names == ()
    check_replay(found, (1, 2, 1), (0, 9), make()())


def test_a_plan_says_replicas_and_cuts() -> None:
    stages = (PlanStage(blocks=(0, 3), replicas=2), PlanStage(blocks=(4, 8)))
    plan = Plan(strategy="pipedream", workers=3, stages=stages)
    chosen = registry.choose("pipedream", {"plan": plan, "trace": True})
    assert isinstance(chosen, PipeDream)
    assert chosen.replicas == (2, 1) and chosen.cuts == (4,)
    found = run(chosen, 3, 7)
    assert found[0].runner.parts == ((0, 3), (4, 8))
    check_replay(found, (2, 1), (0, 7), make()())
    with pytest.raises(InvalidInput, match="plan: one for 2bw"):
        registry.choose("2bw", {"plan": plan})


def test_an_evaluation_sees_the_whole_drained_model() -> None:
    seen: list[dict[str, Tensor]] = []

    def evaluated() -> Task:
        task = make()()

        def evaluate(model: nn.Module) -> dict[str, float]:
            seen.append({name: each.clone() for name, each in model.state_dict().items()})
            return {"norm": float(sum(each.norm() for each in model.parameters()))}

        task.evaluate = evaluate
        return task

    found = run(PipeDream(balance="blocks", trace=True), 3, 12, evaluated)
    check_replay(found, (1, 1, 1), (0, 6, 12), make()())
    assert len(seen) == 2, "after each epoch, on worker 0"
    assert all(torch.equal(seen[1][name], value) for name, value in found[0].state.items())


def test_sums_over_replicas_are_of_every_dtype_and_of_those_that_have_one() -> None:
    like = [torch.zeros(5), torch.zeros(2, 3, dtype=torch.float64), torch.zeros(1)]

    def exchange(seat: Seat) -> Any:
        post = Post(seat)
        try:
            names = [f"worker {n}" for n in range(3)]
            rounds = Rounds(post, 0, names, seat.rank, like)
            found = []
            for number in range(3):
                value = float(10 * number + seat.rank)
                gradients = [torch.full_like(each, value) for each in like]
                mine: list[Tensor | None] = [
                    gradients[0] if seat.rank else None,
                    gradients[1],
                    None,
                ]
                rounds.begin(number, mine, seat.rank)
                found.append(rounds.finish(number))
            rounds.settle("test")
            return found
        finally:
            post.close()

    with Town(3, 0, silent_seconds=30) as town:
        answers = town.call(exchange)
    for found in answers.values():
        for number, (sums, count) in enumerate(found):
            assert count == 3 and sums[2] is None
            assert torch.equal(sums[0], torch.full((5,), 20.0 * number + 3))
            assert torch.equal(sums[1], torch.full((2, 3), 30.0 * number + 3).double())


# -- (4): one stage is SGD --------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [sgd, momentum, adam])
def test_one_stage_is_the_optimiser_alone(optimizer: Any) -> None:
    """1.9 (4), to the bit."""
    found = run(PipeDream(), 1, 9, make(optimizer))[0]
    alone = tasks.alone(make(optimizer)(), 9)
    for name, value in alone.model.state_dict().items():
        assert torch.equal(found.state[name], value)


def test_a_schedule_gives_each_batch_its_own_rate_at_every_stage() -> None:
    """Though stages update a batch at different steps; against the delayed recurrence by hand."""

    def scheduled() -> Task:
        task = make()()
        task.schedule = torch.optim.lr_scheduler.StepLR(task.optimizer, 2, 0.5)
        return task

    found = run(PipeDream(balance="blocks", trace=True), 2, 7, scheduled)
    task = make()()
    stages = stages_of(found, (1, 1))
    own = dict(task.model.named_parameters())
    history = [{n: p.detach().clone() for n, p in own.items()}]
    for batch in range(7):
        with torch.no_grad():
            for name, each in own.items():  # stage 0 lacks one update
                each.copy_(history[max(0, batch - 1) if name in stages[0] else batch][name])
        total, count = task.loss_of(task.data.batch(task.data.at(batch)).content)
        gradients = torch.autograd.grad(total, list(own.values()))
        rate = 0.05 * 0.5 ** (batch // 2)
        history.append({
            name: history[-1][name] - rate * (gradient / count)
            for (name, _), gradient in zip(own.items(), gradients, strict=True)
        })  # fmt: skip
    for name, value in found[0].state.items():
        torch.testing.assert_close(value, history[-1][name], rtol=1e-12, atol=1e-14)


# -- (5): 2BW ---------------------------------------------------------------------------------


def delayed(task: Task, steps: int, cut: int) -> dict[str, Tensor]:
    """x(t+1) = x(t) - lr·grad f(x(t-1)), the gradient summed over micro-batches in their order."""
    own = dict(task.model.named_parameters())
    before = now = {name: each.detach().clone() for name, each in own.items()}
    for step in range(steps):
        with torch.no_grad():
            for name, each in own.items():
                each.copy_(before[name])
        inputs, targets = task.data.batch(task.data.at(step)).content
        cut_to = min(cut, len(inputs))
        sums: dict[str, Tensor] = {}
        whole = 0.0
        pieces = zip(inputs.tensor_split(cut_to), targets.tensor_split(cut_to), strict=True)
        for piece in pieces:
            total, count = task.loss_of(piece)
            found = torch.autograd.grad(total, list(own.values()))
            whole += count
            for name, gradient in zip(own, found, strict=True):
                sums[name] = sums[name] + gradient if name in sums else gradient
        with torch.no_grad():
            for name, each in own.items():
                each.copy_(now[name])
                each.grad = sums[name] / whole
        task.optimizer.step()
        before, now = now, {name: each.detach().clone() for name, each in own.items()}
    return now


@pytest.mark.parametrize(("workers", "cut"), [(1, None), (2, None), (2, 5), (3, None), (3, 4)])
def test_2bw_is_the_recurrence_delayed_by_one(workers: int, cut: int | None) -> None:
    """1.9 (5), (2), to the bit. An epoch's last batch has fewer samples than micro-batches."""
    strategy = TwoBw(micro_batches=cut, balance="blocks", trace=True)
    found = run(strategy, workers, 9)
    expected = delayed(make()(), 9, cut or workers)
    for name, value in found[0].state.items():
        assert torch.equal(value, expected[name]), name
    assert max(each.most_alive for each in found) <= 2


def test_2bw_does_not_notice_when_it_is_drained() -> None:
    strategy = TwoBw(balance="blocks")
    plain = run(strategy, 3, 8, make(momentum))[0].state
    drained = run(strategy, 3, 8, make(momentum), flush_at=(1, 2, 5))[0].state
    assert all(torch.equal(plain[name], drained[name]) for name in plain)


@pytest.mark.parametrize("replicas", [(2, 1), (1, 2), (2, 2)])
def test_2bw_with_replicas_is_replayed_to_the_bit(replicas: tuple[int, ...]) -> None:
    strategy = TwoBw(replicas=replicas, balance="blocks", trace=True)
    cut = depth(replicas)
    task_of = make(count=30)  # no batch with fewer samples than micro-batches
    found = run(strategy, sum(replicas), 7, task_of)
    check_replay(found, replicas, (0, 7 * cut), task_of(), per_step=cut)
    one = delayed(task_of(), 7, cut)
    for name, value in found[0].state.items():
        torch.testing.assert_close(value, one[name], rtol=1e-11, atol=1e-13)
    assert max(each.most_alive for each in found) <= 2


# -- (7): resuming ----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [
    PipeDream(balance="blocks", trace=True),
    PipeDream(replicas=(2, 1), balance="blocks", trace=True),
    PipeDream(balance="blocks", vertical_sync=True, trace=True),
    TwoBw(balance="blocks", trace=True),
])  # fmt: skip
def test_a_resumed_run_is_the_run_that_went_on(strategy: Stashing, tmp_path: Path) -> None:
    """1.9 (7), of the arithmetic; deaths are in test_pipedream_faults."""
    on: dict[str, Any] = {"save_every": 3}
    whole = run(strategy, 3, 10, make(adam), checkpoint=str(tmp_path / "a"), **on)[0].state
    run(strategy, 3, 6, make(adam), checkpoint=str(tmp_path / "b"), **on)
    again = run(strategy, 3, 10, make(adam), checkpoint=str(tmp_path / "b"), **on)[0].state
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_checkpoint_loads_under_another_strategy_and_cut(tmp_path: Path) -> None:
    folder = str(tmp_path / "c")
    first = run(PipeDream(balance="blocks"), 3, 4, make(adam), checkpoint=folder, save_every=4)
    saved = first[0].state
    other = run(TwoBw(cuts=(2,)), 2, 4, make(adam), checkpoint=folder, save_every=4)
    assert all(torch.equal(saved[name], other[0].state[name]) for name in saved)
    on = run(TwoBw(cuts=(2,)), 2, 6, make(adam), checkpoint=folder, save_every=6)
    assert any(not torch.equal(saved[name], on[0].state[name]) for name in saved)


# -- statistics, losses, refusals -------------------------------------------------------------


def normalised() -> Task:
    layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh()]
    model = seeded(nn.Sequential(*layers, nn.Linear(8, 2)).double())
    data = Data(tasks.samples(30), 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    return Task(model, sum_loss(functional.mse_loss, reduction="sum"), optimizer, data)


def test_running_statistics_are_in_no_version() -> None:
    """They move with each mini-batch's forward, and are saved as they are."""
    found = run(PipeDream(balance="blocks", trace=True), 3, 10, normalised)
    assert found[0].state["1.num_batches_tracked"] == 10
    task = normalised()
    trace = [event for each in found for event in each.trace]
    replay(task, Run(stages_of(found, (1, 1, 1)), (1, 1, 1), (0, 10)), trace)
    for name, value in task.model.state_dict().items():
        torch.testing.assert_close(found[0].state[name], value, rtol=1e-9, atol=1e-12)


def test_the_last_stage_tells_every_loss_once_and_staleness_is_counted() -> None:
    found = run(PipeDream(balance="blocks"), 3, 8)
    assert [sorted(each.losses) for each in found] == [[], [], list(range(8))]
    first = found[0].runner.counters.staleness
    assert dict(first) == {0: 1, 1: 1, 2: 6}
    assert dict(found[2].runner.counters.staleness) == {0: 8}


@pytest.mark.parametrize(("strategy", "says"), [
    (PipeDream(replicas=(1, 3)), r"replicas: .* 3 workers in all \(found \[1, 3\], 4 in all\)"),
    (PipeDream(replicas=(3, 0)), "replicas: 1 or more for each stage"),
    (PipeDream(cuts=(1,)), "cuts: 2, one less than the 3 stages"),
    (TwoBw(micro_batches=2), "micro_batches: 3 or more"),
])  # fmt: skip
def test_what_cannot_work_is_refused_in_words(strategy: Stashing, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        strategy.check(make()(), 3, 0)


def test_tied_weights_in_two_stages_are_refused() -> None:
    def tied() -> Task:
        model = network()
        model.get_submodule("2").weight = model.get_submodule("6").weight
        return tasks.regression(12, 6, model=model)

    with pytest.raises(InvalidInput, match=r"2.weight is used by stage 0 and stage 1"):
        run(PipeDream(cuts=(5,)), 2, 2, tied)
    run(PipeDream(cuts=(1,)), 2, 3, tied)
