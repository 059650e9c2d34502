"""Bugs of the core that simulations found, each in its smallest form."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from scripted import cluster, job

from windlass.scheduler.events import Queue, Quota, Rules
from windlass.scheduler.simulate.run import Options, Simulation
from windlass.scheduler.simulate.workload import Shapes


def test_a_promised_job_that_starts_early_takes_nothing_that_is_kept_for_another() -> None:
    """Small was promised a GPU of n0 for when two others end; it started when another one ended
    before, on the GPU that wide was promised."""
    rows = [
        ("two", 802, 1162, 2), ("one", 834, 765, 1), ("another", 1004, 908, 1),
        ("far", 1219, 1292, 2), ("wide", 1268, 1341, 12), ("small", 1503, 524, 1),
        ("last", 1517, 1227, 8),
    ]  # fmt: skip
    jobs = [
        job(name, submit * 1000, lasts * 1000, workers, walltime_ms=lasts * 1000)
        for name, submit, lasts, workers in rows
    ]
    rules = Rules(order="fifo", preemption=False, queues=(Queue("default", "backfill"),))
    made = cluster(jobs, nodes=4, gpus=4, rules=rules)
    result = Simulation(made, Options(audit="all")).run().result
    assert result["details"]["violations"] == []
    assert result["reservation_slip_s"] == 0


def test_who_preempts_starts_when_its_victim_is_gone_whatever_borrowers_were_promised() -> None:
    """The owner takes back what it lent. A borrower that starves had a promise on the same quota:
    the owner waited until somebody else ended, with its nodes empty."""
    node = Shapes().needs(1, gpus=8)
    pair = Shapes().needs(2, gpus=8)
    jobs = [
        job("a", 0, 504_534_000, 2, needs=pair, tenant="borrower", walltime_ms=504_534_000),
        job("b", 463_000, 695_888_000, needs=node, tenant="borrower", walltime_ms=695_888_000),
        job("c", 614_000, 670_069_000, needs=node, tenant="borrower", walltime_ms=670_069_000),
        job("d", 20_422_000, 943_226_000, needs=node, tenant="owner", walltime_ms=943_226_000),
    ]
    quotas = (
        Quota("all"),
        Quota("borrower", "all", nominal={"gpus": 8000}, reclaim_any=True),
        Quota("owner", "all", nominal={"gpus": 16_000}, reclaim_any=True),
    )
    rules = Rules(quotas=quotas, min_run_ms=0)
    run = Simulation(
        cluster(jobs, nodes=3, gpus=8, rules=rules, grace_ms=1000), Options(audit="all")
    )
    result = run.run().result
    assert result["by_tenant"]["owner"]["wait_s"]["max"] <= 1.0
    assert result["details"]["violations"] == []
