"""1.6: codecs alone: pure, exact in bytes, and nothing is lost with feedback."""

from __future__ import annotations

import pytest
import torch

from windlass.core.errors import InvalidInput
from windlass.train.policies.codec import Codec, Feedback, columns_of, from_bytes, to_bytes
from windlass.train.policies.compression import BF16, FP16, OneBit, PowerSGD, TopK
from windlass.train.policies.onebit import pack, pack_anywhere, unpack, unpack_anywhere
from windlass.train.policies.topk import largest, ratio_at
from windlass.train.runners.collective import AllReduce
from windlass.train.testing.tasks import regression


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=dice, dtype=torch.float64)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 64, 65])
def test_bits_are_packed_alike_by_numpy_and_by_torch(length: int) -> None:
    flags = numbers(3, length) > 0
    assert torch.equal(pack(flags), pack_anywhere(flags))
    assert torch.equal(unpack(pack(flags), length), flags)
    assert torch.equal(unpack_anywhere(pack(flags), length), flags)


@pytest.mark.parametrize("shape", [(5, 9), (3, 2, 4), (17,), (1, 1)])
def test_one_bit_takes_an_eighth_of_a_byte_for_each_number_and_8_bytes_for_each_column(
    shape: tuple[int, ...],
) -> None:
    matrix = columns_of(numbers(*shape))
    columns, length = matrix.shape
    codec = OneBit().codec()
    data = to_bytes(codec.encode(matrix))
    assert data.numel() == columns * (-(-length // 8) + 8)
    back = codec.decode(from_bytes(codec, data, columns, length), matrix)
    assert torch.equal(back, codec.decode(codec.encode(matrix), matrix))


def test_the_two_levels_of_a_column_are_the_means_of_its_sides_and_a_side_may_be_empty() -> None:
    matrix = torch.tensor([[0.25, -0.5, 0.75, 1.0, -1.5], [1.0, 2.0, 3.0, 4.0, 5.0]]).double()
    codec = OneBit().codec()
    near = codec.decode(codec.encode(matrix), matrix)
    assert near[0].tolist() == pytest.approx([2 / 3, -1.0, 2 / 3, 2 / 3, -1.0])
    assert near[1].tolist() == [3.0] * 5
    by_mean = OneBit(threshold="mean").codec()
    assert by_mean.decode(by_mean.encode(matrix), matrix)[1].tolist() == [2.0, 2.0, 2.0, 4.5, 4.5]


@pytest.mark.parametrize(
    "codec", [OneBit().codec(), TopK(ratio=0.1).codec(), FP16().codec(), BF16().codec()]
)
def test_what_was_sent_and_the_residual_are_all_that_was_given(codec: Codec) -> None:
    feedback = Feedback(codec)
    given, sent = torch.zeros(6, 11).double(), torch.zeros(6, 11).double()
    for step in range(30):
        gradient = numbers(6, 11, seed=step)
        given += gradient
        sent += codec.decode(feedback.encode(gradient), gradient)
        feedback.commit()
    assert feedback.residual is not None
    assert float((sent + feedback.residual - given).abs().max()) < 1e-13
    feedback.encode(given)  # and was not sent: nothing is remembered
    again = Feedback(codec)
    again.load(feedback.state())
    for each, other in zip(feedback.encode(given), again.encode(given), strict=True):
        assert torch.equal(each, other)


@pytest.mark.parametrize("masking", [True, False])
def test_momentum_before_the_choice_is_that_of_deep_gradient_compression(masking: bool) -> None:
    """u ← m u + g; v ← v + u; the largest of v are sent, and there v and (masked) u begin anew."""
    codec = TopK(ratio=0.2).codec()
    feedback = Feedback(codec, momentum=0.9, masking=masking)
    u, v = torch.zeros(1, 20).double(), torch.zeros(1, 20).double()
    for step in range(12):
        gradient = numbers(1, 20, seed=step)
        u = 0.9 * u + gradient
        v = v + u
        places = v.abs().topk(4).indices[0]
        expected = torch.zeros(1, 20).double()
        expected[0, places] = v[0, places]
        sent = codec.decode(feedback.encode(gradient), gradient)
        feedback.commit()
        assert torch.equal(sent, expected)
        v[0, places] = 0.0
        if masking:
            u[0, places] = 0.0


def test_a_residual_that_would_not_be_finite_begins_again() -> None:
    feedback = Feedback(OneBit().codec())
    feedback.encode(numbers(2, 3))
    feedback.commit()
    feedback.encode(torch.full((2, 3), float("nan")).double())
    feedback.commit()
    assert feedback.resets == 1
    assert torch.equal(feedback.residual, torch.zeros(2, 3).double())  # type: ignore[arg-type]


def test_the_largest_are_found_with_ties_and_with_what_is_not_a_number() -> None:
    sizes = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0, 2.0]).double()
    assert largest(sizes, 3).tolist() == [1, 2, 3]
    assert largest(sizes, 6).tolist() == [0, 1, 2, 3, 4, 5]
    sizes[4] = float("nan")
    assert largest(sizes, 2).tolist() in ([1, 4], [3, 4])
    values = numbers(1000).abs()
    assert largest(values, 50).tolist() == sorted(torch.topk(values, 50).indices.tolist())


def test_the_warm_up_of_top_k_begins_at_a_quarter_and_falls_exponentially() -> None:
    ratios = [ratio_at(step, 4, 0.25 / 16) for step in range(6)]
    assert ratios == pytest.approx([1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 64])
    assert ratio_at(0, 4, 0.5) == 0.5


def test_options_that_cannot_work_are_refused() -> None:
    task = regression(optimizer=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))
    with pytest.raises(InvalidInput, match="momentum twice"):
        TopK(momentum=0.9).check(task, 2)
    assert "TopK delays" in TopK().check(task, 2)[0]
    with pytest.raises(InvalidInput, match="PowerSGD is between workers only: its factors add up"):
        PowerSGD().codec()


def test_a_compressor_is_told_by_the_words_that_made_it() -> None:
    assert OneBit().words() == "OneBit()"
    assert OneBit(warmup=100).words() == "OneBit(warmup=100)"
    assert TopK(ratio=0.05, clip=1.0).words() == "TopK(ratio=0.05, clip=1.0)"
    assert AllReduce(compress=OneBit(warmup=7)).model_dump(mode="json")["compress"] == (
        "OneBit(warmup=7)"
    )
