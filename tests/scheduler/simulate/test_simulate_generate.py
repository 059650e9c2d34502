"""Workloads that are made: as large, as mixed and as loaded as they say."""

from __future__ import annotations

from collections import Counter

import pytest

from windlass.core.errors import InvalidInput
from windlass.scheduler.simulate.generate import generate, markov, racks, scale
from windlass.scheduler.simulate.workload import (
    Workload,
    at_load,
    capacity,
    offered_load,
    with_nodes,
    work,
)


@pytest.mark.parametrize(
    ("name", "jobs", "queues", "busy_s"),
    [("kueue-baseline", 15_000, 30, 66), ("kueue-large", 50_000, 1000, 4)],
)
def test_kueue_configurations_have_the_published_size_and_work(
    name: str, jobs: int, queues: int, busy_s: int
) -> None:
    made = generate(name)
    tenants = [quota for quota in made.rules.quotas if quota.parent]
    assert (len(made.jobs), len(tenants)) == (jobs, queues)
    assert len({job.name for job in made.jobs}) == jobs
    total = sum(work(job, "cpus") for job in made.jobs)
    assert total / (queues * 20_000) / 1000 == pytest.approx(busy_s, rel=0.06)
    assert all(quota.nominal == {"cpus": 20_000} and quota.reclaim_any for quota in tenants)


def test_the_topology_configuration_has_640_nodes_in_ten_racks() -> None:
    made = generate("kueue-topology")
    assert len(made.offers) == 640 and len({offer.rack for offer in made.offers}) == 10
    assert Counter(job.required for job in made.jobs) == {True: 5000, False: 10_000}
    sizes = Counter((job.workers, job.needs[0].cpus_milli) for job in made.jobs)
    assert sizes == {(2, 500): 10_500, (4, 1250): 3000, (8, 2500): 1500}


def test_the_same_seed_makes_the_same_jobs_and_another_makes_others() -> None:
    one, two, other = (markov(2, 0.5, jobs=50, seed=seed) for seed in (1, 1, 2))
    assert one.jobs == two.jobs != other.jobs


@pytest.mark.parametrize("load", [0.7, 1.5])
def test_the_scale_workload_is_as_mixed_and_loaded_as_it_says(load: float) -> None:
    made = scale(load, nodes=200, per_day=20_000, seed=1)
    jobs = made.jobs
    assert len(jobs) == 20_000 and len(made.offers) == 200
    assert jobs == sorted(jobs, key=lambda job: job.submit_ms)
    total = sum(work(job, "gpus") for job in jobs)
    assert total / (capacity(made.offers, "gpus") * 86_400_000) == pytest.approx(load, rel=0.01)
    shares = Counter(job.priority for job in jobs)
    assert [round(shares[p] / 20_000, 2) for p in (50, 70, 90)] == pytest.approx(
        [0.7, 0.25, 0.05], abs=0.02
    )
    assert sum(job.fails for job in jobs) / 20_000 == pytest.approx(0.35, abs=0.02)
    assert sum(job.cancel_ms is not None for job in jobs) / 20_000 == pytest.approx(0.05, abs=0.01)
    elastic = sum(job.needs[0].minimum > 0 for job in jobs)
    assert elastic / 20_000 == pytest.approx(0.2, abs=0.02)
    assert max(job.workers for job in jobs) == 40  # one gang over a fifth of the nodes
    sweep = Counter((job.submit_ms, job.duration_ms) for job in jobs).most_common(2)
    assert [times for _, times in sweep] == [400, 400]
    owned = sum(quota.nominal.get("gpus", 0) for quota in made.rules.quotas)
    assert owned == capacity(made.offers, "gpus")


def test_bursts_bring_ten_times_as_many() -> None:
    made = scale(0.9, nodes=200, per_day=50_000, seed=2)
    minutes = Counter(job.submit_ms // 60_000 for job in made.jobs)
    burst = sum(minutes[9 * 60 + at] for at in range(10)) / 10
    calm = sum(minutes[7 * 60 + at] for at in range(60)) / 60
    assert burst / calm == pytest.approx(10, rel=0.2)


def test_5000_nodes_are_157_racks_in_ten_blocks() -> None:
    offers = racks(5000)
    assert len({offer.rack for offer in offers}) == 157
    assert len({offer.block for offer in offers}) == 10


def test_load_stretches_arrivals_and_nothing_else() -> None:
    made = markov(4, 0.5, jobs=1000)
    loaded = at_load(made, 1.5)
    assert offered_load(loaded.jobs, loaded.offers) == pytest.approx(1.5, rel=0.001)
    assert [job.duration_ms for job in loaded.jobs] == [job.duration_ms for job in made.jobs]
    with pytest.raises(InvalidInput, match="--load"):
        at_load(Workload(made.jobs[:1], made.offers), 1.0)


@pytest.mark.parametrize(("factor", "count"), [(1.2, 60), (0.5, 25), (2.0, 100), (1.0, 50)])
def test_more_nodes_are_twins_of_those_there_are(factor: float, count: int) -> None:
    made = Workload([], racks(50))
    more = with_nodes(made, factor).offers
    assert len(more) == count and len({offer.name for offer in more}) == count
    assert {offer.rack for offer in more} <= {offer.rack for offer in made.offers}


def test_no_nodes_at_all_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no node"):
        with_nodes(Workload([], racks(2)), 0.1)
