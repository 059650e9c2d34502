"""A report is one of all members, survives JSON, and reads well without a terminal."""

from __future__ import annotations

import io
import json
import math

import torch

from windlass.train.counters import Counters, Fault
from windlass.train.memory import peak_bytes
from windlass.train.report import LossPoint, MemberReport, Report


def counted() -> Counters:
    counters = Counters()
    counters.sent("gradient", 1_000_000)
    counters.received("gradient", 500_000)
    counters.sent("control", 10)
    for by in (0, 0, 1, 10):
        counters.stale(by)
    counters.event("conflicts", 2)
    counters.survived(Fault("death", "worker 2", 5, "killed by SIGKILL"))
    counters.drift.append((4, 0.5))
    return counters


def member(rank: int, samples: int = 64, loss: float = 1.0) -> MemberReport:
    return MemberReport(
        name=f"worker {rank}",
        steps=8,
        samples=samples,
        seconds=2.0 + rank,
        losses=[(step, step * (1.0 + rank), loss / step) for step in (2, 4, 8)],
        counters=counted().to_json(),
        peak_memory_bytes=1000 * (rank + 1),
        evaluation=[(8, {"accuracy": 0.9 - rank})],
    )


def merged() -> Report:
    server = MemberReport(name="server 0", seconds=4.0, counters=counted().to_json())
    return Report.merge(
        [member(1, 192, 3.0), server, member(0)],
        "ps:ssp",
        {"staleness": 7, "compress": torch.float16},
        lost=["worker 2"],
        notes=["momentum"],
    )


def test_members_are_merged_into_one() -> None:
    report = merged()
    assert [each.name for each in report.members] == ["worker 0", "worker 1", "server 0"]
    assert (report.workers, report.servers, report.steps) == (2, 1, 8)
    assert report.samples == 256
    assert report.seconds == 3.0, "the slowest worker's"
    assert report.samples_per_s == 256 / 3
    assert report.sent_bytes == {"control": 30, "gradient": 3_000_000}
    assert report.bytes_per_step == 3_000_030 / 8
    assert report.staleness == {0: 6, 1: 3, 10: 3}
    assert list(report.staleness) == [0, 1, 10], "by number, not by text"
    assert report.events == {"conflicts": 6}
    assert len(report.faults) == 1, "all members tell of the same death"
    assert report.drift == ((4, 0.5),)
    assert report.peak_memory_bytes == 2000
    assert report.evaluation[0].numbers == {"accuracy": 0.9}


def test_the_loss_is_weighted_by_samples_and_as_late_as_its_last_worker() -> None:
    report = merged()
    assert report.losses[0] == LossPoint(2, 4.0, (64 * 0.5 + 192 * 1.5) / 256)
    assert report.loss_at_step(7) == report.losses[1].loss
    assert report.loss_at_step(1) is None
    assert report.loss_at_seconds(8.0) == report.losses[1].loss
    assert report.loss == report.losses[-1].loss


def test_a_report_survives_json_with_a_loss_that_diverged() -> None:
    report = merged()
    assert Report.from_json(json.loads(json.dumps(report.to_json(), allow_nan=False))) == report
    wild = MemberReport(name="worker 0", steps=2, losses=[(1, 0.1, math.nan), (2, 0.2, math.inf)])
    diverged = Report.merge([wild], "allreduce")
    back = Report.from_json(json.loads(json.dumps(diverged.to_json(), allow_nan=False)))
    assert math.isnan(back.losses[0].loss) and back.losses[1].loss == math.inf
    assert "nan to inf" in str(back)


def test_the_text_says_it_all_in_a_hundred_plain_columns() -> None:
    text = str(merged())
    for words in (
        "ps:ssp (staleness=7, compress=torch.float16) on 2 workers, 1 server",
        "note: momentum", "worker 2 was lost", "loss by step", "loss by second", "gradient",
        "mean 2.75, at most 10", "conflicts 6", "death of worker 2 at step 5", "accuracy 0.9",
    ):  # fmt: skip
        assert words in text
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 100


def test_a_file_that_knows_only_ascii_gets_ascii() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    merged().show(file)
    file.flush()
    assert b"loss by step" in raw.getvalue() and b"\x1b" not in raw.getvalue()


def test_an_empty_training_has_a_report_too() -> None:
    report = Report.merge([], "allreduce")
    assert report.loss is None
    assert "0 steps" in str(report)


def test_the_peak_is_of_this_process() -> None:
    before = peak_bytes(torch.device("cpu"))
    held = torch.ones(8_000_000, dtype=torch.float64)
    after = peak_bytes(torch.device("cpu"))
    del held
    assert after >= before > 10_000_000
    assert after < 20_000_000_000
