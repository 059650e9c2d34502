"""Exit codes: each error, each end of a job, and the page that lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windlass.cli import exits
from windlass.client.jobs import Job
from windlass.core import errors

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md"


def job(state: str, **fields: Any) -> Job:
    base = {"id": "1", "name": "j", "project": "p", "user": "u", "framework": "python"}
    more = {"members": 1, "gpus": 0, "attempt": 1, "submitted": "", "revision": 1, "command": ""}
    return Job.read({**base, **more, "state": state, **fields})


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (job("succeeded"), 0),
        (job("succeeded", exit_code=0), 0),
        (job("failed", exit_code=3), 3),
        (job("failed", exit_code=-9), 137),
        (job("failed", exit_code=256), 100),
        (job("failed"), 100),
        (job("failed", outcome="lost"), 100),
        (job("failed", outcome="preempted"), 106),
        (job("cancelled", exit_code=143), 103),
        (job("running"), 101),
    ],
)
def test_a_job_gives_its_own_code_or_one_above_a_hundred(ended: Job, code: int) -> None:
    assert exits.of_job(ended) == code


@pytest.mark.parametrize("kind", errors.every(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_documented_code(kind: type[errors.WindlassError]) -> None:
    assert exits.of_error(kind("x")) in exits.MEANING


def test_the_page_lists_every_code_with_its_meaning() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for code, meaning in exits.MEANING.items():
        assert f"| {code} | {meaning} |" in page
