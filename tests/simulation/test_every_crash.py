"""The server killed at each point of a small story: it ends as it would have, or is told again.

A point before or after a commit or an effect is where what is durable and what is known differ.
Points at reads only shift times; they are for the long run.
"""

from __future__ import annotations

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


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_commit_or_effect_breaks_no_promise(name: str) -> None:
    _crash_at_each(name, [k for k, kind in _points(name) if kind != "read"])


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_read_breaks_no_promise(name: str) -> None:
    _crash_at_each(name, [k for k, kind in _points(name) if kind == "read"])


def _points(name: str) -> list[tuple[int, str]]:
    return list(enumerate(simulate(SCENARIOS[name]()).points))


def _crash_at_each(name: str, points: list[int]) -> None:
    assert len(points) > 20
    for k in points:
        result = simulate(SCENARIOS[name](), crash_at=k)
        assert not result.violations, result.explain()
        killed = [what for _, _, what in result.evidence.history if what.startswith("killed ")]
        assert killed, f"the server was not killed at point {k}"
        assert result.final == {result.plan.jobs[0].key: ENDS[name]}, result.explain()
