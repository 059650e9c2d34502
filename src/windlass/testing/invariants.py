"""What must hold after any fault, checked over evidence: R-I1 … R-I7 and R-I10 of the reliability
design.

    check(platform)                  all of them, for every job the server knows
    accepted(platform, acked)        R-I1, for the submits whose answers a test kept
    audited(platform)                R-I10: every change has its row in the audit log
    metered(platform)                S-I14: what jobs held is what the ledger says

Evidence comes from where it cannot be invented: the workload's own locks and lines (`witness.py`),
the process table, the cgroup tree, the files of checkpoints, and the events as the API tells them.
Each raises AssertionError with all it found.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from windlass.client import Job
from windlass.core.jobs import ATTEMPTS, JOBS, LIVE, TERMINAL, AttemptState, JobState
from windlass.job.manifest import BadCheckpoint, verify
from windlass.testing.platform import Platform, marked_processes, read_json, wait_for

LEAK_SECONDS = 120.0
CONVERGE_SECONDS = 120.0


def check(platform: Platform) -> None:
    """R-I2 … R-I7, R-I10 and S-I14 for every job. The server runs; starts that are under way may
    finish."""
    converged(platform)
    jobs = platform.client.jobs.list(limit=100_000)
    one_live_attempt(platform)
    waiting = [job for job in jobs if not job.attempt]
    for job in waiting[:: len(waiting) // 20 + 1]:  # they are many in some tests, and all alike
        lawful_history(platform, job)
    for job in jobs:
        if job.attempt:
            lawful_history(platform, job)
            saved = platform.client.jobs.checkpoints(job.id)
            fenced(platform, job, saved)
            if "--storage" in platform.args:
                readable_checkpoints(platform, job, saved)
            else:
                whole_checkpoints(job, saved)
    no_leak(platform, jobs)
    metered(platform)
    audited(platform)


def accepted(platform: Platform, acked: Mapping[str, str], sent: Sequence[str] = ()) -> None:
    """R-I1: each acknowledged submit is there, and no key made two jobs. `acked`: key → job id;
    `sent`: every key that was ever sent. Each job must be named after its key."""
    known = {job.id: job.name for job in platform.client.jobs.list(limit=100_000)}
    lost = {key: job for key, job in acked.items() if known.get(job) != key}
    assert not lost, f"R-I1: acknowledged and not there: {lost}"
    names = [name for name in known.values() if name in {*acked, *sent}]
    doubled = sorted({name for name in names if names.count(name) > 1})
    assert not doubled, f"R-I1: more than one job for a key: {doubled}"


def one_live_attempt(platform: Platform) -> None:
    """R-I2: no two attempts of a job ran at once, and they ran in order."""
    for path in sorted(platform.evidence.glob("*.jsonl")):
        lines = platform.said(path.stem)
        bad = [line for line in lines if line["what"] == "violation"]
        assert not bad, f"R-I2: job {path.stem}: {bad}"
        newest: dict[int, int] = {}
        for line in lines:
            rank, attempt = line["rank"], line["attempt"]
            assert attempt >= newest.get(rank, 0), (
                f"R-I2: job {path.stem}: attempt {attempt} still acts after a newer one began: "
                f"{line}"
            )
            if line["what"] == "began":
                assert attempt > newest.get(rank, 0), f"R-I2: job {path.stem}: ran twice: {line}"
            newest[rank] = attempt


def fenced(platform: Platform, job: Job, checkpoints: Sequence[Mapping[str, Any]]) -> None:
    """R-I3: no checkpoint was taken from an attempt after it was over. One that is whole on disk,
    though its attempt died before it could say so, is found by a later attempt's worker: that is
    before any rank of it starts, and such a time is no stale attempt's."""
    if not checkpoints:
        return
    attempts = platform.client.jobs.detail(job.id)["attempts"]
    ended = {attempt["number"]: attempt["ended"] for attempt in attempts}
    for saved in checkpoints:
        over, taken = ended.get(saved["attempt"]), _moment(saved["registered"])
        if over is None or taken <= _moment(over):
            continue
        assert any(
            later["number"] > saved["attempt"]
            and _moment(later["created"]) <= taken
            and (later["started"] is None or taken <= _moment(later["started"]))
            for later in attempts
        ), f"R-I3: {saved['path']} registered after attempt {saved['attempt']} was over"


def no_leak(platform: Platform, jobs: Sequence[Job], seconds: float = LEAK_SECONDS) -> None:
    """R-I4: nothing of an attempt that is over is left, in processes or cgroups."""
    end = time.monotonic() + seconds
    while True:
        left = _leaks(platform, jobs)
        if not left:
            return
        assert time.monotonic() < end, f"R-I4: left {seconds} s after the end: {left}"
        time.sleep(0.1)
        jobs = platform.client.jobs.list(limit=100_000)  # one may have begun its next attempt


def whole_checkpoints(job: Job, checkpoints: Sequence[Mapping[str, Any]]) -> None:
    """R-I5: the newest registered checkpoint that nobody called bad opens, digests and all."""
    good = [saved for saved in checkpoints if saved["bad"] is None]
    if not good:
        return
    newest = max(good, key=lambda saved: (saved["attempt"], saved["step"]))
    try:
        found = verify(Path(newest["path"]))
    except BadCheckpoint as err:
        raise AssertionError(f"R-I5: job {job.name}: {newest['path']}: {err}") from err
    assert found.digest == newest["digest"], f"R-I5: another digest than registered: {newest}"


def readable_checkpoints(
    platform: Platform, job: Job, checkpoints: Sequence[Mapping[str, Any]]
) -> None:
    """R-I5 where a checkpoint may lie in a storage: every file comes, with its digest."""
    for saved in checkpoints:
        if saved["bad"] is None:
            word = f"{saved['step']}.{saved['attempt']}"
            for file in platform.client.checkpoints.get(job.id, word)["files"]:
                path = f"/jobs/{job.id}/checkpoints/{word}/files/{file['path']}"
                found = hashlib.sha256(platform.call("GET", path).content).hexdigest()
                assert found == file["digest"], f"R-I5: {path} comes with other bytes"


def lawful_history(platform: Platform, job: Job) -> None:
    """R-I6: events without gap or repeat, only allowed moves, the last of them the job's state;
    who comes back with a cursor is told the rest once."""
    events = _events(platform, job.id)
    numbers = [event["seq"] for event in events]
    assert numbers == list(range(1, len(events) + 1)), f"R-I6: job {job.name}: events {numbers}"
    assert events[0]["kind"] == "submitted" and events[0]["data"]["to"] in JOBS.first
    state = JobState(events[0]["data"]["to"])
    attempt = AttemptState.OVER
    for event in events[1:]:
        data = event["data"]
        if event["kind"] == "moved":
            assert data["from"] == state, f"R-I6: job {job.name}: {event} while {state}"
            new = JobState(data["to"])
            JOBS.check(state, new, JOBS.table[state].owner)
            state = new
            if new is JobState.STARTING:
                assert attempt is AttemptState.OVER, f"R-I6: a second attempt: {event}"
                attempt = AttemptState.LAUNCHING
        elif event["kind"] == "attempt":
            assert data["from"] == attempt, f"R-I6: job {job.name}: {event} while {attempt}"
            ATTEMPTS.check(attempt, AttemptState(data["to"]), "reconcile")
            attempt = AttemptState(data["to"])
        assert event["state"] == state, f"R-I6: {event} tells {event['state']}, it is {state}"
    if state in TERMINAL:
        assert attempt is AttemptState.OVER, f"R-I6: job {job.name} is {state}, it {attempt}"
        assert platform.client.jobs.get(job.id).state == state
    middle = len(events) // 2
    rest = platform.client.jobs.events(job.id, after=middle)
    assert [event["seq"] for event in rest][: len(events) - middle] == numbers[middle:]


def metered(platform: Platform) -> None:
    """S-I14: what the attempts of each finished job held, from their beginning to their end, is
    what the ledger says; and its sums agree, however they are made."""
    jobs = platform.client.jobs.list(limit=100_000)
    over = {job.id: job for job in jobs if job.attempt and job.state in TERMINAL}
    usage = platform.client.usage
    report = usage.report("job", since=_LONG_AGO, limit=100_000)
    told: dict[str, list[float]] = {job_id: [0.0, 0.0, 0.0] for job_id in over}
    for line in report.lines:
        if line.key in told:
            held = (line.gpu_seconds, line.cpu_seconds, line.memory_byte_seconds / 2**30)
            told[line.key] = [a + b for a, b in zip(told[line.key], held, strict=True)]
    for job_id, job in over.items():
        asked = _held(platform.client.jobs.detail(job_id))
        if asked is not None:
            wrong = [abs(a - b) > _ROUNDED for a, b in zip(asked, told[job_id], strict=True)]
            assert not any(wrong), (
                f"S-I14: job {job.name}: GPU, CPU and GiB seconds held {asked}, "
                f"on the ledger {told[job_id]}"
            )
    if not any(job.state in LIVE for job in jobs):
        sums = [usage.report(by, since=_LONG_AGO) for by in ("project", "user", "gpu", "day")]
        for name in ("gpu_seconds", "cpu_seconds", "memory_byte_seconds", "cost_micro"):
            for part in ("total", "platform"):
                found = {getattr(getattr(each, part), name) for each in (report, *sums)}
                assert len(found) == 1, f"S-I14: {name} of {part} is {found}"


_LONG_AGO = "1970-01-01T00:00:00Z"
_ROUNDED = 0.005


def _held(detail: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """GPU, CPU and GiB seconds of all attempts; None for a gang whose size is not fixed."""
    seconds = sum(
        (_moment(attempt["ended"]) - _moment(attempt["created"])).total_seconds()
        for attempt in detail["attempts"]
    )
    roles = detail["spec"]["roles"].values()
    if any(role["min"] is not None and role["min"] < role["count"] for role in roles):
        return None
    gpus = sum(role["count"] * (role["gpus"] + role["gpu_share"]) for role in roles)
    cpus = sum(role["count"] * role["cpus"] for role in roles)
    gib = sum(role["count"] * -(-role["memory"] // 2**20) for role in roles) / 1024
    return gpus * seconds, cpus * seconds, gib * seconds


def converged(platform: Platform, seconds: float = CONVERGE_SECONDS) -> None:
    """R-I7: soon every job is finished, waits for a reason that can be told, or runs for real."""
    wait_for(
        lambda: not _stuck(platform), seconds, f"R-I7: all converge; stuck: {_stuck(platform)}"
    )


def _stuck(platform: Platform) -> list[str]:
    found = []
    for job in platform.client.jobs.list(state="queued,starting,running,stopping", limit=10_000):
        if job.state == JobState.QUEUED:
            if not platform.client.jobs.why(job.id)["sentence"]:
                found.append(f"{job.name} waits, nobody knows why")
        elif not any(platform.worker_pid(folder) for folder in platform.attempts(job)):
            if platform.client.jobs.get(job.id).state in LIVE:
                found.append(f"{job.name} is {job.state} without a worker")
    return found


def _leaks(platform: Platform, jobs: Sequence[Job]) -> list[str]:
    over: dict[str, str] = {}
    found = []
    running = {job.id: job.attempt for job in jobs if job.state in LIVE}
    for folder in platform.attempts():
        launch = read_json(folder / "launch.json")
        job_id = str(launch.get("job_id"))
        if running.get(job_id) == launch.get("attempt"):
            continue
        over[folder.parent.name] = job_id
        for path in read_json(folder / "processes.json").get("cgroups", ()):
            if os.path.isdir(path):
                found.append(f"cgroup {path}")
    for pid, attempt_id in marked_processes().items():
        if attempt_id in over:
            found.append(f"pid {pid} of job {over[attempt_id]}: {_command(pid)}")
    return found


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace")
    except OSError:
        return "gone"


def _events(platform: Platform, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := platform.client.jobs.events(job_id, after=len(found)):
        found += page
    return found


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def audited(platform: Platform, seconds: float = 60.0) -> None:
    """R-I10: every change that a user made has exactly one row in the audit log, and the chains
    are sound. Evidence: the jobs that are there and the wishes in their histories."""
    client = platform.client
    jobs = client.jobs.list(limit=100_000)
    stopped = [job for job in jobs if job.wish or job.outcome == "cancelled"][:100]
    stops = {job.id: _stops(platform, job) for job in stopped}
    end = time.monotonic() + seconds
    while True:  # on PostgreSQL a row is seen once it has its place in the chain
        told = _told(platform)
        wrong = {
            job.name: rows
            for job in jobs
            if (rows := sum(told.get((action, job.id), 0) for action in _MAKES)) != 1
        }
        short = {
            job.name: (stops[job.id], rows)
            for job in stopped
            if (rows := told.get(("jobs.stop", job.id), 0)) < stops[job.id]
        }
        if not wrong and not short:
            break
        assert time.monotonic() < end, (
            f"R-I10: rows that tell of a job's submit: {wrong}; stops of a job, and rows: {short}"
        )
        time.sleep(0.1)
    for chain in ("project", "server"):
        verdict = client.audit.verify(chain=chain)
        assert verdict.sound, f"R-I10: the {chain}'s chain: {verdict.why}"


def _stops(platform: Platform, job: Job) -> int:
    """How often its history says that a user stopped it."""
    return sum(
        event["kind"] == "wished" and event["reason"].startswith("stopped by ")
        for event in _events(platform, job.id)
    )


def _told(platform: Platform) -> dict[tuple[str, str], int]:
    """How many rows tell well of an action on an object."""
    told: dict[tuple[str, str], int] = {}
    for row in platform.client.audit.rows():
        if row["outcome"] == "ok":
            key = (row["action"], row["object"])
            told[key] = told.get(key, 0) + 1
    return told


_MAKES = ("jobs.submit", "jobs.rerun")
