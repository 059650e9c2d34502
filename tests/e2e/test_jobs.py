"""Journeys of a job through real processes: server, engine, worker, ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from windlass.testing.platform import Platform


@pytest.fixture
def platform(either: Platform) -> Platform:
    """One server for all of them: none leaves anything that disturbs the next."""
    return either


def test_a_job_runs_to_its_end_and_its_output_is_kept(platform: Platform) -> None:
    job = platform.wait(platform.submit([sys.executable, "-c", "print('hello')"]))
    assert (job.state, job.exit_code) == ("succeeded", 0)
    assert platform.logs(job) == "hello"


def test_the_ranks_of_a_gang_share_the_cores_and_a_lone_one_keeps_them(platform: Platform) -> None:
    show = [sys.executable, "-c", "import os; print(os.environ.get('OMP_NUM_THREADS'))"]
    gang = platform.wait(platform.submit(show, workers=2))
    lone = platform.wait(platform.submit(show))
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert platform.logs(gang).split() == [share, share]
    assert platform.logs(lone) == "None"


def test_a_failing_job_says_why_with_its_traceback(platform: Platform) -> None:
    job = platform.wait(platform.submit([sys.executable, "-c", "1/0"]))
    assert (job.state, job.exit_code) == ("failed", 1)
    why = platform.client.jobs.why(job.id)
    assert "ZeroDivisionError" in why["sentence"]
    assert any("Traceback" in line for line in why["evidence"])


def test_a_gang_over_fake_nodes_meets(tmp_path: Path, dialect: str, database_url: str) -> None:
    url = "" if dialect == "sqlite" else database_url
    show = "import os; print(*(os.environ[n] for n in {names}))"
    names = ("WINDLASS_RANK", "WINDLASS_NODE_RANK", "CUDA_VISIBLE_DEVICES")
    with Platform(
        tmp_path / "h", "--fake-nodes", "3", "--fake-gpus", "2", database=url
    ) as platform:
        job = platform.submit(
            [sys.executable, "-c", show.format(names=names)],
            roles={"worker": {"count": 3, "gpus": 2, "nproc": 1}},
        )
        job = platform.wait(job)
        assert job.state == "succeeded", platform.client.jobs.why(job.id)
        assert sorted(platform.logs(job).split("\n")) == ["0 0 0,1", "1 1 0,1", "2 2 0,1"]
