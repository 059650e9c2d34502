"""A preempted job's usage is the sum of its attempts' seconds: no gap, nothing twice."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for

NODE = {"worker": {"gpus": 2, "nproc": 1, "cpus": 0.1, "memory": "64MiB"}}
LONG_AGO = "1970-01-01T00:00:00Z"
ROUNDED = 0.002
"""Each entry is told in whole milliseconds."""


@pytest.fixture
def narrow(tmp_path: Path, dialect: str, database_url: str) -> Iterator[Platform]:
    """One node with two GPUs, on either database."""
    url = "" if dialect == "sqlite" else database_url
    words = (
        "--fake-nodes", "1", "--fake-gpus", "2", "--currency", "EUR",
        "--scheduler-min-run", "100ms", "--scheduler-cool-down", "1s",
    )  # fmt: skip
    with Platform(tmp_path / "home", *words, database=url) as platform:
        yield platform
        invariants.check(platform)


def preempt(platform: Platform, low: Job, attempt: int, *, killed_at: str = "") -> None:
    """Another job takes the place of `low` for a moment; `low` runs again afterwards."""
    told = [one for one in platform.said(low, "saved") if one["attempt"] == attempt]
    gate = platform.gate(f"high-{attempt}")
    if killed_at:
        platform.kill()
        platform.env["WINDLASS_FAILPOINT"] = f"{killed_at}:kill"
        platform.start()
    high = platform.witness("until", gate, name="high", roles=NODE, queue={"priority": 90})
    if killed_at:
        assert platform.process is not None and platform.process.wait(120) == -9
        platform.kill()
        del platform.env["WINDLASS_FAILPOINT"]
        platform.start()
    platform.wait_state(high, "running", seconds=60)
    assert platform.client.jobs.get(low.id).outcome == "preempted", told
    gate.touch()
    assert platform.wait(high).state == "succeeded"
    platform.wait_state(low, "running", seconds=60)


def saved(platform: Platform, job: Job, attempt: int) -> bool:
    return sum(one["attempt"] == attempt for one in platform.said(job, "saved")) >= 3


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def entries(platform: Platform, job: Job) -> list[dict[str, Any]]:
    text = "".join(platform.client.usage.csv("entry", since=LONG_AGO))
    return [row for row in csv.DictReader(io.StringIO(text)) if row["job_id"] == job.id]


def test_usage_of_a_job_preempted_twice_is_the_sum_of_its_attempts(narrow: Platform) -> None:
    """S-I14 under preemption, once with the server killed between the order and its end."""
    platform = narrow
    platform.client.usage.set_price("gpu", "36")
    low = platform.witness(
        "train", 10_000, 0.1, name="low", roles=NODE, queue={"priority": 10}, retry={"times": 5}
    )
    for attempt, killed_at in ((1, ""), (2, "after-preempt-commit")):
        wait_for(lambda a=attempt: saved(platform, low, a), 60, "it trains")
        preempt(platform, low, attempt, killed_at=killed_at)
    wait_for(lambda: saved(platform, low, 3), 60, "it trains on")
    platform.client.jobs.stop(low.id, now=True)
    assert platform.wait(low).state == "cancelled"

    attempts = platform.client.jobs.detail(low.id)["attempts"]
    assert [each["outcome"] for each in attempts] == ["preempted", "preempted", "cancelled"]
    rows = entries(platform, low)
    charged = 0.0
    for each in attempts:
        mine = [row for row in rows if int(row["attempt"]) == each["number"]]
        assert {row["kind"] for row in mine} <= {"run", "lost", "grace"}, "within one hour"
        spans = sorted((moment(row["from"]), moment(row["to"])) for row in mine)
        assert spans[0][0] == moment(each["created"]) and spans[-1][1] == moment(each["ended"])
        for (_, before), (after, _) in zip(spans, spans[1:], strict=False):
            assert before == after, "no gap, and nothing twice"
        for row in mine:
            seconds = moment(row["to"]) - moment(row["from"])
            assert float(row["gpu_seconds"]) == pytest.approx(2 * seconds, abs=ROUNDED)
            assert float(row["cpu_seconds"]) == pytest.approx(0.1 * seconds, abs=ROUNDED)
            charged += float(row["gpu_seconds"]) if row["line"] == "charged" else 0
        kinds = {row["kind"] for row in mine}
        assert ("grace" in kinds) == (each["outcome"] == "preempted")

    held = sum(moment(each["ended"]) - moment(each["created"]) for each in attempts)
    told = [
        line
        for line in platform.client.usage.report("job", since=LONG_AGO).lines
        if line.key == low.id
    ]
    assert sum(line.gpu_seconds for line in told) == pytest.approx(2 * held, abs=10 * ROUNDED)
    by_line = {line.line: line for line in told}
    assert by_line["charged"].gpu_seconds == pytest.approx(charged, abs=10 * ROUNDED)
    assert by_line["charged"].cost_micro == pytest.approx(charged * 10_000, abs=100)
    assert by_line["grace"].gpu_seconds > 0
