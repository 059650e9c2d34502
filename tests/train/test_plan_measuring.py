"""A profile of a task's blocks: bytes are exact, times are of the block that takes them."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from cutting import Language, UNet, doubled, one_thread, sentences, vectors
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.data import Data
from windlass.train.planning.measuring import measure, optimiser_factor

__all__ = ["one_thread"]


class _Slow(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, seconds: float) -> Tensor:
        context.seconds = seconds
        time.sleep(seconds * x.shape[0])
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(2 * context.seconds * gradients[0].shape[0])
        return gradients[0], None


class Sleeping(nn.Module):
    """A simulated device: so long for each sample, twice that in backward."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = _Slow.apply(x, self.seconds)
        return found


def test_times_are_of_the_blocks_that_take_them_at_both_batches() -> None:
    model = doubled(nn.Sequential(nn.Linear(4, 4), Sleeping(0.002), nn.Linear(4, 2)))
    found = measure(vectors(model), batches=(6, 3))
    assert found.batch == 6 and [each.batch for each in found.others] == [3]
    slow = found.blocks[1]
    assert 12 <= slow.forward_ms < 1200 and 24 <= slow.backward_ms < 2400  # a loaded machine
    assert 6 <= found.others[0].forward_ms[1] < 600
    assert found.blocks[0].time_ms < slow.time_ms


def test_bytes_of_parameters_outputs_and_what_backward_needs_are_exact() -> None:
    model = doubled(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False)))
    found = measure(vectors(model), batches=(6,))
    assert [each.parameter_bytes for each in found.blocks] == [40 * 8, 0, 16 * 8]
    assert [each.activation_bytes for each in found.blocks] == [6 * 8 * 8, 6 * 8 * 8, 6 * 2 * 8]
    # Linear keeps its input, ReLU its output; the loss keeps outputs and targets.
    assert [each.saved_bytes for each in found.blocks] == [
        6 * 4 * 8, 6 * 8 * 8, 6 * 8 * 8 + 2 * 6 * 2 * 8,
    ]  # fmt: skip
    assert found.input_bytes == 6 * 4 * 8
    assert found.edges == ((0, 1), (1, 2))
    assert found.optimiser_factor == 1.0
    assert not found.others


def test_a_skip_is_counted_where_it_is_made() -> None:
    model = UNet()
    doubled(model)
    found = measure(vectors(model, [*model.down, model.middle, *model.up]), batches=(6,))
    tensor = 6 * 4 * 8
    # After the middle comes the concatenation, which belongs to the block before it.
    assert [each.activation_bytes for each in found.blocks[:4]] == [
        tensor, tensor, tensor, 2 * tensor,
    ]  # fmt: skip
    assert (0, 5) in found.edges


def test_measuring_changes_nothing() -> None:
    parts = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2)]
    model = doubled(nn.Sequential(*parts))
    task = vectors(model)
    state = {name: each.clone() for name, each in model.state_dict().items()}
    model.eval()
    dice = torch.get_rng_state()
    found = measure(task, batches=(6, 3))
    assert torch.equal(dice, torch.get_rng_state())
    assert all(torch.equal(each, state[name]) for name, each in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
    assert not model.training and not model[1].training
    assert found.batch == 6 and [each.batch for each in found.others] == [3]


def test_measuring_keeps_nothing() -> None:
    """Tanh saves its own output; kept as it is, that is a ring which nothing frees (3.6 GiB were
    left on a GPU)."""
    rows = 1 << 18
    model = doubled(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))
    task = vectors(model)
    task.data = Data((torch.zeros(rows, 4).double(), torch.zeros(rows, 2).double()), rows)

    def held() -> int:
        ctypes.CDLL(None).malloc_trim(0)  # what is free is not held
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(2):
        measure(task, batches=(rows,))
    before = held()
    for _ in range(8):
        measure(task, batches=(rows,))
    left = held() - before
    assert left < 4 * rows * 4 * 8, f"{left >> 20} MiB for outputs of {rows * 4 * 8 >> 20} MiB"


def test_a_model_with_blocks_is_measured_block_by_block_with_its_loss_in_the_last() -> None:
    model = Language(dropout=0.3)
    doubled(model)
    found = measure(sentences(model, model.layers))
    assert [each.name for each in found.blocks] == [f"layers.{n}" for n in range(4)]
    assert found.batch == 6 and [each.batch for each in found.others] == [1]
    assert found.blocks[3].activation_bytes == 6 * 5 * 11 * 8


@pytest.mark.parametrize(
    ("kind", "options", "factor"),
    [
        (torch.optim.SGD, {}, 0.0),
        (torch.optim.SGD, {"momentum": 0.9}, 1.0),
        (torch.optim.AdamW, {"weight_decay": 0.1}, 2.0),
        (torch.optim.Adam, {"amsgrad": True}, 3.0),
    ],
)
def test_what_an_optimiser_keeps_is_found_by_one_step_of_its_kind(
    kind: type[torch.optim.Optimizer], options: dict[str, Any], factor: float
) -> None:
    parameters = [nn.Parameter(torch.ones(3))]
    assert optimiser_factor(kind(parameters, lr=0.1, **options)) == factor


def test_a_batch_of_none_is_refused() -> None:
    model = doubled(nn.Sequential(nn.Linear(4, 2)))
    with pytest.raises(InvalidInput, match="batches: 1 or more"):
        measure(vectors(model), batches=(0,))
