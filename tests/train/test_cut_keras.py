"""Keras 3 models on the torch backend. Where Keras is not installed, all but one are skipped."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from cutting import backwards, cuts, forwards, one_thread, stages_of
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.cut import Chain, chain_of, release
from windlass.train.cut.probe import inputs_of, loss_given
from windlass.train.cut.recompute import recomputed
from windlass.train.data import Data
from windlass.train.task import Task

__all__ = ["one_thread"]


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    found = pytest.importorskip("keras")
    if found.backend.backend() != "torch":
        pytest.skip("keras runs on another backend here")
    return found


def task_of(model: Any) -> Task:
    dice = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(12, 4, generator=dice), torch.randn(12, 2, generator=dice)

    def loss(given: nn.Module, batch: Any) -> tuple[Tensor, int]:
        return (given(batch[0], training=True) - batch[1]).square().sum(), len(batch[0])

    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1, momentum=0.9)
    return Task(model, loss, optimizer, Data((inputs, targets), 6, shuffle=False))


def sequential(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(6), layers.Dense(2)]
    )


def functional(keras: Any) -> Any:
    layers = keras.layers
    start = keras.Input((4,))
    first = layers.Dense(6)(start)
    second = layers.Dense(6, activation="tanh")(first)
    both = layers.Add()([first, second]) * 2.0
    return keras.Model(start, layers.Dense(2)(both))


@pytest.mark.parametrize("make", [sequential, functional])
def test_a_model_with_a_graph_of_layers_is_cut_at_every_layer(keras: Any, make: Any) -> None:
    task = task_of(make(keras))
    chain = chain_of(task)
    assert len(chain) == 3
    batch = task.data.batch(task.data.at(0)).content
    args, kwargs = inputs_of(task, batch)
    expected, _ = task.loss_of(batch)
    expected.backward()
    gradients = [each.grad.clone() for each in task.model.parameters()]
    for cut in cuts(len(chain)):
        task.model.zero_grad()
        stages = stages_of(chain, cut)
        done = forwards(stages, chain.enter(*args, **kwargs))
        total, _ = loss_given(task, batch, chain.result(done[-1][1]))
        assert torch.equal(total, expected)
        backwards(done, total)
        for mine, theirs in zip(task.model.parameters(), gradients, strict=True):
            torch.testing.assert_close(mine.grad, theirs)
        found = {name for stage in stages for name in stage.state()}
        assert found == task.model.state_dict().keys()


def test_what_is_not_one_s_own_is_let_go(keras: Any) -> None:
    task = task_of(sequential(keras))
    chain: Chain = chain_of(task)
    stage = chain.stage(1, 2)
    watched = weakref.ref(task.model.layers[0].kernel.value)
    release(task.model, [stage], task.optimizer)
    gc.collect()
    assert watched() is None
    assert stage(torch.randn(3, 8))[0].shape == (3, 2)


def test_dropout_with_keras_s_own_dice_is_not_computed_again(keras: Any) -> None:
    layers = keras.layers
    parts = [layers.Input((4,)), layers.Dense(4), layers.Dropout(0.5), layers.Dense(2)]
    task = task_of(keras.Sequential(parts))
    stage = chain_of(task).stage(0, 1)
    found = recomputed(stage, torch.randn(3, 4))[0].sum()
    with pytest.raises(InvalidInput, match="dice of its own"):
        found.backward()


def test_a_class_of_its_own_is_refused_in_words(keras: Any) -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.dense(x)

    model = Own()
    model(torch.randn(2, 4))
    with pytest.raises(InvalidInput, match="Keras model of its own class") as refused:
        chain_of(task_of(model))
    assert "functional model" in refused.value.hint


def test_a_layer_that_hands_on_a_mask_is_refused(keras: Any) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((4,)), layers.Embedding(9, 3, mask_zero=True), layers.LSTM(4)]
    )
    with pytest.raises(InvalidInput, match="hands on a mask"):
        chain_of(task_of(model))


def test_a_model_that_only_looks_like_one_of_keras_is_refused_in_words() -> None:
    kind = type("Net", (nn.Linear,), {"__module__": "keras.src.models"})
    with pytest.raises(InvalidInput, match="Keras model of its own class"):
        chain_of(task_of(_trains(kind(4, 2))))


def _trains(model: nn.Module) -> nn.Module:
    return model
