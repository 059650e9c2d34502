"""A tick that has decided enough stops, and the next goes on: every invariant holds in between and
in the end, also where each tick is cut short after next to nothing."""

from __future__ import annotations

import pytest
from storm import PROFILES, run

from windlass.scheduler import waiting

STORMS = [
    (13, "models"),  # one left behind when another that starved got its quota kept
    (210, "storm"),  # nothing starts, and what is kept is planned anew in every tick
    (7, "plain"),
    (8, "steady"),
]


@pytest.mark.parametrize(("seed", "profile"), STORMS)
def test_the_rules_hold_when_every_tick_is_cut_short(
    seed: int, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_WORK", 2)
    tally = run(seed, 200, PROFILES[profile]).tally
    assert tally.violations == []
    assert tally.starts > 20
