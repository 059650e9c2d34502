"""A pytest plugin for `suite.py`: starts the longest files first, so that no lane ends alone, and
writes what became of each test, a line of JSON a phase."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

DURATIONS = Path(__file__).resolve().parent.parent / "tests" / "durations.json"
"""By suite and file, the seconds they took when `suite.py --keep` last ran."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="write what became of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("record")
    # The lanes of xdist tell the one process that reads them; only that one writes.
    if path is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_Recorder(path))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known: dict[str, float] = {}
    for files in json.loads(DURATIONS.read_text()).values() if DURATIONS.exists() else ():
        known |= files
    # Stable: the tests of a file stay together and in order.
    items.sort(key=lambda item: -known.get(item.nodeid.partition("::")[0], 1.0))


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        words = {
            "test": report.nodeid,
            "when": report.when,
            "outcome": report.outcome,
            "seconds": round(report.duration, 3),
            "why": _why(report) if report.failed else "",
        }
        self._file.write(json.dumps(words) + "\n")

    def pytest_unconfigure(self) -> None:
        self._file.close()


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return " ".join(text.split())[:200]
