"""Tables and facts fit the terminal, and lose nothing where there is none."""

from __future__ import annotations

import pytest

from windlass.cli import columns, show
from windlass.cli.ps import HEAD, SPARE
from windlass.client.jobs import Job

JOB = [
    "4b833bb0a195", "a-name-of-forty-characters-as-long-as-it", "queued", "12", "8.5", "3",
    "12000 55%", "3d 4h", "12h 5m", "needs 8 GPUs, 2 free (start unknown)" * 3,
]  # fmt: skip


@pytest.mark.parametrize("room", [80, 100, 120])
def test_a_row_of_ps_fits_and_keeps_id_state_and_the_reason(room: int) -> None:
    head, [row] = columns.fitted(HEAD, [JOB], room, SPARE)
    line = "  ".join(row)
    assert columns.width(line) <= room
    assert row[head.index("ID")] == JOB[0]
    assert row[head.index("STATE")] == "queued"
    assert len(row[-1]) >= 28


def test_without_a_terminal_nothing_is_lost() -> None:
    assert columns.fitted(HEAD, [JOB], None) == (HEAD, [JOB])


def test_columns_that_are_empty_go_first_and_wide_characters_count_twice() -> None:
    head, rows = columns.fitted(["A", "B", "C"], [["x", "", "数据集" * 20]], 40)
    assert head == ["A", "C"]
    assert columns.width("  ".join(rows[0])) <= 40
    assert columns.fitted(["A", "B"], [], 40) == (["A", "B"], [])


def test_facts_of_a_job_have_params_and_interpreter_and_wrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    job = Job.read({
        "id": "1", "name": "j", "project": "p", "user": "u", "framework": "python", "members": 1,
        "gpus": 0, "attempt": 1, "submitted": "", "revision": 1, "state": "queued",
        "command": "python train.py " + "--flag value " * 20, "waits": "needs 1 GPU, 0 free",
        "expected_start": None,
        "spec": {"params": {"lr": 0.1, "epochs": 3}, "environment": {"python": "/env/bin/python"}},
    })  # fmt: skip
    lines = show.facts(job)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "params     lr=0.1 epochs=3" in text
    assert "python     /env/bin/python" in text
    assert "waits: needs 1 GPU, 0 free (start unknown)" in text
