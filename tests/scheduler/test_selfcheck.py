"""A core whose books do not add up is found out."""

from __future__ import annotations

import random

import pytest

from windlass.scheduler.core import Core
from windlass.scheduler.events import Need, NodeUp, Offer, Preempt, Quota, Release, Rules, Submit
from windlass.scheduler.selfcheck import drift


def busy_core() -> Core:
    chance = random.Random(7)
    quotas = (
        Quota("all"),
        Quota("a", "all", nominal={"gpus": 16_000}),
        Quota("b", "all", nominal={"gpus": 16_000}),
    )
    core = Core(Rules(quotas=quotas, min_run_ms=0))
    core.apply([NodeUp(Offer(f"n{n}", cpus_milli=8000, gpus=8)) for n in range(4)], 0)
    for number in range(300):
        need = Need("w", chance.randint(1, 3), gpus=chance.randint(0, 3), cpus_milli=100)
        job = Submit(
            f"j{number}", chance.choice("ab"), (need,), number, number,
            priority=chance.choice((10, 50)), expected_ms=chance.randint(1, 500),
        )  # fmt: skip
        found = core.apply([job], number)
        leaving = [Release(d.job_id) for d in found if isinstance(d, Preempt)]
        ended = [Release(name) for name in core.holdings() if chance.random() < 0.2]
        core.apply([*leaving, *ended], number)
        assert drift(core) is None, number
    return core


def test_the_books_of_a_busy_core_add_up() -> None:
    busy_core()


@pytest.mark.parametrize("fault", ["a node", "a device", "a tenant"])
def test_a_fault_in_the_books_is_found(fault: str) -> None:
    core = busy_core()
    if fault == "a node":
        core.nodes.now.cpus[2] += 1
    elif fault == "a device":
        core.nodes.now.gpu[1, 0] -= 1000
    else:
        core.tree.charge("a", "train", "", core.tree.amounts({"gpus": 1000}))
    assert drift(core) is not None
