"""Stages compose to the model, whatever the cut: outputs to the bit, and gradients (1.8)."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from cutting import (
    First,
    Language,
    Pair,
    UNet,
    Writing,
    backwards,
    cuts,
    doubled,
    forwards,
    one_thread,
    sentences,
    stages_of,
    vectors,
)
from torch import nn

from windlass.train.cut import chain_of, release
from windlass.train.cut.probe import inputs_of, loss_given
from windlass.train.cut.recompute import recomputed
from windlass.train.task import Task

__all__ = ["one_thread"]


def plain() -> Task:
    layers = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 4))
    return vectors(doubled(nn.Sequential(nn.Linear(4, 8), layers, nn.Tanh(), nn.Linear(4, 2))))


def tuples() -> Task:
    return vectors(doubled(nn.Sequential(Pair(), Pair(), Pair(), First())))


def language(dropout: float = 0.0) -> Task:
    model = Language(dropout)
    doubled(model)
    return sentences(model, model.layers)


def language_traced() -> Task:
    return sentences(doubled(Language()))


def unet() -> Task:
    model = UNet()
    doubled(model)
    return vectors(model, [*model.down, model.middle, *model.up])


def unet_traced() -> Task:
    return vectors(doubled(UNet()))


def normalised() -> Task:
    parts = [nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)]
    return vectors(doubled(nn.Sequential(*parts)))


def writing() -> Task:
    return vectors(doubled(nn.Sequential(nn.Linear(4, 4), Writing(), Writing(), nn.Linear(4, 2))))


def shared() -> Task:
    same = nn.Linear(4, 4)
    return vectors(doubled(nn.Sequential(same, nn.Tanh(), same, nn.Linear(4, 2))))


EVERY = [
    plain, tuples, language, language_traced, unet, unet_traced, normalised, writing, shared,
]  # fmt: skip


def whole(make: Callable[[], Task]) -> tuple[Task, torch.Tensor]:
    task = make()
    torch.manual_seed(5)
    total, _ = task.loss_of(task.data.batch(task.data.at(0)).content)
    total.backward()
    return task, total


@pytest.mark.parametrize("make", EVERY, ids=lambda each: each.__name__)
@pytest.mark.parametrize("again", [False, True], ids=["", "recomputed"])
def test_stages_compose_to_the_model_for_every_cut(make: Callable[[], Task], again: bool) -> None:
    expected, expected_total = whole(make)
    task = make()
    chain = chain_of(task)
    at_first = {name: value.clone() for name, value in task.model.state_dict().items()}
    batch = task.data.batch(task.data.at(0)).content
    args, kwargs = inputs_of(task, batch)
    for cut in cuts(len(chain)):
        if 3 < len(cut) < len(chain):
            continue  # all of few stages, and every block alone: in between there are hundreds
        task.model.load_state_dict(at_first)
        task.model.zero_grad()
        torch.manual_seed(5)
        run = recomputed if again else None
        done = forwards(stages_of(chain, cut), chain.enter(*args, **kwargs), run)
        total, count = loss_given(task, batch, chain.result(done[-1][1]))
        assert torch.equal(total, expected_total) and count > 0
        backwards(done, total)
        for (name, mine), (_, theirs) in zip(
            task.model.named_parameters(), expected.model.named_parameters(), strict=True
        ):
            assert mine.grad is not None and theirs.grad is not None, name
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-12, atol=1e-14)
        for mine, theirs in zip(task.model.buffers(), expected.model.buffers(), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("again", [False, True], ids=["", "recomputed"])
def test_dropout_is_the_same_in_stages_and_when_it_is_done_again(again: bool) -> None:
    test_stages_compose_to_the_model_for_every_cut(lambda: language(0.4), again)


def test_recomputation_with_other_dice_in_between_keeps_each_micro_batch_s_own() -> None:
    """Two micro-batches forward, then both backward: each backward throws the dice of its own."""
    reference = language(0.4)
    task = language(0.4)
    stage = chain_of(task).stage(0, 3)
    words = torch.randint(0, 11, (6, 5))
    scale = (0.5,)
    torch.manual_seed(9)
    totals = [reference.model(part, *scale).square().sum() for part in words.split(3)]
    for total in reversed(totals):
        total.backward()
    torch.manual_seed(9)
    found = [recomputed(stage, part)[0].square().sum() for part in words.split(3)]
    after = torch.get_rng_state()
    for total in reversed(found):
        torch.rand(17)
        total.backward()
    assert all(map(torch.equal, found, totals))
    for mine, theirs in zip(stage.parameters(), reference_like(stage, reference), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    torch.manual_seed(9)
    for part in words.split(3):
        reference.model(part, *scale)
    assert torch.equal(after, torch.get_rng_state())


def reference_like(stage: nn.Module, reference: Task) -> list[nn.Parameter]:
    named = dict(reference.model.named_parameters())
    return [named[name] for name in stage.parameter_names]


def test_a_recomputed_stage_keeps_its_inputs_and_nothing_more() -> None:
    task = language(0.4)
    chain = chain_of(task)
    stage = chain.stage(1, 2)
    values = [each.detach() for each in chain.stage(0, 0)(torch.ones(6, 5, dtype=torch.long))]
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
        recomputed(stage, *(each.requires_grad_(each.is_floating_point()) for each in values))
    assert sum(kept) <= sum(each.numel() for each in values)


def test_any_batch_size_goes_through_stages_that_were_cut_with_another() -> None:
    for make in (language, language_traced, unet, tuples):
        task = make()
        chain = chain_of(task)
        stages = stages_of(chain, ((0, 1), (2, len(chain) - 1)))
        for size in (1, 3, 11):
            task.data.global_batch = size
            batch = task.data.batch(task.data.at(0)).content
            args, kwargs = inputs_of(task, batch)
            expected = task.model(*args, **kwargs)
            found = forwards(stages, chain.enter(*args, **kwargs))[-1][1]
            assert torch.equal(chain.result(found), expected)


def test_a_skip_is_an_edge_and_rides_along() -> None:
    chain = chain_of(unet())
    assert {(0, 5), (1, 4), (2, 3)} <= set(chain.edges)
    assert len(chain.blocks) == 7
    taken = forwards([chain.stage(0, 2)], (torch.randn(3, 4, dtype=torch.float64),))[0][1]
    assert sum(isinstance(each, torch.Tensor) for each in taken) == 3
    assert [each for each in taken if isinstance(each, int)] == [3]


def test_a_tied_weight_is_named_once_with_the_blocks_that_use_it() -> None:
    chain = chain_of(language())
    assert chain.tied == {"words.weight": (0, 3)}
    assert "words.weight" in chain.blocks[3].parameters
    assert not any("head.weight" in block.parameters for block in chain.blocks)
    twice = chain_of(shared())
    assert twice.tied == {"0.weight": (0, 2), "0.bias": (0, 2)}


def test_the_states_of_all_stages_are_the_model_s() -> None:
    for make in EVERY:
        task = make()
        chain = chain_of(task)
        stages = stages_of(chain, ((0, 0), (1, 1), (2, len(chain) - 1)))
        found = {name: value for stage in stages for name, value in stage.state().items()}
        expected = task.model.state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        for stage in stages:
            named = dict(task.model.named_parameters())
            for name, each in zip(stage.parameter_names, stage.parameters(), strict=True):
                assert named[name] is each


def test_a_parameter_that_no_block_uses_is_kept_by_the_first() -> None:
    model = Language()
    model.idle = nn.Linear(3, 3)
    model.register_buffer("counted", torch.tensor(7))
    doubled(model)
    task = sentences(model, model.layers)
    first = chain_of(task).stage(0, 1)
    assert {"idle.weight", "counted"} <= first.state_dict().keys()


def test_what_is_not_one_s_own_is_let_go_and_the_optimiser_keeps_its_numbers() -> None:
    task = language()
    task.loss_of(task.data.batch(task.data.at(0)).content)[0].backward()
    task.optimizer.step()
    before = task.optimizer.state_dict()
    chain = chain_of(task)
    kept = chain.stage(2, 3)
    gone = task.model.layers[0].mix.weight
    release(task.model, [kept], task.optimizer)
    own = {id(each) for each in kept.parameters()}
    for name, each in task.model.named_parameters():
        assert each.is_meta == (id(each) not in own), name
    after = task.optimizer.state_dict()
    assert after["param_groups"][0]["params"] == before["param_groups"][0]["params"]
    assert len(after["state"]) == len(own) < len(before["state"])
    assert all(
        each is not gone for group in task.optimizer.param_groups for each in group["params"]
    )
    mask = torch.ones(5, 5).triu(1).bool()
    kept(mask, torch.randn(2, 5, 8, dtype=torch.float64))[0].sum().backward()
    task.optimizer.step()


def test_memory_of_what_is_let_go_is_free() -> None:
    import gc
    import weakref

    task = language()
    chain = chain_of(task)
    stages = [chain.stage(0, 1)]
    others = [task.model.layers[3].mix.weight, task.model.norm.weight]
    watched = [weakref.ref(each.untyped_storage()) for each in others]
    del others
    release(task.model, stages, task.optimizer)
    gc.collect()
    assert all(each() is None for each in watched)
    assert chain.stage(2, 3).device == torch.device("meta")


def test_an_lstm_lets_go_of_its_weights_too() -> None:
    import gc
    import weakref

    class Last(nn.Module):
        def forward(self, x: tuple[torch.Tensor, object]) -> torch.Tensor:
            return x[0][:, :2]

    task = vectors(doubled(nn.Sequential(nn.LSTM(4, 4), Last(), nn.Linear(2, 2))))
    chain = chain_of(task)
    with torch.no_grad():
        values = chain.stage(0, 0)(torch.randn(3, 4, dtype=torch.float64))
    assert len(values) == 4  # outputs, hidden state, cell state, and how they belong together
    stage = chain.stage(1, 2)
    watched = weakref.ref(task.model[0].weight_ih_l0)
    release(task.model, [stage], task.optimizer)
    gc.collect()
    assert watched() is None
    assert stage(*values)[0].shape == (3, 2)


def test_other_weights_can_stand_in_for_a_stage_s_own() -> None:
    """As a runtime with several versions of the weights needs it."""
    task = language()
    stage = chain_of(task).stage(0, 1)
    words = torch.ones(2, 5, dtype=torch.long)
    other = {name: each * 2 for name, each in stage.named_parameters()}
    found = torch.func.functional_call(stage, other, (words,))
    with torch.no_grad():
        for each in stage.parameters():
            each.mul_(2)
    assert all(map(torch.equal, found, stage(words)))


def test_a_chain_of_a_thousand_blocks_is_cut_in_no_time() -> None:
    layers = [nn.Linear(1, 1) for _ in range(1000)]
    task = vectors(nn.Sequential(*layers))
    chain = chain_of(task)
    assert sum(len(chain.stage(n, n).parameter_names) for n in range(0, 1000, 10)) == 200


@pytest.mark.parametrize(
    "layer", [Writing, lambda: nn.ReLU(inplace=True)], ids=["opaque", "torch's"]
)
def test_a_stage_never_writes_over_what_it_was_given(layer: Callable[[], nn.Module]) -> None:
    """A caller that keeps inputs to compute again, without gradients at first, relies on it."""
    chain = chain_of(vectors(doubled(nn.Sequential(nn.Linear(4, 4), layer(), nn.Linear(4, 2)))))
    stage = chain.stage(1, 2)
    given = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    kept = given.detach().clone()
    with torch.no_grad():
        first = stage(given)[0]
        assert torch.equal(first, stage(given)[0])
    assert torch.equal(stage(given)[0], first)
    assert torch.equal(given, kept)


def test_a_copy_of_a_stage_is_a_stage_of_its_own() -> None:
    stage = chain_of(language()).stage(0, 1)
    other = copy.deepcopy(stage)
    words = torch.ones(2, 5, dtype=torch.long)
    before = stage(words)
    assert all(map(torch.equal, other(words), before))
    with torch.no_grad():
        for each in other.parameters():
            each.add_(1)
    assert all(map(torch.equal, stage(words), before))
    assert not any(map(torch.equal, other(words)[1:], before[1:]))
