"""What follows an attempt's end: pure decisions on evidence.

Two questions are answered here. How did the attempt end, given the exit records of its nodes
and what it had been told (`judge`)? And what becomes of the job, given its retry rules and its
history (`follow`)? Loss of a node and preemption never spend the user's budget; a job that gets
no further in three restarts stops; one that takes down node after node is quarantined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.core.jobs import JobSpec, JobState, Outcome, RetrySpec
from windlass.patterns.tracebacks import error_of

Record = Mapping[str, Any]
ROOM_BACKOFF_MS = 1_000
ROOM_BACKOFF_CAP_MS = 300_000
QUARANTINE_AFTER = 3
"""Attempts in a row that ended with the loss of a node, without a further step."""


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended."""

    outcome: Outcome
    reason: str
    exit_code: int | None = None
    failure: dict[str, Any] | None = None
    lost_nodes: tuple[str, ...] = ()
    unhealthy_nodes: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    """By node, what it had run out of so that nothing could be started there, in words."""


@dataclass(frozen=True)
class Follow:
    """What becomes of the job."""

    state: JobState
    reason: str
    failures: int
    stale_restarts: int
    lost_nodes: list[str] = field(default_factory=list)
    delay_ms: int = 0
    quarantine: bool = False


def judge(
    finish: Mapping[str, str],
    records: Sequence[Record],
    told: Outcome | None,
    told_why: str,
    deciding: int = 0,
) -> Verdict:
    """One verdict from the records of all nodes and from what the attempt was told to do.
    `deciding`: how many ranks must have ended well; a node that was ended before it had started
    its ranks has none in its record."""
    ranks = [
        dict(rank, node=record["node"]) for record in records for rank in record.get("ranks", ())
    ]
    unhealthy = tuple(sorted(record["node"] for record in records if record.get("survivors")))
    lost = tuple(sorted(record["node"] for record in records if record["outcome"] == Outcome.LOST))
    if not lost and ranks and ended_well(finish, ranks, deciding):
        return Verdict(Outcome.SUCCEEDED, "all ranks ended well", 0, unhealthy_nodes=unhealthy)
    if told in (Outcome.CANCELLED, Outcome.PREEMPTED):
        return Verdict(told, told_why, None, lost_nodes=lost, unhealthy_nodes=unhealthy)
    if told is Outcome.FAILED and told_why.startswith("time limit"):
        return Verdict(Outcome.FAILED, told_why, None, unhealthy_nodes=unhealthy)
    needs = {r["node"]: str(r.get("reason", "")) for r in records if r.get("need")}
    if needs:
        return lacking(needs, unhealthy)
    failing = _first_failure(records, ranks)
    if failing is not None:
        kind = Outcome.OOM if failing.get("oom") else Outcome.FAILED
        if told is Outcome.HUNG:
            kind = Outcome.HUNG
        reason = told_why if kind is Outcome.HUNG else _describe(failing, len(ranks))
        return Verdict(kind, reason, _exit_code(failing), failing, lost, unhealthy)
    if told is Outcome.HUNG or any(record["outcome"] == Outcome.HUNG for record in records):
        why = told_why or next(
            (str(r["reason"]) for r in records if r["outcome"] == Outcome.HUNG), ""
        )
        return Verdict(Outcome.HUNG, why, None, unhealthy_nodes=unhealthy)
    refused = next((record for record in records if record["outcome"] == Outcome.REFUSED), None)
    if refused is not None:
        advice = {"advice": str(refused["advice"])} if refused.get("advice") else None
        words = str(refused.get("reason", ""))
        return Verdict(Outcome.REFUSED, words, None, advice, unhealthy_nodes=unhealthy)
    if lost:
        many = (
            f"{len(lost)} of {len(records)} workers lost"
            if len(records) > 1
            else "its worker was lost"
        )
        why = next(
            (str(r["reason"]) for r in records if r["node"] == lost[0] and r.get("reason")), ""
        )
        return Verdict(
            Outcome.LOST,
            f"{many}: node {', '.join(lost)}" + (f" ({why})" if why else ""),
            None,
            None,
            lost,
            unhealthy,
        )
    cancelled = next(
        (record for record in records if record["outcome"] == Outcome.CANCELLED), None
    )
    if cancelled is not None:
        # Ended from outside though nobody here asked for it: the machine's doing, not the user's.
        return Verdict(
            Outcome.LOST,
            str(cancelled.get("reason") or "its worker was told to end"),
            None,
            None,
            (),
            unhealthy,
        )
    # A worker that ended its ranks for a limit they had reached: none of them failed by itself.
    said = (
        str(r["reason"]) for r in records if r["outcome"] == Outcome.FAILED and r.get("reason")
    )
    why = told_why or next(said, "it ended without saying why")
    return Verdict(Outcome.FAILED, why, None, None, lost, unhealthy)


def lacking(needs: Mapping[str, str], unhealthy: tuple[str, ...] = ()) -> Verdict:
    """Nothing could be started for want of room: whoever failed besides, failed because of it."""
    node, words = min(needs.items())
    reason = f"not started on {node}: {words}"
    return Verdict(Outcome.LOST, reason, None, {"need": True}, (), unhealthy, needs)


def ended_well(
    finish: Mapping[str, str], ranks: Sequence[Mapping[str, Any]], deciding: int = 0
) -> bool:
    """Whether every rank that decides, and at least this many, has ended by itself with 0."""
    found = [rank for rank in ranks if decides(finish, rank)]
    return len(found) >= max(1, deciding) and all(
        rank.get("exit") == 0 and rank.get("ended_by", "itself") == "itself" for rank in found
    )


def decides(finish: Mapping[str, str], rank: Mapping[str, Any]) -> bool:
    rule = finish.get(str(rank["role"]), "all")
    return rule == "all" or (rule == "first" and rank["index"] == 0)


def follow(
    spec: JobSpec,
    verdict: Verdict,
    *,
    wish: str | None,
    failures: int,
    stale_restarts: int,
    lost_nodes: Sequence[str],
    progressed: bool | None,
    jitter: float,
    lacked: int = 0,
) -> Follow:
    """The job's next state. `progressed`: this attempt got further than any before; None when
    the job reports neither steps nor checkpoints. `jitter` in [0, 1) spreads the restarts.
    `lacked`: how many attempts in a row before this one were not started for want of room."""
    outcome, retry = verdict.outcome, spec.retry
    if outcome is Outcome.SUCCEEDED:
        return Follow(JobState.SUCCEEDED, verdict.reason, failures, 0)
    if outcome is Outcome.CANCELLED or wish == "cancel":
        return Follow(JobState.CANCELLED, verdict.reason, failures, stale_restarts)
    if outcome is Outcome.PREEMPTED or wish in ("restart", "preempt", "resize", "hold"):
        return Follow(JobState.QUEUED, verdict.reason, failures, 0)
    if verdict.needs:
        # The node's trouble, not the job's: whatever its rules say, nothing is spent or counted.
        # Each time it waits longer: it may be its own code that there is no room for.
        step = min(ROOM_BACKOFF_MS * 2 ** min(lacked, 30), ROOM_BACKOFF_CAP_MS)
        delay = int(step * (0.5 + jitter / 2))
        waits = f"{verdict.reason}; it waits until there is room, which counts as no try"
        return Follow(JobState.QUEUED, waits, failures, stale_restarts, list(lost_nodes), delay)
    rule = matching_rule(retry, verdict)
    if rule is None:
        return Follow(JobState.FAILED, verdict.reason, failures, stale_restarts)
    # A lost worker had no fair chance to get further: that is for the quarantine, below.
    fair = progressed is False and outcome is not Outcome.LOST
    stale = 0 if progressed else stale_restarts + int(fair)
    if stale >= retry.stale_restarts:
        return Follow(
            JobState.FAILED,
            f"no progress in {stale} restarts; the last: {verdict.reason}",
            failures,
            stale,
        )
    if outcome is Outcome.LOST:
        lost = [] if progressed else [*lost_nodes, *(verdict.lost_nodes or ("?",))]
        quarantine = len(lost) >= QUARANTINE_AFTER
        delay = _backoff(retry, len(lost), jitter)
        return Follow(JobState.QUEUED, verdict.reason, failures, stale, lost, delay, quarantine)
    if failures >= retry.times:
        spent = f" (tried again {failures} of {retry.times} times)" if retry.times else ""
        return Follow(JobState.FAILED, verdict.reason + spent, failures, stale)
    delay = _backoff(retry, failures + 1, jitter)
    again = f"{verdict.reason}; restart {failures + 1} of {retry.times} by rule {rule}"
    return Follow(JobState.QUEUED, again, failures + 1, stale, [], delay)


def matching_rule(retry: RetrySpec, verdict: Verdict) -> str | None:
    """The rule of `retry.on` by which it is tried again, unless one of `never` forbids it."""
    facts = _facts(verdict)
    if any(_matches(rule, facts, verdict) for rule in retry.never):
        return None
    return next((rule for rule in retry.on if _matches(rule, facts, verdict)), None)


def _facts(verdict: Verdict) -> set[str]:
    outcome = verdict.outcome
    facts = {outcome.value} if outcome in (Outcome.LOST, Outcome.OOM, Outcome.HUNG) else set()
    if outcome in (Outcome.FAILED, Outcome.OOM, Outcome.HUNG):
        facts.add("failed")
    failure = verdict.failure or {}
    if outcome is Outcome.FAILED and failure.get("signal"):
        facts.add("signal")
    if outcome is Outcome.FAILED and failure.get("exit") is not None:
        facts.add(f"exit:{failure['exit']}")
        if failure["exit"] > 128:
            facts.add("signal")
    return facts


def _matches(rule: str, facts: set[str], verdict: Verdict) -> bool:
    if not rule.startswith("log:"):
        return rule in facts
    # The worker has looked: a pattern of a user's is never matched here.
    return rule[4:] in ((verdict.failure or {}).get("matched") or [])


def _backoff(retry: RetrySpec, times: int, jitter: float) -> int:
    """Exponential, capped, between half and all of the step."""
    step = min(retry.backoff * 2 ** min(max(times - 1, 0), 30), retry.backoff_cap)
    return int(step * (0.5 + jitter / 2))


def _first_failure(
    records: Sequence[Record], ranks: Sequence[dict[str, Any]]
) -> dict[str, Any] | None:
    """The rank that failed first by itself: the cause. Ranks the worker ended are its victims."""
    failed = [
        rank
        for rank in ranks
        if rank.get("ended_by", "itself") == "itself"
        and (rank.get("exit") != 0 or rank.get("signal"))
        and rank.get("ended_ms") is not None
    ]
    named = {
        (record["node"], record["first_failure"]["rank"])
        for record in records
        if record.get("first_failure")
    }
    failed.sort(
        key=lambda rank: (
            not rank.get("oom"),
            (rank["node"], rank.get("rank")) not in named,
            rank["ended_ms"],
        )
    )
    return failed[0] if failed else None


def _exit_code(rank: Mapping[str, Any]) -> int:
    if rank.get("signal"):
        return 128 + int(rank["signal"])
    return int(rank.get("exit") or 1)


_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM",
}  # fmt: skip


_LONGEST_ERROR = 1000


def _describe(rank: Mapping[str, Any], total: int) -> str:
    who = f"rank {rank.get('rank', 0)} ({rank['role']}-{rank['index']})" if total > 1 else "it"
    if rank.get("oom"):
        peak = rank.get("peak_bytes") or 0
        words = rank.get("limit") or (f"it had {peak / 2**20:.0f} MiB" if peak else "")
        return f"{who} ran out of memory" + (f": {words}" if words else "")
    if rank.get("signal"):
        number = int(rank["signal"])
        after = f", and {rank['limit']}" if rank.get("limit") else ""
        return f"{who} was killed by {_SIGNALS.get(number, f'signal {number}')}{after}"
    error = error_of(str(rank.get("traceback") or ""))
    tail = f": {error[:_LONGEST_ERROR]}" if error else ""
    tail += f"; {rank['limit']}" if rank.get("limit") else ""
    return f"{who} exited with {rank.get('exit')}{tail}"
