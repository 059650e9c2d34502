"""Which checkpoints may go: the rule alone, then over all small cases."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.jobs import KeepBest
from windlass.server.checkpoints.rules import PATIENCE_MS, Saved, Scores, best_of, superfluous

BEST = KeepBest(metric="acc", goal="max", n=2)
LATE = 10 * PATIENCE_MS


def saved(*steps: int, attempt: int = 1, **facts: bool) -> list[Saved]:
    return [Saved(f"{attempt}/{step}", attempt, step, 0, **facts) for step in steps]


def going(rows: list[Saved], **facts: object) -> list[str]:
    usual: dict[str, object] = {
        "keep": 2, "best": None, "scores": Scores({}), "fence": 1, "unfinished": True, "held": (),
        "now_ms": LATE,
    }  # fmt: skip
    return [each.path for each in superfluous(rows, **{**usual, **facts})]  # type: ignore[arg-type]


def test_the_newest_by_attempt_then_step_stay() -> None:
    assert going(saved(1, 2, 3, 4)) == ["1/1", "1/2"]
    rows = [*saved(7, 8, 9), *saved(1, 2, attempt=2)]
    assert going(rows, fence=3, unfinished=False) == ["1/7", "1/8", "1/9"]


def test_what_the_running_attempt_resumed_from_stays() -> None:
    rows = [*saved(7, 8), *saved(9, 10, 11, attempt=2)]
    assert going(rows, fence=2) == ["1/7", "2/9"]
    assert going(rows, fence=2, unfinished=False) == ["1/7", "1/8", "2/9"]


def test_a_bad_one_does_not_stand_for_a_good_one() -> None:
    rows = [*saved(1, 2), *saved(3, 4, bad=True)]
    assert going(rows, fence=1) == []
    assert going([*saved(1, 2, 3), *saved(0, bad=True)]) == ["1/0", "1/1"]


def test_what_others_start_from_and_a_scripts_own_files_stay() -> None:
    rows = saved(1, 2, 3, 4)
    assert going(rows, held=["1/1"]) == ["1/2"]
    assert going([*saved(1, own_files=True), *saved(2, 3, 4)]) == ["1/2"]


def test_the_best_stay_and_none_goes_before_its_metric_has_come() -> None:
    rows = saved(1, 2, 3, 4, 5, 6)
    scores = Scores({"1/1": 0.9, "1/2": 0.1, "1/3": 0.9, "1/4": 0.5}, (1, 4))
    assert going(rows, best=BEST, scores=scores) == ["1/2", "1/4"]
    assert going(rows, best=BEST, scores=Scores({"1/1": 0.9}, (1, 1)), now_ms=5) == []
    least = KeepBest(metric="loss", goal="min")
    assert going(rows, best=least, scores=scores) == ["1/1", "1/3", "1/4"]


def test_a_nan_is_never_the_best() -> None:
    rows = saved(1, 2, 3)
    scores = Scores({"1/1": math.nan, "1/2": 0.1}, (1, 3))
    assert [each.path for each in best_of(rows, BEST, scores)] == ["1/2"]


row = st.builds(
    Saved,
    path=st.uuids().map(str),
    attempt=st.integers(1, 3),
    step=st.integers(0, 20),
    registered_ms=st.just(0),
    bad=st.booleans(),
    own_files=st.booleans(),
)


@given(
    st.lists(row, max_size=12, unique_by=lambda each: (each.attempt, each.step)),
    st.integers(2, 4),
    st.integers(1, 4),
    st.booleans(),
    st.data(),
)
def test_whatever_there_is_the_needed_ones_stay(
    rows: list[Saved], keep: int, fence: int, unfinished: bool, data: st.DataObject
) -> None:
    held = data.draw(st.sets(st.sampled_from([each.path for each in rows]))) if rows else set()
    gone = set(going(rows, keep=keep, fence=fence, unfinished=unfinished, held=held))
    good = sorted((each for each in rows if not each.bad), key=lambda each: each.age)
    assert not gone & {each.path for each in good[-keep:]} and not gone & held
    earlier = [each for each in good if each.attempt < fence]
    if unfinished and earlier:
        assert earlier[-1].path not in gone
    if good:
        assert good[-1].path not in gone
    again = [each for each in rows if each.path not in gone]
    assert not going(again, keep=keep, fence=fence, unfinished=unfinished, held=held)
