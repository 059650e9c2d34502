"""Times as the API shows them."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from windlass.server.clock import iso, stamp


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_763_233_445_006, "2025-11-15T19:04:05.006Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_is_shown_to_the_millisecond(ms, shown):
    assert stamp(ms) == iso(ms) == shown
    assert iso(None) is None


def test_every_time_is_read_back_as_it_was() -> None:
    dice = random.Random(7)
    for _ in range(1000):
        ms = dice.randrange(4_000_000_000_000)
        read = datetime.fromisoformat(stamp(ms))
        assert round(read.timestamp() * 1000) == ms and read.tzinfo == UTC
