"""Models to cut, in double precision, and a pipeline in one thread to run their stages with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from windlass.train.cut import Chain, Stage
from windlass.train.data import Data
from windlass.train.task import Task, sum_loss

Run = Callable[..., tuple[Any, ...]]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Of torch's own: these tensors are small, and the cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Layer(nn.Module):
    """Attention-like: it takes a mask, and decides by the values of a tensor, which only a block
    that stays whole may do."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if x.sum() > 1e9:
            return x
        scores = x @ x.transpose(-1, -2)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        mixed = self.mix(scores.softmax(-1) @ x)
        return self.norm(x + self.dropout(mixed))


class Language(nn.Module):
    """Embedding, positions, a causal mask, blocks, a head that is the embedding again."""

    def __init__(self, dropout: float = 0.0, tied: bool = True, layers: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.randn(16, 8))
        self.layers = nn.ModuleList(Layer(8, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.words.weight
        self.register_buffer("later", torch.ones(16, 16).triu(1).bool(), persistent=False)

    def forward(self, words: Tensor, scale: float = 1.0, extra: Tensor | None = None) -> Tensor:
        _, length = words.shape
        assert length <= 16, "too long"
        x = self.words(words) * scale + self.places[torch.arange(length, device=words.device)]
        if extra is not None:
            x = x + extra
        mask = self.later[:length, :length]
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)])
        self.middle = nn.Linear(4, 4)
        self.up = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 2)])

    def forward(self, x: Tensor) -> Tensor:
        batch = x.size(0)
        skips = []
        for layer in self.down:
            x = torch.tanh(layer(x))
            skips.append(x)
        x = self.middle(x)
        for layer in self.up:
            x = layer(torch.cat([x, skips.pop()], 1))
        return x.reshape(batch, 2)


class Writing(nn.Module):
    """Writes over its input, in a way that only running it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return x * self.scale


class Pair(nn.Module):
    """Hands on a tuple with a number and None in it."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x, count, nothing = x if isinstance(x, tuple) else (x, 0, None)
        assert nothing is None
        return self.mix(x) + count, count + 1, None


class First(nn.Module):
    def forward(self, x: tuple[Tensor, int, None]) -> Tensor:
        return x[0][:, :2] * x[1]


def doubled(model: nn.Module, seed: int = 3) -> nn.Module:
    dice = torch.Generator().manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=dice, dtype=torch.float64) * 0.3)
    return model


def vectors(model: nn.Module, blocks: Sequence[nn.Module] | None = None) -> Task:
    dice = torch.Generator().manual_seed(1)
    inputs = torch.randn(12, 4, generator=dice, dtype=torch.float64)
    targets = torch.randn(12, 2, generator=dice, dtype=torch.float64)
    loss = sum_loss(functional.mse_loss, reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return Task(model, loss, optimizer, Data((inputs, targets), 6, shuffle=False), blocks=blocks)


def sentences(model: nn.Module, blocks: Sequence[nn.Module] | None = None) -> Task:
    words = torch.randint(0, 11, (12, 5), generator=torch.Generator().manual_seed(1))

    def loss(given: nn.Module, batch: Any) -> tuple[Tensor, int]:
        (content,) = batch
        found = given(content, 0.5)
        flat = found[:, :-1].flatten(0, 1)
        aims = content[:, 1:].flatten()
        return functional.cross_entropy(flat, aims, reduction="sum"), aims.numel()

    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return Task(model, loss, optimizer, Data((words,), 6, shuffle=False), blocks=blocks)


def cuts(blocks: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every way to cut that many blocks into stages."""
    for number in range(blocks):
        for inner in itertools.combinations(range(1, blocks), number):
            at = [0, *inner, blocks]
            yield tuple((at[n], at[n + 1] - 1) for n in range(len(at) - 1))


def stages_of(chain: Chain, cut: Sequence[tuple[int, int]]) -> list[Stage]:
    return [chain.stage(first, last) for first, last in cut]


def forwards(
    stages: Sequence[Stage], values: tuple[Any, ...], run: Run | None = None
) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """(inputs, outputs) of each stage; between two of them the graph is broken, as by a wire."""
    done = []
    for stage in stages:
        taken = tuple(_received(each, stage.is_first) for each in values)
        values = run(stage, *taken) if run else stage(*taken)
        done.append((taken, values))
    return done


def backwards(done: Sequence[tuple[tuple[Any, ...], tuple[Any, ...]]], total: Tensor) -> None:
    """The last stage from the loss, then each from what the one behind it found."""
    total.backward()
    for (_, outputs), (received, _) in zip(reversed(done[:-1]), reversed(done[1:]), strict=True):
        pairs = [
            (mine, theirs.grad)
            for mine, theirs in zip(outputs, received, strict=True)
            if isinstance(mine, Tensor) and mine.requires_grad and theirs.grad is not None
        ]
        torch.autograd.backward([mine for mine, _ in pairs], [grad for _, grad in pairs])


def _received(value: Any, is_first: bool) -> Any:
    if not isinstance(value, Tensor):
        return value
    wants = not is_first and value.requires_grad
    return value.detach().clone().requires_grad_(wants)
