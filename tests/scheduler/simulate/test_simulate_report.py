"""The report: one file, nothing fetched, well-formed, and safe with any name."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, cluster, job, scripted

from windlass.scheduler.simulate.report import duration, rows, write
from windlass.scheduler.simulate.run import Outcome

EMPTY = {"meta", "rect", "line"}


def outcome(tenant: str = "vision") -> Outcome:
    jobs = [job(f"j{at}", at * 1000, 5000, tenant=tenant) for at in range(20)]
    return scripted(cluster(jobs), Scripted()).run()


class Balanced(HTMLParser):
    """Fails on a tag that is closed before those inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag


@pytest.mark.parametrize("runs", [1, 3])
def test_the_page_is_well_formed_and_fetches_nothing(runs: int) -> None:
    outcomes = [outcome() for _ in range(runs)]
    names = [f"run {at}" for at in range(runs)]
    page = write("T", names, [o.result for o in outcomes], [o.curves for o in outcomes])
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"(?:https?:)?//|<script|<link|@import|url\(|src=", page)
    assert page.count("<polyline") == 3 * runs
    assert "prefers-color-scheme: dark" in page
    for head in ("Jobs that wait", "Utilisation", "Fragmentation", "Waits by tenant"):
        assert f"<h2>{head}</h2>" in page


def test_names_from_the_file_cannot_break_the_page() -> None:
    found = outcome("<b>&\"'")
    page = write("<T>", ["<i>"], [found.result], [found.curves])
    assert "<b>" not in page and "<i>" not in page and "<T>" not in page
    assert "&lt;b&gt;" in page


def test_a_run_without_samples_has_a_page_too() -> None:
    found = outcome()
    page = write("T", ["one"], [{**found.result, "by_tenant": {}}], [{}])
    assert page.count("nothing to draw") == 4


def test_figures_stand_side_by_side() -> None:
    found = outcome().result
    table = {row[0]: row[1:] for row in rows([found, found])}
    assert table["jobs"] == ["20", "20"]
    assert table["wait, mean"] == ["0 s", "0 s"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (1.234, "1.23 s"), (200, "3 m 20 s"), (7500, "2 h 5 m"), (356_400, "4 d 3 h")],
)
def test_durations_are_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words
