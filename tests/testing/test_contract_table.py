"""No engine is let off a test of the contract unseen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.engines import registry
from windlass.testing.contract_table import TESTS, Table

ENGINES = Path(__file__).parents[1] / "engines"


def told(engine: str, test: str, outcome: str) -> Any:
    return SimpleNamespace(
        nodeid=f"tests/engines/{engine}/test_x.py::TestX::{test}[asyncio]", when="call",
        passed=outcome == "passed", skipped=outcome == "skipped",
        longrepr=("file", 1, "Skipped: no such thing here"),
    )  # fmt: skip


def test_an_engine_that_is_let_off_one_fails_the_run() -> None:
    first, *others = sorted(TESTS)
    table = Table()
    for test in (first, *others):
        table.pytest_runtest_logreport(told("local", test, "passed"))
    for test in others:
        table.pytest_runtest_logreport(told("ray", test, "passed"))
    assert table.wrong() == []
    table.pytest_runtest_logreport(told("ray", first, "skipped"))
    [sentence] = table.wrong()
    assert "ray" in sentence and first in sentence and "no such thing here" in sentence
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    table.pytest_sessionfinish(session)
    assert session.exitstatus == pytest.ExitCode.TESTS_FAILED


def test_an_engine_that_cannot_be_here_is_told_and_fails_nothing() -> None:
    table = Table()
    for test in TESTS:
        table.pytest_runtest_logreport(told("slurm", test, "skipped"))
    assert table.wrong() == [] and table.engines["slurm"].reason


@pytest.mark.parametrize("engine", sorted(registry.BUILT_IN))
def test_every_engine_takes_the_whole_contract(engine: str) -> None:
    texts = [path.read_text() for path in (ENGINES / engine).glob("test_*_contract.py")]
    assert any("(EngineContract)" in text for text in texts)
    assert not any(f"def {test}" in text for text in texts for test in TESTS)
