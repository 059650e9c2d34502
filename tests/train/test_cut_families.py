"""Models of well-known libraries are cut as they come; skipped where one is not installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cutting import backwards, forwards, one_thread, stages_of
from torch import Tensor, nn
from torch.nn import functional

from windlass.train.cut import balance, chain_of
from windlass.train.cut.probe import inputs_of, loss_given
from windlass.train.data import Data
from windlass.train.task import Task

__all__ = ["one_thread"]

pytestmark = pytest.mark.filterwarnings("ignore")

LANGUAGE = {
    "GPT2": {"n_positions": 32, "n_embd": 16, "n_layer": 4, "n_head": 2},
    "Llama": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4,
              "num_attention_heads": 2, "max_position_embeddings": 32},
}  # fmt: skip


def words_of(model: Any, blocks: Any) -> Task:
    words = torch.randint(0, 50, (6, 12), generator=torch.Generator().manual_seed(1))

    def loss(given: nn.Module, batch: Any) -> tuple[Tensor, int]:
        found = given(input_ids=batch[0], use_cache=False).logits[:, :-1].flatten(0, 1)
        aims = batch[0][:, 1:].flatten()
        return functional.cross_entropy(found, aims, reduction="sum"), aims.numel()

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return Task(model, loss, optimizer, Data((words,), 6), blocks=blocks)


def images_of(model: nn.Module) -> Task:
    images = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(1)).double()

    def loss(given: nn.Module, batch: Any) -> tuple[Tensor, int]:
        return given(batch[0]).square().sum(), len(batch[0])

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return Task(model, loss, optimizer, Data((images,), 4))


def check(task: Task, blocks: int | None = None) -> None:
    """Three stages: the loss to the bit, gradients."""
    state = {name: each.clone() for name, each in task.model.state_dict().items()}
    batch = task.data.batch(task.data.at(0)).content
    torch.manual_seed(3)
    expected, _ = task.loss_of(batch)
    expected.backward()
    gradients = [each.grad.clone() for each in task.model.parameters()]
    task.model.zero_grad()
    task.model.load_state_dict(state)
    chain = chain_of(task)
    assert blocks is None or len(chain) == blocks
    args, kwargs = inputs_of(task, batch)
    torch.manual_seed(3)
    stages = stages_of(chain, balance([1.0] * len(chain), 3))
    done = forwards(stages, chain.enter(*args, **kwargs))
    total, _ = loss_given(task, batch, chain.result(done[-1][1]))
    assert torch.equal(total, expected)
    backwards(done, total)
    for mine, theirs in zip(task.model.parameters(), gradients, strict=True):
        torch.testing.assert_close(mine.grad, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.frameworks
@pytest.mark.parametrize("listed", [True, False], ids=["blocks", "traced"])
@pytest.mark.parametrize("kind", LANGUAGE)
def test_a_language_model_of_transformers_is_cut(kind: str, listed: bool) -> None:
    library = pytest.importorskip("transformers")
    config = getattr(library, f"{kind}Config")(vocab_size=50, **LANGUAGE[kind])
    last = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    model = getattr(library, f"{kind}{last}")(config).double()
    inner = model.transformer.h if kind == "GPT2" else model.model.layers
    check(words_of(model, inner if listed else None), 4 if listed else None)


@pytest.mark.frameworks
@pytest.mark.parametrize("kind", ["resnet18", "densenet121", "swin_t", "mobilenet_v3_small"])
def test_a_model_of_torchvision_is_cut(kind: str) -> None:
    library = pytest.importorskip("torchvision.models")
    check(images_of(getattr(library, kind)(num_classes=5).double()))
