"""The simulation can fail: with one safeguard taken out it says so within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import mutants
import pytest

from windlass.testing.simulated.plans import Plan, storm
from windlass.testing.simulation import simulate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutate", "label", "plan", "seeds", "first"),
    [
        (mutants.no_fence, "R-I3", storm, 20, 1),
        (mutants.no_revision, "R-I6", storm, 20, 0),
        (mutants.no_proof, "R-I2", storm, 60, 0),
        (mutants.no_lookup, "R-I0", storm, 20, 0),  # the unique key still refuses: a 500, not two
        (mutants.no_key, "R-I1", storm, 20, 0),
        (mutants.no_epoch, "R-I8", mutants.two_leaders, 20, 5),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_server_without_a_safeguard_is_found_out(
    mutate: mutants.Mutate,
    label: str,
    plan: Callable[[int], Plan],
    seeds: int,
    first: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`first`: the seed that found it last is tried before the others."""
    mutate(monkeypatch)
    order = (first, *(seed for seed in range(seeds) if seed != first))
    assert any(label in _labels(plan(seed)) for seed in order)


@pytest.mark.slow
def test_stale_rows_alone_do_no_harm_since_revisions_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other half of `no_revision`: with the comparison, nothing wrong is ever written. A
    server that only ever sees stale rows gets nowhere (R-I7), and that is all."""
    mutants.stale_rows(monkeypatch)
    for seed in range(10):
        assert _labels(storm(seed)) <= {"R-I7"}


@pytest.mark.slow
def test_two_servers_whose_leader_is_stopped_again_and_again_break_no_promise() -> None:
    for seed in range(15):
        result = simulate(mutants.two_leaders(seed))
        assert not result.violations, result.explain(400)


def _labels(plan: Plan) -> set[str]:
    return {violation[:4] for violation in simulate(plan).violations}
