"""The timeline: order within an instant, and arrivals from the sorted list."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from scripted import job

from windlass.scheduler.simulate.loop import FINISH, NODE, SUBMIT, TIMER, Timeline


def test_what_happens_at_one_instant_comes_in_order_of_kind_and_then_as_put() -> None:
    timeline = Timeline([job("a", 5, 1), job("b", 5, 1), job("c", 6, 1)])
    for rank, word in ((TIMER, "t"), (SUBMIT, "s"), (NODE, "n"), (FINISH, "f1"), (FINISH, "f2")):
        timeline.put(5, rank, word, None)
    timeline.put(7, FINISH, "later", None)
    assert timeline.next_ms() == 5
    before, arrivals, after = timeline.take(5)
    assert [due.what for due in before] == ["f1", "f2", "n"]
    assert list(arrivals) == [0, 1]
    assert [due.what for due in after] == ["s", "t"]
    assert timeline.next_ms() == 6
    assert not timeline.arrivals_over
    _, arrivals, _ = timeline.take(6)
    assert list(arrivals) == [2] and timeline.arrivals_over
    assert timeline.next_ms() == 7
    timeline.take(7)
    assert timeline.next_ms() is None
