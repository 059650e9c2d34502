"""Models with layers to cut, for the tests of data x pipeline x tensor."""

from __future__ import annotations

import torch
from pipelines import SGD, _of_words
from torch import Tensor, nn
from torch.nn import functional

from windlass.train.data import Data
from windlass.train.task import Task, sum_loss


def straight() -> nn.Module:
    """Two pairs that are cut, a layer and a norm that are not; eleven blocks."""
    return nn.Sequential(
        nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6), nn.LayerNorm(6), nn.Tanh(),
        nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 6, bias=False), nn.Tanh(),
        nn.Linear(6, 5), nn.Flatten(),
    )  # fmt: skip


class Words(nn.Module):
    """Words in, words out, through the same table, which is whole; what is between is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.layers = nn.ModuleList([_Block() for _ in range(3)])
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, words: Tensor) -> Tensor:
        value = self.table(words)
        for layer in self.layers:
            value = layer(value)
        return self.out(value)  # type: ignore[no-any-return]


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, value: Tensor) -> Tensor:
        return value + self.down(torch.tanh(self.up(self.norm(value))))  # type: ignore[no-any-return]


BY_NAME = {"*.up": "column", "*.down": "row"}


def mesh_task(kind: str, batch: int = 7) -> Task:
    """11 samples in uneven batches; of words some are not counted."""
    dice = torch.Generator().manual_seed(5)
    torch.manual_seed(3)
    if kind == "words":
        words = torch.randint(0, 11, (11, 3), generator=dice)
        said = torch.randint(0, 11, (11, 3), generator=dice)
        said[torch.rand(said.shape, generator=dice) < 0.3] = -100
        model: nn.Module = Words().double()
        loss = sum_loss(_of_words, count="targets", reduction="sum")
        optimizer = torch.optim.SGD(model.parameters(), **SGD)
        blocks = [model.table, *model.layers, model.out]
        return Task(model, loss, optimizer, Data((words, said), batch), blocks)
    x = torch.randn(11, 4, generator=dice, dtype=torch.float64)
    y = torch.randn(11, 5, generator=dice, dtype=torch.float64)
    model = straight().double()
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    loss = sum_loss(functional.mse_loss, reduction="sum")
    return Task(model, loss, optimizer, Data((x, y), batch))
