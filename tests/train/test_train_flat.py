"""Parameters as one vector: cut anywhere, gathered and scattered without a loss."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from windlass.train.state.flat import Layout, Staging


def mixed() -> tuple[list[Tensor], torch.optim.Optimizer]:
    """Two groups, two dtypes, one that is frozen, one of one element, one that is transposed."""
    dice = torch.Generator().manual_seed(1)
    shapes = [(3, 4), (5,), (1,), (2, 2, 2), (), (7, 1)]
    kinds = [torch.float32, torch.float64, torch.float32, torch.float64, torch.float32]
    found: list[Tensor] = [
        nn.Parameter(torch.randn(shape, generator=dice).to(kinds[n % len(kinds)]))
        for n, shape in enumerate(shapes)
    ]
    found[1].requires_grad_(False)
    groups = [{"params": found[:3]}, {"params": found[3:], "lr": 0.5}]
    return found, torch.optim.SGD(groups, lr=0.1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40))
def test_any_cut_covers_every_element_once(count: int) -> None:
    _, optimizer = mixed()
    layout = Layout(optimizer)
    seen = [torch.zeros(each.numel(), dtype=torch.int64) for each in layout.parameters]
    for each in layout.cut(count):
        for part in layout.parts(each):
            assert part.stop - part.start == sum(p.stop - p.start for p in part.pieces)
            for piece in part.pieces:
                seen[piece.parameter][piece.start : piece.stop] += 1
                assert layout.groups[piece.parameter] == part.group
                assert layout.parameters[piece.parameter].dtype == part.dtype
    assert all(bool((each == 1).all()) for each in seen)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40))
def test_what_is_gathered_and_scattered_is_what_was(count: int) -> None:
    _, optimizer = mixed()
    layout = Layout(optimizer)
    target = [torch.zeros_like(each) for each in layout.parameters]
    for each in layout.cut(count):
        staging = Staging(layout, each)
        for buffer, part in zip(staging.buffers, staging.gather(layout.parameters), strict=True):
            buffer.copy_(part)
        staging.scatter(target)
    for got, was in zip(target, layout.parameters, strict=True):
        assert torch.equal(got, was.detach())


def test_a_part_in_one_tensor_is_not_copied_and_a_missing_gradient_is_zeros() -> None:
    parameter = nn.Parameter(torch.rand(100))
    layout = Layout(torch.optim.SGD([parameter], lr=0.1))
    first, second = (Staging(layout, each) for each in layout.cut(2))
    (half,) = second.gather([parameter])
    assert half.data_ptr() == parameter[50:].data_ptr()
    (zeros,) = first.gather([None])
    assert torch.equal(zeros, torch.zeros(50))


def test_an_optimiser_that_looks_at_whole_parameters_gets_them_whole() -> None:
    class Normed(torch.optim.SGD):
        pass

    found, _ = mixed()
    layout = Layout(Normed([each for each in found if each.requires_grad], lr=0.1))
    shapes = [part.shape for each in layout.cut(3) for part in layout.parts(each)]
    assert sorted(shapes) == sorted(tuple(each.shape) for each in layout.parameters)


def test_the_same_network_has_the_same_digest_and_another_has_not() -> None:
    assert Layout(mixed()[1]).digest == Layout(mixed()[1]).digest
    other = Layout(torch.optim.SGD([nn.Parameter(torch.rand(3))], lr=0.1))
    assert other.digest != Layout(mixed()[1]).digest


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_is_reached_through_pinned_memory() -> None:
    parameter = nn.Parameter(torch.rand(1000, device="cuda"))
    layout = Layout(torch.optim.SGD([parameter], lr=0.1))
    (staging,) = (Staging(layout, each) for each in layout.cut(1))
    (buffer,) = staging.gather([parameter])
    assert buffer.is_pinned() and torch.equal(buffer, parameter.detach().cpu())
    (incoming,) = staging.buffers
    assert incoming.is_pinned() and incoming.data_ptr() != buffer.data_ptr()
    incoming.copy_(buffer).add_(1)
    staging.scatter([parameter])
    assert torch.equal(parameter.detach().cpu(), buffer + 1)
