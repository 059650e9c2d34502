"""Growth of `make test` is noticed when it is added, by what its files took when measured.

`make durations` writes `durations.json` anew; `python tools/suite.py --keep test tests/FILE` only
the line of one file.
"""

from __future__ import annotations

import json
from pathlib import Path

from suites import PLACES

HERE = Path(__file__).parent
BUDGET_S = 2300
"""Of tests, one after the other. Three lanes on two cores get through 2.85 s of them in a second
(measured): 13 and a half minutes, and half a minute to install. 8 minutes and one for each of
parts 4 to 9."""
UNKNOWN_S = 10.0
"""What a file is taken for that nobody has measured."""


def measured() -> dict[str, float]:
    found: dict[str, float] = json.loads((HERE / "durations.json").read_text())["test"]
    return found


def unmeasured() -> set[str]:
    elsewhere = [HERE / place for places in PLACES.values() for place in places]
    return {
        str(path.relative_to(HERE.parent))
        for path in HERE.rglob("test_*.py")
        if not any(path.is_relative_to(place) for place in elsewhere)
    } - measured().keys()


def test_the_suite_is_within_its_budget() -> None:
    slowest = sorted(measured().items(), key=lambda each: -each[1])[:10]
    unknown = sorted(unmeasured())
    assert sum(measured().values()) + UNKNOWN_S * len(unknown) <= BUDGET_S, (slowest, unknown)


def test_what_was_measured_is_still_there() -> None:
    gone = [file for file in measured() if not (HERE.parent / file).exists()]
    assert not gone, "make durations"
