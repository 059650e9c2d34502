"""The server killed at each point of a small story: it ends as it would have, or is told again.

A point before or after a commit or an effect is where what is durable and what is known differ.
Points at reads only shift times; they are for the long run.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from windlass.core.jobs import JobState
from windlass.testing.simulated.plans import SCENARIOS
from windlass.testing.simulation import simulate

ENDS = {
    "one_job": JobState.SUCCEEDED, "gang": JobState.SUCCEEDED, "retried": JobState.SUCCEEDED,
    "cancelled": JobState.CANCELLED, "worker_dies": JobState.SUCCEEDED,
    "restarted": JobState.SUCCEEDED, "deaf": JobState.CANCELLED,
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_calm_run_ends_as_its_story_says(name: str) -> None:
    result = simulate(SCENARIOS[name]())
    assert not result.violations, result.explain()
    assert result.final == {result.plan.jobs[0].key: ENDS[name]}, result.explain()


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Some Pythons, begun once: the runs know nothing of each other, and there are hundreds."""
    with ProcessPoolExecutor(
        min(4, os.cpu_count() or 1), multiprocessing.get_context("spawn"),
        initializer=warnings.simplefilter, initargs=("error",),
    ) as found:  # fmt: skip
        yield found


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_commit_or_effect_breaks_no_promise(
    name: str, pool: ProcessPoolExecutor
) -> None:
    _crash_at_each(name, [k for k, kind in _points(name) if kind != "read"], pool)


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_read_breaks_no_promise(name: str, pool: ProcessPoolExecutor) -> None:
    _crash_at_each(name, [k for k, kind in _points(name) if kind == "read"], pool)


def _points(name: str) -> list[tuple[int, str]]:
    return list(enumerate(simulate(SCENARIOS[name]()).points))


def _crash_at_each(name: str, points: list[int], pool: ProcessPoolExecutor) -> None:
    assert len(points) > 20
    for wrong in pool.map(what_went_wrong, [name] * len(points), points, chunksize=4):
        assert not wrong, wrong


def what_went_wrong(name: str, crash_at: int) -> str:
    """In one run; empty: nothing."""
    result = simulate(SCENARIOS[name](), crash_at=crash_at)
    if not any(what.startswith("killed ") for _, _, what in result.evidence.history):
        return f"the server was not killed at point {crash_at}"
    if result.violations or result.final != {result.plan.jobs[0].key: ENDS[name]}:
        return result.explain()
    return ""
