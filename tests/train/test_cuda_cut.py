"""On a GPU: stages, dice of the device, what recomputation saves, times that were waited for."""

from __future__ import annotations

import pytest
import torch
from cutting import Language, backwards, doubled, forwards, sentences, stages_of
from torch import nn

from windlass.train.cut import chain_of, release
from windlass.train.cut.probe import inputs_of, loss_given
from windlass.train.cut.recompute import recomputed
from windlass.train.data import Data, to_device
from windlass.train.planning.measuring import measure
from windlass.train.task import Task, sum_loss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

GPU = torch.device("cuda")


@pytest.mark.parametrize("again", [False, True], ids=["", "recomputed"])
def test_stages_on_the_gpu_compose_to_the_model_with_dropout(again: bool) -> None:
    def make() -> Task:
        model = Language(dropout=0.4)
        doubled(model)
        return sentences(model, model.layers)

    expected, task = make(), make()
    expected.model.to(GPU)
    batch = to_device(task.data.batch(task.data.at(0)).content, GPU)
    torch.manual_seed(5)
    total, _ = expected.loss_of(batch)
    total.backward()
    chain = chain_of(task)
    stages = [stage.place(GPU) for stage in stages_of(chain, ((0, 1), (2, 3)))]
    args, kwargs = inputs_of(task, batch)
    torch.manual_seed(5)
    done = forwards(stages, chain.enter(*args, **kwargs), recomputed if again else None)
    found, _ = loss_given(task, batch, chain.result(done[-1][1]))
    torch.rand(7, device=GPU)
    backwards(done, found)
    torch.testing.assert_close(found, total)
    for mine, theirs in zip(task.model.parameters(), expected.model.parameters(), strict=True):
        assert mine.device.type == "cuda"
        torch.testing.assert_close(mine.grad, theirs.grad)


def deep(layers: int = 16, width: int = 1024, samples: int = 4096) -> Task:
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*parts)
    data = Data((torch.randn(samples, width), torch.randn(samples, width)), samples)
    loss = sum_loss(nn.functional.mse_loss, reduction="sum")
    return Task(model, loss, torch.optim.SGD(model.parameters(), 0.1), data)


def test_a_recomputed_forward_keeps_its_inputs_alone() -> None:
    task = deep()
    stage = chain_of(task).stage(0, 31).place(GPU)
    values = torch.randn(4096, 1024, device=GPU, requires_grad=True)
    stage(values)
    one = values.numel() * values.element_size()
    kept = []
    for run in (lambda: stage(values), lambda: recomputed(stage, values)):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        found = run()
        kept.append(torch.cuda.memory_allocated() - before)
        del found
    assert kept[0] > 30 * one
    assert kept[1] <= 1.5 * one  # the output


def test_what_is_let_go_and_placed_is_a_stage_s_share_of_the_memory() -> None:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    task = deep()
    stage = chain_of(task).stage(0, 7)
    release(task.model, [stage], task.optimizer)
    stage.place(GPU)
    size = sum(each.numel() * each.element_size() for each in stage.parameters())
    assert size <= torch.cuda.memory_allocated() - before <= 1.05 * size
    assert {id(one) for one in stage.parameters()} <= {
        id(one) for group in task.optimizer.param_groups for one in group["params"]
    }


def test_times_are_waited_for_and_the_model_is_home_again() -> None:
    task = deep(layers=4, width=4096, samples=8192)
    found = measure(task, GPU, batches=(8192, 1024))
    floating = 2 * 8192 * 4096 * 4096
    assert found.blocks[0].forward_ms > floating / 2e15 * 1000  # no faster than any GPU is
    assert found.blocks[0].time_ms > found.others[0].forward_ms[0] + found.others[0].backward_ms[0]
    assert all(each.device.type == "cpu" for each in task.model.parameters())
