"""What a gang holds, on which line, at what cost: pure."""

from __future__ import annotations

import random

import pytest
from pydantic_core import PydanticCustomError

from windlass.core.usage import format_money, parse_money
from windlass.server.usage.metering import (
    HOUR_MS,
    Preempted,
    Price,
    Span,
    cost,
    parts,
    pieces,
    spans,
)
from windlass.server.usage.prices import Book

PLACES = {"a": ("local", "H200"), "b": ("local", "A100"), "c": ("cloud", "")}


def seat(role, index, node):
    return {"role": role, "index": index, "node": node, "gpu_ids": []}


def test_a_gang_is_counted_by_pool_and_gpu_model():
    roles = {
        "worker": {"gpus": 2, "gpu_share": 0.0, "cpus": 1.5, "memory": 2**30 + 1},
        "ps": {"gpus": 0, "gpu_share": 0.0, "cpus": 0.25, "memory": 2**20},
        "small": {"gpus": 0, "gpu_share": 0.25, "cpus": 0, "memory": 0},
    }
    seats = [
        seat("ps", 0, "a"), seat("worker", 0, "a"), seat("worker", 1, "b"), seat("small", 0, "b"),
        seat("ps", 1, "c"),
    ]  # fmt: skip
    found = {(part.pool, part.gpu_model): part for part in parts(roles, seats, PLACES)}
    assert set(found) == {("local", "H200"), ("local", "A100"), ("local", ""), ("cloud", "")}
    whole = found["local", "A100"]
    assert (whole.gpu_milli, whole.cpus_milli, whole.memory_mib) == (2250, 1500, 1025)
    assert found["local", "H200"].nodes == ("a",), "it has the GPUs: it is told what node a uses"
    assert (found["local", ""].nodes, found["local", ""].members) == ((), 1)
    assert found["cloud", ""].nodes == ("c",)


@pytest.mark.parametrize(
    ("preempted", "told"),
    [
        (None, [("run", 10, 100)]),
        (Preempted(40, 70), [("run", 10, 40), ("lost", 40, 70), ("grace", 70, 100)]),
        (Preempted(80, 70), [("run", 10, 70), ("grace", 70, 100)]),  # it saved in its grace
        (Preempted(5, 70), [("lost", 10, 70), ("grace", 70, 100)]),
        (Preempted(5, 200), [("lost", 10, 100)]),
        (Preempted(5, 7), [("grace", 10, 100)]),
    ],
)
def test_who_is_preempted_pays_neither_for_lost_work_nor_for_grace(preempted, told):
    assert [tuple(span) for span in spans(10, 100, preempted)] == told


def test_time_that_went_back_is_no_time():
    assert list(spans(100, 10)) == [] and list(spans(100, 10, Preempted(1, 2))) == []


def test_pieces_lie_in_one_hour_with_one_price_and_add_up():
    draw = random.Random(4)
    for _ in range(300):
        begin = draw.randrange(10 * HOUR_MS)
        span = Span("run", begin, begin + draw.randrange(1, 5 * HOUR_MS))
        bounds = sorted(draw.randrange(16 * HOUR_MS) for _ in range(draw.randrange(4)))
        found = list(pieces(span, bounds))
        assert [found[0].from_ms, found[-1].to_ms] == [span.from_ms, span.to_ms]
        assert all(a.to_ms == b.from_ms for a, b in zip(found, found[1:], strict=False))
        for piece in found:
            assert piece.from_ms // HOUR_MS == (piece.to_ms - 1) // HOUR_MS
            assert not any(piece.from_ms < bound < piece.to_ms for bound in bounds)


def test_cost_is_rounded_once_and_taken_back_exactly():
    price = Price(cpu=40_000, memory=5_000, gpu=2_500_000)
    hour = (4_000 * HOUR_MS, 8 * 1024 * HOUR_MS, 2_000 * HOUR_MS)
    assert cost(price, *hour) == 4 * 40_000 + 8 * 5_000 + 2 * 2_500_000
    odd = (1, 1, 777)
    assert cost(price, *odd) == -cost(price, *(-each for each in odd))
    assert cost(Price(cpu=1), 1000 * HOUR_MS // 2, 0, 0) == 1, "half a micro-unit rounds up"


def test_a_price_of_a_model_wins_until_it_is_taken_away():
    book = Book(
        [("gpu", 0, 100), ("gpu:H200", 50, 300), ("cpu", 60, 7), ("gpu", 70, 120),
         ("gpu:H200", 80, None)]
    )  # fmt: skip
    assert [book.at(ms, "H200").gpu for ms in (-1, 0, 49, 50, 79, 80)] == [
        0, 100, 100, 300, 300, 120,
    ]  # fmt: skip
    assert [book.at(75, "A100").gpu, book.at(75, "").cpu] == [120, 7]
    assert book.bounds == [0, 50, 60, 70, 80]


@pytest.mark.parametrize(
    ("given", "micro", "shown"),
    [("12", 12_000_000, "12.00"), (0.35, 350_000, "0.35"), ("0.000001", 1, "0.000001"),
     (7, 7_000_000, "7.00"), ("1000000000", 10**15, "1000000000.00"), (0.1, 100_000, "0.10")],
)  # fmt: skip
def test_money_is_whole_micro_units(given, micro, shown):
    assert (parse_money(given), format_money(micro)) == (micro, shown)


@pytest.mark.parametrize(
    "given", ["-1", "1e3", "", "1.0000001", "NaN", True, None, "1 000", float("inf"), "9" * 13,
              "1000000001", 1e300]
)  # fmt: skip
def test_what_is_no_money_is_refused(given):
    with pytest.raises(PydanticCustomError, match="amount of money"):
        parse_money(given)


def test_money_that_is_taken_back_has_its_sign():
    assert format_money(-1_500_000) == "-1.50"
