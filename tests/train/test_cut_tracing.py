"""Models of any form are cut, or refused with the line, the reason and the next step."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from cutting import (
    Language,
    backwards,
    cuts,
    doubled,
    forwards,
    one_thread,
    sentences,
    stages_of,
    vectors,
)
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from windlass.core.errors import InvalidInput
from windlass.train.cut import Chain, chain_of
from windlass.train.cut.packing import pack, unpack
from windlass.train.cut.probe import inputs_of, loss_given
from windlass.train.cut.recompute import recomputed
from windlass.train.task import Task

__all__ = ["one_thread"]


class Simple(nn.Module):
    """Two layers, and between them what a subclass does."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.last = nn.Linear(6, 2)

    def between(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Any) -> Any:
        return self.last(self.between(self.first(x)))


class Lengths(Simple):
    def between(self, x: Tensor) -> Tensor:
        assert x.dim() == 2
        if x.shape[1] > 5:
            x = x * 2
        for n in range(x.shape[1]):
            x = x + n
        if len(x.shape) == 2 and float(x.size(-1)) > 1.0:
            x = x + torch.ones(x.size(0), 6, dtype=x.dtype)
        return x + torch.eye(6, dtype=torch.float64).sum(0)


class Values(Simple):
    def between(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x


class Items(Simple):
    def between(self, x: Tensor) -> Tensor:
        return x * 2 if x.mean().item() > 0.5 else x


class Typed(Simple):
    def between(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError("a tensor is meant")
        return x.view(x.shape[0], 6) + torch.arange(6)


class Unseen(Simple):
    def between(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            fixed = self.first.weight.sum() * 2
        return x * fixed


class Inside(nn.Module):
    """A part that depends on values, within a model that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.whole = Values()
        self.after = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.whole(self.before(x)))


class Answers(nn.Module):
    """Takes a dict and gives one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.last = nn.Linear(6, 2)

    def forward(self, batch: dict[str, Any], *, double: bool = False) -> dict[str, Any]:
        hidden = self.first(batch["x"])
        if double:
            hidden = hidden * 2
        return {"y": self.last(hidden), "hidden": hidden, "none": None}


def compose(chain: Chain, task: Task) -> None:
    """Every cut gives what the model gives."""
    args, kwargs = inputs_of(task, task.data.batch(task.data.at(0)).content)
    expected = task.model(*args, **kwargs)
    for cut in cuts(len(chain)):
        found = forwards(stages_of(chain, cut), chain.enter(*args, **kwargs))[-1][1]
        assert torch.equal(chain.result(found), expected)


@pytest.mark.parametrize("kind", [Simple, Lengths, Typed, Inside])
def test_a_model_of_any_form_is_cut_without_a_word(kind: type[nn.Module]) -> None:
    task = vectors(doubled(kind()))
    chain = chain_of(task)
    assert len(chain) >= 2
    compose(chain, task)


def test_what_torch_export_wrote_down_trains_with_any_batch() -> None:
    model = Typed()
    task = vectors(doubled(model))
    chain = chain_of(task)
    assert [block.name for block in chain.blocks] == ["first", "last"]
    assert chain.blocks[0].parameters == ("first.weight", "first.bias")
    stages = stages_of(chain, ((0, 0), (1, 1)))
    for size in (1, 3, 7):
        batch = torch.randn(size, 4, dtype=torch.float64)
        model.zero_grad()
        expected = torch.autograd.grad(model(batch).square().sum(), list(model.parameters()))
        done = forwards(stages, (batch,))
        backwards(done, done[-1][1][0].square().sum())
        for mine, theirs in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(mine.grad, theirs, rtol=1e-12, atol=1e-14)
    with pytest.raises(InvalidInput, match="cut for an input of shape"):
        stages[0](torch.randn(3, 5, dtype=torch.float64))
    stages[0].eval()
    with pytest.raises(InvalidInput, match="cut as it trains"):
        stages[0](batch)


def test_a_buffer_that_is_handed_to_a_block_belongs_to_that_block() -> None:
    class Handing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Bilinear(4, 4, 4), nn.Bilinear(4, 4, 2)])
            self.weights = nn.Parameter(torch.ones(4))
            self.register_buffer("fixed", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            x = self.layers[0](x, self.fixed.expand_as(x))
            return self.layers[1](x, self.weights.expand_as(x))

    model = Handing()
    doubled(model)
    task = vectors(model, model.layers)
    chain = chain_of(task)
    compose(chain, task)
    assert "weights" in chain.blocks[0].parameters  # the glue between belongs to the one before

    class Direct(Handing):
        def forward(self, x: Tensor) -> Tensor:
            x = self.layers[0](x, x)
            return torch.stack([self.layers[1](each, self.weights) for each in (x[0], x[1])])

    model = Direct()
    doubled(model)
    task = vectors(model, model.layers)
    chain = chain_of(task)
    compose(chain, task)
    assert [block.name for block in chain.blocks] == ["layers.0", "layers.1", "layers.1 (call 2)"]
    assert chain.tied["weights"] == (1, 2)


def test_a_part_that_depends_on_values_stays_whole() -> None:
    chain = chain_of(vectors(doubled(Inside())))
    assert [block.name for block in chain.blocks] == ["before", "whole", "after"]


@pytest.mark.parametrize("kind", [Values, Items])
def test_a_forward_that_depends_on_values_is_refused_with_its_line(
    kind: type[nn.Module], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        chain_of(vectors(doubled(kind())))
    assert "test_cut_tracing.py, line" in refused.value.message
    assert kind.__name__ in refused.value.message
    assert "in between: `" in refused.value.message
    assert "values of a tensor" in refused.value.message
    assert "task.blocks" in refused.value.hint
    assert capfd.readouterr() == ("", ""), "torch prints no graph beside it"


def test_what_runs_without_gradients_is_refused_rather_than_given_some() -> None:
    with pytest.raises(InvalidInput, match="under no_grad or autocast"):
        chain_of(vectors(doubled(Unseen())))


def test_with_blocks_the_line_that_stands_in_the_way_is_named() -> None:
    model = Values()
    doubled(model)
    with pytest.raises(InvalidInput, match="line .* in between: `if x.sum"):
        chain_of(vectors(model, [model.first, model.last]))


def test_a_size_that_the_forward_asked_for_is_checked_ever_after() -> None:
    task = sentences(doubled(Language()))
    chain = chain_of(task)
    stage = chain.stage(0, len(chain) - 1)
    stage(torch.zeros(1, 16, dtype=torch.long))
    with pytest.raises(InvalidInput, match="cut for a condition"):
        stage(torch.zeros(1, 17, dtype=torch.long))


def test_an_argument_that_changes_from_batch_to_batch_is_refused() -> None:
    chain = chain_of(sentences(doubled(Language())))
    words = torch.zeros(1, 4, dtype=torch.long)
    assert chain.enter(words, 0.5) == (words,)
    with pytest.raises(InvalidInput, match="cut for an argument 0.5"):
        chain.enter(words, 0.7)
    with pytest.raises(InvalidInput, match="other arguments"):
        chain.enter(words)


def test_dicts_go_in_and_come_out() -> None:
    model = doubled(Answers())
    task = vectors(model)

    def loss(given: nn.Module, batch: Any) -> tuple[Tensor, int]:
        found = given({"x": batch[0]}, double=True)
        return (found["y"] - batch[1]).square().sum() + found["hidden"].sum(), 6

    task.loss = loss
    chain = chain_of(task)
    batch = task.data.batch(task.data.at(0)).content
    args, kwargs = inputs_of(task, batch)
    done = forwards(stages_of(chain, ((0, 0), (1, 1))), chain.enter(*args, **kwargs))
    found = chain.result(done[-1][1])
    assert list(found) == ["y", "hidden", "none"] and found["none"] is None
    assert torch.equal(loss_given(task, batch, found)[0], task.loss_of(batch)[0])


def test_a_model_traced_in_evaluation_is_cut_as_it_trains_and_left_as_it_was() -> None:
    model = Language(dropout=0.5)
    doubled(model).eval()
    before = dict(vars(model))
    chain = chain_of(sentences(model))
    assert not model.training and vars(model).keys() == before.keys()
    assert not chain.stage(0, 1).training
    chain.stage(0, 1).train()
    assert model.layers[0].training


class Waiting(Simple):
    """Lets another thread work in the middle of its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.here, self.done = threading.Event(), threading.Event()

    def between(self, x: Tensor) -> Tensor:
        self.here.set()
        assert self.done.wait(60)
        return x


def test_members_that_are_threads_compute_while_others_trace() -> None:
    """torch.fx changes nn.Module itself meanwhile: others must not notice."""
    model = Waiting()
    task = vectors(doubled(model))
    found: list[Any] = []

    def compute() -> None:
        assert model.here.wait(60)
        found.append(model.first(torch.ones(2, 4, dtype=torch.float64)))
        found.append(torch.arange(3))
        model.done.set()

    usual = torch.arange
    thread = threading.Thread(target=compute)
    thread.start()
    chain = chain_of(task)
    thread.join(60)
    assert [type(each) for each in found] == [Tensor, Tensor]
    compose(chain, task)
    assert torch.arange is usual


def test_threads_trace_one_after_another() -> None:
    errors: list[Exception] = []
    task = vectors(doubled(Simple()))

    def cut() -> None:
        try:
            for _ in range(5):
                compose(chain_of(task), task)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=cut) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors


def test_hooks_on_the_model_itself_and_a_compiled_model_are_refused() -> None:
    model = doubled(Simple())
    hook = model.register_forward_hook(lambda *_: None)
    with pytest.raises(InvalidInput, match="forward hooks"):
        chain_of(vectors(model))
    hook.remove()
    with pytest.raises(InvalidInput, match="it is compiled"):
        chain_of(vectors(torch.compile(model, backend="eager")))


def test_a_forward_that_was_set_on_the_object_is_the_one_that_is_cut() -> None:
    model = doubled(Simple())
    usual = model.forward
    model.forward = lambda x: usual(x) * 3
    task = vectors(model)
    compose(chain_of(task), task)


def test_cutting_throws_no_dice() -> None:
    task = vectors(doubled(Lengths()))
    usual = task.loss

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, float]:
        return usual(model, (batch[0] + torch.rand(1), batch[1]))

    task.loss = loss
    before = torch.get_rng_state()
    chain_of(task)
    assert torch.equal(before, torch.get_rng_state())


def test_blocks_that_are_not_the_model_s_are_refused() -> None:
    model = Simple()
    doubled(model)
    with pytest.raises(InvalidInput, match="number 1 .* is not inside the model"):
        chain_of(vectors(model, [model.first, nn.Linear(2, 2)]))
    with pytest.raises(InvalidInput, match="at least one"):
        chain_of(vectors(model, []))
    nested = Inside()
    doubled(nested)
    with pytest.raises(InvalidInput, match=r"'whole.first' is inside 'whole'"):
        chain_of(vectors(nested, [nested.whole, nested.whole.first]))


def test_a_block_that_is_never_called_is_named() -> None:
    model = Simple()
    model.idle = nn.Linear(1, 1)
    doubled(model)
    with pytest.raises(InvalidInput, match="'idle' is not called"):
        chain_of(vectors(model, [model.first, model.idle]))


def test_a_loss_that_reads_the_model_or_calls_it_twice_is_refused() -> None:
    task = vectors(doubled(Simple()))
    batch = task.data.batch(task.data.at(0)).content
    task.loss = lambda model, batch: (model(batch[0]).sum() + model(batch[0]).sum(), 1)
    with pytest.raises(InvalidInput, match="found 2 calls"):
        loss_given(task, batch, torch.ones(1))
    task.loss = lambda model, batch: (model(batch[0]).sum() + model.first.weight.sum(), 1)
    with pytest.raises(InvalidInput, match=r"reads model\.first"):
        loss_given(task, batch, torch.ones(1))
    task.loss = lambda model, batch: (sum(each.sum() for each in model.parameters()), 1)
    with pytest.raises(InvalidInput, match=r"reads model\.parameters"):
        inputs_of(task, batch)
    task.loss = lambda model, batch: (torch.ones(1), 1)
    with pytest.raises(InvalidInput, match="does not call the model"):
        inputs_of(task, batch)


@pytest.mark.parametrize("kind", [Simple, nn.Sequential])
def test_stages_work_in_what_the_loss_s_autocast_says(kind: type[nn.Module]) -> None:
    model = kind(nn.Linear(4, 6), nn.Linear(6, 2)) if kind is nn.Sequential else kind()
    task = vectors(doubled(model).float())

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        with torch.autocast("cpu", torch.bfloat16):
            found = model(batch[0].float())
        assert found.dtype == torch.bfloat16
        return found.square().sum(), 1

    task.loss = loss
    chain = chain_of(task)
    batch = task.data.batch(task.data.at(0)).content
    args, kwargs = inputs_of(task, batch)
    for run in (None, recomputed):
        model.zero_grad()
        expected, _ = task.loss_of(batch)
        expected.backward()
        gradients = [each.grad for each in model.parameters()]
        model.zero_grad()
        done = forwards(stages_of(chain, ((0, 0), (1, 1))), chain.enter(*args, **kwargs), run)
        assert done[0][1][0].dtype == torch.bfloat16
        total, _ = loss_given(task, batch, chain.result(done[-1][1]))
        assert torch.equal(total, expected)
        backwards(done, total)
        assert all(map(torch.equal, (each.grad for each in model.parameters()), gradients))


def test_a_class_of_outputs_that_torch_knows_comes_out_as_one() -> None:
    class Output(dict[str, Any]):
        @property
        def y(self) -> Any:
            return self["y"]

    pytree.register_pytree_node(
        Output,
        lambda found: (list(found.values()), list(found)),
        lambda values, names: Output(zip(names, values, strict=True)),
        serialized_type_name="an output of a test",
    )

    class Net(Simple):
        def forward(self, x: Any) -> Any:
            return Output(y=super().forward(x), extra=None)

    task = vectors(doubled(Net()))
    chain = chain_of(task)
    batch = torch.randn(3, 4, dtype=torch.float64)
    found = chain.result(forwards(stages_of(chain, ((0, 0), (1, 1))), (batch,))[-1][1])
    assert isinstance(found, Output) and torch.equal(found.y, task.model(batch).y)


@pytest.mark.parametrize(
    "values",
    [
        [1, None, "word", 2.5, True],
        [(1, [2, {"a": 3}]), None],
        [()],
        [torch.float64, slice(1, None, 2), [[]]],
        [{1: (None,)}],
    ],
)
def test_what_is_packed_comes_out_as_it_was(values: list[Any]) -> None:
    packed = pack(values)
    assert all(each is None or isinstance(each, int | float | str) for each in packed)
    assert unpack(packed) == values


def test_a_size_travels_as_a_tuple_and_a_device_becomes_the_other_s() -> None:
    packed = pack([torch.Size([2, 3]), torch.device("cpu")])
    assert unpack(packed, torch.device("meta")) == [(2, 3), torch.device("meta")]


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(InvalidInput, match="between block 1 and block 2: a set"):
        pack([{1}], "between block 1 and block 2")
    assert pack([{1}], local=True) == ({1},)
