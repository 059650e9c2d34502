"""An attempt's life on one node: start, success, failure, signals, the end."""

from __future__ import annotations

import json

from worker_lab import Lab


def test_two_ranks_succeed_and_their_record_says_so(lab: Lab) -> None:
    worker = lab.worker("import os; print('hello', os.environ['WINDLASS_RANK'])", nproc=2).start()
    record = worker.end()
    assert record["outcome"] == "succeeded", (record, worker.words())
    assert [(rank["rank"], rank["exit"], rank["ended_by"]) for rank in record["ranks"]] == [
        (0, 0, "itself"),
        (1, 0, "itself"),
    ]
    assert worker.logs("worker-0-0.out") == b"hello 0\n"
    assert worker.logs("worker-0-1.out") == b"hello 1\n"
    assert lab.plane.wait_for("ended")["record"] == record
    started = lab.plane.wait_for("started")
    assert [rank["rank"] for rank in started["ranks"]] == [0, 1]
    assert json.loads((worker.directory / "worker.json").read_text())["pid"] == worker.pid
    assert worker.pids() == []
