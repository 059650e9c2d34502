"""The engine contract as a table, tests times engines, at the end of a run of pytest.

A plugin: `pytest_plugins = ["windlass.testing.contract_table"]`. An engine that did not pass as
many tests of the contract as the others, though all of its tests were asked for, fails the run;
one that cannot be here at all (all of its tests skipped) stands in the table with the reason.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from windlass.testing.engines import EngineContract

TESTS = frozenset(name for name in dir(EngineContract) if name.startswith("test_"))
_PLACE = re.compile(r"tests/engines/(?P<engine>\w+)/\w+\.py::\w+::(?P<test>\w+)")


@dataclass
class Told:
    passed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    reason: str = ""


class Table:
    def __init__(self) -> None:
        self.engines: dict[str, Told] = defaultdict(Told)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = _PLACE.match(report.nodeid)
        if found is None or found["test"] not in TESTS:
            return
        told = self.engines[found["engine"]]
        if report.when == "call" and report.passed:
            told.passed.add(found["test"])
        elif report.skipped:
            told.skipped.add(found["test"])
            where = report.longrepr
            told.reason = str(where[2] if isinstance(where, tuple) else where)

    def wrong(self) -> list[str]:
        """What differs between engines that were asked for the whole."""
        return [
            f"{name}: {len(told.skipped)} of {len(TESTS)} tests of the contract were skipped "
            f"({', '.join(sorted(told.skipped))}): {told.reason}"
            for name, told in sorted(self.engines.items())
            if told.skipped and told.passed
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.wrong() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.engines:
            return
        terminalreporter.section("engine contract: tests x engines")
        for name, told in sorted(self.engines.items()):
            line = f"{name:<12} {len(told.passed):>3} of {len(TESTS)} passed"
            terminalreporter.write_line(line + (f"  {told.reason}" if told.skipped else ""))
        for sentence in self.wrong():
            terminalreporter.write_line(sentence, red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a lane of several tells the one who prints
        config.pluginmanager.register(Table(), "engine contract")
