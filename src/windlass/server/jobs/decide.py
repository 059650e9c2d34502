"""What to do about one live attempt now: evidence in, steps out. Pure.

    launching ──all workers registered──► alive ──told──► ending ──proof──► over
                                            │                                 ▲
                                            └──────────proof of the end───────┘

Evidence is what the engine sees of each node's worker and what that worker reported. An exit
record, posted or found on disk, is proof that nothing of the attempt runs on that node; so is
what `engine.end` returns. Only when every node is proven ended is the attempt over, and only
then may the job be queued again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.core.jobs import AttemptState, JobSpec, JobState, Outcome
from windlass.engines.base import Seen, Sight
from windlass.server.jobs import losses, policy

KILL_MARGIN_MS = 10_000
"""Past the grace: then the engine ends what did not end by itself."""
SILENT_MS = 30_000
"""A worker whose ranks have ended, and that was heard of so lately, sends its last files."""
DELIVER_LIMIT_MS = 3_600_000
"""It is given so much longer, at most."""
GATHER_LIMIT_MS = 600_000
"""A gang that is not whole after this was badly launched."""


@dataclass(frozen=True)
class Situation:
    job: Mapping[str, Any]
    attempt: Mapping[str, Any]
    workers: Sequence[Mapping[str, Any]]
    seen: Mapping[str, Seen]
    spec: JobSpec
    finish: Mapping[str, str]
    """Role → all, first or never."""
    deciding: int
    """How many processes decide the end of the whole gang."""
    lossy: losses.Gang | None = None
    """Of a job whose gang goes on without those it loses."""
    unreadable: str = ""
    """Why its row cannot be read: it is ended, with its grace, and fails."""
    began_ms: int = 0
    """Since when this server counts. What was stamped before was stamped by another, whose clock
    may have been another one too: of that only counts what has gone by since."""


@dataclass(frozen=True)
class Launch:
    pass


@dataclass(frozen=True)
class Gathered:
    """Every worker has registered."""


@dataclass(frozen=True)
class Started:
    """Every rank runs: the job is running."""


@dataclass(frozen=True)
class Tell:
    """Order the nodes that still run to end, with a grace."""

    outcome: Outcome
    reason: str
    grace_ms: int
    nodes: tuple[str, ...]
    stopping: bool
    """The job itself goes to `stopping`: somebody wished it, or a limit was met."""


@dataclass(frozen=True)
class Kill:
    """The engine ends this node's part by force."""

    node: str


@dataclass(frozen=True)
class Over:
    verdict: policy.Verdict


Step = Launch | Gathered | Started | Tell | Kill | Over

_WISHED = {
    "cancel": Outcome.CANCELLED,
    "restart": Outcome.PREEMPTED,
    "preempt": Outcome.PREEMPTED,
    "resize": Outcome.PREEMPTED,
    "hold": Outcome.PREEMPTED,
}


def decide(now: Situation, now_ms: int) -> list[Step]:
    job, attempt = now.job, now.attempt
    records = {
        worker["node"]: worker["record"] or _record(now.seen.get(worker["node"]))
        for worker in now.workers
    }
    told = Outcome(attempt["ending_outcome"]) if attempt["ending_outcome"] else None
    running = tuple(node for node, record in records.items() if record is None)

    if not running and now.unreadable:
        return [Over(policy.Verdict(Outcome.FAILED, now.unreadable))]
    if not running:
        return [Over(_judge(now, records, told, attempt["reason"] if told else ""))]

    dead = [node for node in running if _sight(now, node) is Sight.DEAD]
    if dead:
        # Their ranks may live on: the engine ends them, which gives the missing records.
        return [Kill(node) for node in dead]

    if attempt["state"] == AttemptState.ENDING:
        if attempt["launched_ms"] is None:
            # No worker was launched, as far as is written down: nobody would hear the order.
            return [Kill(node) for node in running]
        if job["wish"] == "cancel" and job["wish_now"] and attempt["grace_ms"] > 0:
            return [_tell(Outcome.CANCELLED, job["wish_reason"] or "", 0, running, stopping=True)]
        late = [node for node in running if now_ms >= _late_ms(now, node, now_ms)]
        if late:
            return [Kill(node) for node in late]
        # Told to end before it was launched there: nobody would hear the order.
        return [Kill(node) for node in running if _sight(now, node) is Sight.ABSENT]

    if now.unreadable:
        grace = now.spec.limits.grace
        return [_tell(Outcome.FAILED, now.unreadable, grace, running, stopping=True)]

    if now.lossy is not None:
        ended = losses.ended(now.lossy, records)
    else:
        ended = _ended_elsewhere(now, records)
    if ended is not None:
        outcome, why = ended
        return [_tell(outcome, why, now.spec.limits.grace, running, stopping=False)]

    if job["wish"] in _WISHED:
        grace = 0 if job["wish_now"] else now.spec.limits.grace
        return [
            _tell(_WISHED[job["wish"]], job["wish_reason"] or "", grace, running, stopping=True)
        ]

    left_ms = _left_ms(now, now_ms)
    if left_ms is not None and left_ms <= 0:
        limit = (now.spec.limits.time or 0) // 1000
        why = f"time limit of {limit} s reached"
        return [_tell(Outcome.FAILED, why, now.spec.limits.grace, running, stopping=True)]

    if _all_hung(now, now_ms):
        why = "no rank of the gang made progress past the limit"
        return [_tell(Outcome.HUNG, why, now.spec.limits.grace, running, stopping=False)]

    steps: list[Step] = []
    absent = [node for node in running if _sight(now, node) is Sight.ABSENT]
    if attempt["launched_ms"] is None or absent:
        steps.append(Launch())
    elif attempt["state"] == AttemptState.LAUNCHING and all(
        w["registered_ms"] for w in now.workers
    ):
        steps.append(Gathered())
    elif (
        attempt["state"] == AttemptState.LAUNCHING
        and _elapsed(now, attempt["created_ms"], now_ms) >= GATHER_LIMIT_MS
    ):
        missing = ", ".join(str(w["node"]) for w in now.workers if not w["registered_ms"])
        why = (
            f"the gang was not whole after {GATHER_LIMIT_MS // 60_000} minutes: {missing} missing"
        )
        return [_tell(Outcome.LOST, why, 0, running, stopping=False)]
    if job["state"] == JobState.STARTING and all(w["started_ms"] for w in now.workers):
        if attempt["state"] == AttemptState.LAUNCHING and not steps:
            steps.append(Gathered())
        steps.append(Started())
    return steps


def next_due_ms(now: Situation, now_ms: int) -> int | None:
    """When this attempt must be looked at again though nothing was heard."""
    if now.attempt["state"] == AttemptState.ENDING:
        nodes = [worker["node"] for worker in now.workers if not worker["record"]]
        return min((_late_ms(now, node, now_ms) for node in nodes), default=None)
    left_ms = _left_ms(now, now_ms)
    return None if left_ms is None else now_ms + max(0, left_ms)


def _left_ms(now: Situation, now_ms: int) -> int | None:
    """What is left of its limit of time; None: nothing limits it, or it does not run yet. Its
    workers count, by clocks that nobody sets; a server adds what went by since it heard them."""
    limit, attempt = now.spec.limits.time, now.attempt
    if attempt["deadline_ms"] is None:
        return None
    ran = [_ran_ms(now, worker, now_ms) for worker in now.workers if not worker["record"]]
    known = [each for each in ran if each is not None]
    if limit is None or not known:  # workers of an older release do not count
        return int(attempt["deadline_ms"]) - now_ms
    return limit - min(known)


def _ran_ms(now: Situation, worker: Mapping[str, Any], now_ms: int) -> int | None:
    said = [rank.get("ran_ms") for rank in worker.get("ranks") or ()]
    counted = [each for each in said if type(each) is int and each >= 0]
    if not counted:
        return None
    heard_ms = worker.get("beat_ms")
    since = 0 if heard_ms is None else _elapsed(now, int(heard_ms), now_ms)
    return max(counted) + since


def _elapsed(now: Situation, stamp_ms: int, now_ms: int) -> int:
    """How long ago that was, as far as this server can vouch for it."""
    return now_ms - _vouched(now, stamp_ms, now_ms)


def _vouched(now: Situation, stamp_ms: int, now_ms: int) -> int:
    if now.began_ms <= stamp_ms <= now_ms:
        return stamp_ms
    return min(now.began_ms or stamp_ms, now_ms)


def _late_ms(now: Situation, node: str, now_ms: int) -> int:
    """When a worker that was told to end is late. One that shares no files with the server
    may have a checkpoint to send that its ranks saved at the last moment."""
    attempt = now.attempt
    told_ms = _vouched(now, int(attempt["ending_ms"]), now_ms)
    late = told_ms + int(attempt["grace_ms"]) + KILL_MARGIN_MS
    worker = next(each for each in now.workers if each["node"] == node)
    ranks, heard_ms = worker.get("ranks") or (), worker.get("beat_ms")
    if not attempt["grace_ms"] or not heard_ms or not ranks:
        return late
    if not all("exit" in rank for rank in ranks):
        return late
    heard_ms = _vouched(now, int(heard_ms), now_ms)
    return max(late, min(heard_ms + SILENT_MS, late + DELIVER_LIMIT_MS))


def _judge(
    now: Situation,
    records: Mapping[str, Mapping[str, Any] | None],
    told: Outcome | None,
    told_why: str,
) -> policy.Verdict:
    if now.lossy is not None:
        return losses.judge(now.lossy, records, told, told_why)
    known = [{**record, "node": node} for node, record in records.items() if record]
    return policy.judge(now.finish, known, told, told_why, now.deciding)


def _ended_elsewhere(
    now: Situation, records: Mapping[str, Mapping[str, Any] | None]
) -> tuple[Outcome, str] | None:
    """Whether the others must end because a node's part failed, or because all that decide
    ended well (parameter servers never end by themselves)."""
    ranks = [rank for record in records.values() if record for rank in record.get("ranks", ())]
    for node, record in records.items():
        if record is None or record["outcome"] == Outcome.SUCCEEDED:
            continue
        if record["outcome"] == Outcome.LOST:
            return Outcome.LOST, f"node {node} lost its part of the gang"
        verdict = policy.judge(now.finish, [record], None, "", now.deciding)
        return verdict.outcome, verdict.reason
    ended = [rank for worker in now.workers for rank in worker["ended_ranks"] or ()]
    ranks += ended
    well = {
        (rank["role"], rank["index"], rank["local_rank"])
        for rank in ranks
        if policy.decides(now.finish, rank) and rank.get("exit") == 0
    }
    if now.deciding and len(well) >= now.deciding:
        return Outcome.SUCCEEDED, "all ranks ended well"
    return None


def _all_hung(now: Situation, now_ms: int) -> bool:
    """A gang waits for its slowest: only when no node moves is it the gang that hangs. A worker
    judges alone where there is one node."""
    idle = now.spec.limits.idle
    if idle is None or "hung" not in now.spec.retry.on or len(now.workers) < 2:
        return False
    return all(
        worker["hung_ms"] and _elapsed(now, worker["hung_ms"], now_ms) < 2 * idle
        for worker in now.workers
    )


def _tell(
    outcome: Outcome, reason: str, grace_ms: int, nodes: tuple[str, ...], *, stopping: bool
) -> Tell:
    return Tell(outcome, reason, grace_ms, nodes, stopping)


def _record(seen: Seen | None) -> Mapping[str, Any] | None:
    return seen.record if seen is not None and seen.sight is Sight.ENDED else None


def _sight(now: Situation, node: str) -> Sight:
    seen = now.seen.get(node)
    return seen.sight if seen is not None else Sight.ALIVE
