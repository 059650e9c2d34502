"""Growth of `make test` is noticed when it is added, by what its files took when measured.

`make durations` writes `durations.json` anew.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
BUDGET_S = 2300
"""Of tests, one after the other. Three lanes on two cores get through 2.85 s of them in a second
(measured): 13 and a half minutes, and half a minute to install. 8 minutes and one for each of
parts 4 to 9."""


def measured() -> dict[str, float]:
    found: dict[str, float] = json.loads((HERE / "durations.json").read_text())["test"]
    return found


def test_the_suite_is_within_its_budget() -> None:
    slowest = sorted(measured().items(), key=lambda each: -each[1])[:10]
    assert sum(measured().values()) <= BUDGET_S, slowest


def test_what_was_measured_is_still_there() -> None:
    gone = [file for file in measured() if not (HERE.parent / file).exists()]
    assert not gone, "make durations"
