"""What must hold whatever happened: a function for each promise, over evidence.

A checker reads the committed rows with plain SQL and what the world wrote down. It yields a
sentence, beginning with its label, for each violation; none when the promise was kept.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from windlass.core.jobs import ATTEMPTS, JOBS, TERMINAL, AttemptState, JobState
from windlass.core.resources import Resources
from windlass.testing.simulated.cluster import Cluster
from windlass.testing.simulated.disk import Disk
from windlass.testing.simulated.evidence import Evidence, Interval

Checker = Callable[[Disk, Evidence, Cluster], Iterator[str]]


def durable_accept(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I1: every accepted submit exists; one job per key, also when the answer was lost."""
    found = {row["id"]: row["name"] for row in disk.rows("SELECT id, name FROM jobs")}
    told: dict[str, set[str]] = defaultdict(set)
    for key, job_id in seen.submits:
        told[key].add(job_id)
        if job_id not in found and job_id not in seen.removed:
            yield f"R-I1 job {job_id[:8]} (key {key}) was accepted and is not there"
    for key in sorted(seen.keys):
        if len(told[key]) > 1:
            yield f"R-I1 key {key} was answered with several jobs: {sorted(told[key])}"
        several = [job_id for job_id, name in found.items() if name == key]
        if len(several) > 1:
            yield f"R-I1 key {key} made {len(several)} jobs"


def one_live_attempt(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I2: real execution intervals of a job's attempts never overlap."""
    by_job: dict[str, list[Interval]] = defaultdict(list)
    for interval in seen.intervals:
        by_job[interval.job_id].append(interval)
    for job_id, intervals in by_job.items():
        for one, other in combinations(intervals, 2):
            if one.attempt != other.attempt and _overlap(one, other):
                yield (
                    f"R-I2 job {job_id[:8]}: attempt {one.attempt} on {one.node} "
                    f"[{one.began:.3f}, {one.ended}] and attempt {other.attempt} on {other.node} "
                    f"[{other.began:.3f}, {other.ended}] ran at once"
                )


def fencing(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I3: nothing of an older attempt, or of one that is over, becomes visible."""
    for taken in seen.accepted:
        if taken.attempt != taken.fence or taken.attempt_state == AttemptState.OVER:
            yield (
                f"R-I3 {taken.kind} of attempt {taken.attempt} of job {taken.job_id[:8]} was "
                f"taken at {taken.at:.3f}: the fence was {taken.fence}, "
                f"the attempt {taken.attempt_state}"
            )
    late = disk.rows(
        "SELECT c.job_id, c.path, c.attempt, c.registered_ms, a.number FROM checkpoints c "
        "JOIN attempts a ON a.job_id = c.job_id AND a.number > c.attempt "
        "AND a.created_ms < c.registered_ms"
    )
    for row in late:
        yield (
            f"R-I3 checkpoint {row['path']} of job {row['job_id'][:8]} was registered after "
            f"attempt {row['number']} began"
        )


def no_leak(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I4: some time after the end nothing of a terminal job runs."""
    over = {
        row["id"]: row["state"]
        for row in disk.rows("SELECT id, state FROM jobs")
        if JobState(row["state"]) in TERMINAL
    }
    for (_, node), worker in cluster.workers.items():
        if worker.job_id in over or worker.job_id in seen.removed:
            if not worker.gone or worker.running:
                what = "ranks run" if worker.running else "a worker lives"
                yield (
                    f"R-I4 job {worker.job_id[:8]} is {over.get(worker.job_id, 'removed')} and "
                    f"{what} of its attempt {worker.attempt} on {node}"
                )


def history(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I6: lawful moves only; each job's events without gap or repeat, up to its revision."""
    jobs = {row["id"]: row for row in disk.rows("SELECT id, state, revision FROM jobs")}
    by_job: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in disk.rows(
        "SELECT job_id, seq, attempt, kind, state, data FROM events "
        "WHERE job_id IS NOT NULL ORDER BY job_id, seq"
    ):
        by_job[row["job_id"]].append(row)
    for job_id, job in jobs.items():
        told = by_job.get(job_id, [])
        if [row["seq"] for row in told] != list(range(1, job["revision"] + 1)):
            yield (
                f"R-I6 job {job_id[:8]}: revision {job['revision']}, "
                f"events {[row['seq'] for row in told]}"
            )
        yield from _lawful(job_id, job["state"], told)


def _lawful(job_id: str, last: str, told: list[dict[str, Any]]) -> Iterator[str]:
    state: str | None = None
    attempts: dict[int, str] = {}
    for row in told:
        data = json.loads(row["data"])
        if row["kind"] == "submitted":
            state = data["to"]
        elif row["kind"] == "moved":
            lawful = JOBS.table[JobState(data["from"])].to
            if data["from"] != state or JobState(data["to"]) not in lawful:
                yield (
                    f"R-I6 job {job_id[:8]} event {row['seq']}: {data['from']} → {data['to']} "
                    f"while it was {state}"
                )
            state = data["to"]
            if data["to"] == JobState.STARTING:
                attempts[row["attempt"]] = AttemptState.LAUNCHING
        elif row["kind"] == "attempt":
            before = attempts.get(row["attempt"])
            follows = ATTEMPTS.table[AttemptState(data["from"])].to
            if data["from"] != before or AttemptState(data["to"]) not in follows:
                yield (
                    f"R-I6 job {job_id[:8]} attempt {row['attempt']}: "
                    f"{data['from']} → {data['to']} while it was {before}"
                )
            attempts[row["attempt"]] = data["to"]
        if row["state"] != state:
            yield f"R-I6 job {job_id[:8]} event {row['seq']} says {row['state']}, not {state}"
    if state != last:
        yield f"R-I6 job {job_id[:8]} is {last}, its events end with {state}"


def followed(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I6: who follows the feed over broken connections sees each event once, in order."""
    positions = [position for position, _, _ in seen.followed]
    if positions != sorted(set(positions)):
        yield "R-I6 the follower saw events twice or out of order"
    got = {(job_id, seq) for _, job_id, seq in seen.followed if job_id}
    for row in disk.rows("SELECT job_id, seq, position FROM events WHERE job_id IS NOT NULL"):
        if (row["job_id"], row["seq"]) not in got:
            yield f"R-I6 the follower missed event {row['seq']} of job {row['job_id'][:8]}"
    last: dict[str, int] = {}
    for _, job_id, seq in seen.followed:
        if job_id and seq != last.get(job_id, 0) + 1 and job_id not in seen.removed:
            yield f"R-I6 the follower saw event {seq} of job {job_id[:8]} after {last.get(job_id)}"
        if job_id:
            last[job_id] = seq


def convergence(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I7: long after the last fault no job is unfinished: every rank ends here, so a job that
    still is has been forgotten by its owner."""
    for row in disk.rows("SELECT id, name, state, reason, wish, fence FROM jobs ORDER BY number"):
        if JobState(row["state"]) not in TERMINAL:
            yield (
                f"R-I7 job {row['id'][:8]} ({row['name']}) is still {row['state']} "
                f"({row['reason']}), attempt {row['fence']}, wish {row['wish']}"
            )


def honest_ends(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I6: a job succeeded when, and only when, every worker of its newest attempt ended well."""
    rows = disk.rows(
        "SELECT j.id, j.state, j.fence, a.placement, a.id AS attempt_id FROM jobs j "
        "JOIN attempts a ON a.job_id = j.id AND a.number = j.fence"
    )
    for row in rows:
        nodes = {placed["node"] for placed in json.loads(row["placement"])}
        well = {
            interval.node
            for interval in seen.intervals
            if interval.job_id == row["id"] and interval.attempt == row["fence"]
            if interval.exits and not any(interval.exits)
        }
        written = {
            node
            for (attempt_id, node), worker in cluster.workers.items()
            if attempt_id == row["attempt_id"] and worker.record is not None
            if worker.record["outcome"] == "succeeded"
        }
        if row["state"] == JobState.SUCCEEDED and nodes != well:
            yield (
                f"R-I6 job {row['id'][:8]} succeeded in attempt {row['fence']} on "
                f"{sorted(nodes)}, but ranks ended well on {sorted(well)}"
            )
        if row["state"] in TERMINAL - {JobState.SUCCEEDED} and nodes == written:
            yield f"R-I6 job {row['id'][:8]} is {row['state']}, but every worker ended well"


def devices(disk: Disk, seen: Evidence, cluster: Cluster) -> Iterator[str]:
    """R-I8: no GPU is really used by two workers at once."""
    for one, other in combinations([each for each in seen.intervals if each.gpu_ids], 2):
        shared = set(one.gpu_ids) & set(other.gpu_ids)
        if shared and _overlap(one, other):
            yield (
                f"R-I8 {sorted(shared)} used at once by job {one.job_id[:8]}/{one.attempt} and "
                f"job {other.job_id[:8]}/{other.attempt}"
            )


AT_THE_END: tuple[Checker, ...] = (
    durable_accept, one_live_attempt, fencing, no_leak, history, followed, convergence,
    honest_ends, devices,
)  # fmt: skip


class Capacity:
    """R-I8, asked before each commit: what the live attempts hold is what the nodes have."""

    def __init__(self, disk: Disk, nodes: dict[str, Resources]) -> None:
        self._disk, self._nodes = disk, nodes
        self._last: list[Any] = []

    def exceeded(self) -> Iterator[str]:
        live = self._disk.raw.execute(
            "SELECT a.id, a.placement, j.spec FROM attempts a JOIN jobs j ON j.id = a.job_id "
            "WHERE a.state <> 'over' ORDER BY a.id"
        ).fetchall()
        if live == self._last:
            return
        self._last = live
        spent: dict[str, Resources] = defaultdict(Resources)
        used: dict[str, str] = {}
        for attempt_id, placement, spec in live:
            roles = json.loads(spec)["roles"]
            for placed in json.loads(placement):
                role = roles[placed["role"]]
                each = Resources(
                    cpus_milli=round(role["cpus"] * 1000), memory_bytes=role["memory"],
                    gpus=role["gpus"], slots=1,
                )  # fmt: skip
                spent[placed["node"]] = spent[placed["node"]].plus(each)
                if len(placed["gpu_ids"]) != role["gpus"]:
                    yield f"R-I8 {placed['role']} asked {role['gpus']} GPUs, got {placed}"
                for gpu in placed["gpu_ids"]:
                    if gpu in used:
                        yield f"R-I8 {gpu} is given to attempts {used[gpu]} and {attempt_id}"
                    used[gpu] = attempt_id
        for node, sum_ in spent.items():
            over = sum_.missing(self._nodes[node])
            if over:
                yield f"R-I8 node {node} gave more than it has: {over}"


def _overlap(one: Interval, other: Interval) -> bool:
    end_one = float("inf") if one.ended is None else one.ended
    end_other = float("inf") if other.ended is None else other.ended
    return one.began < end_other and other.began < end_one
