"""One sentence on why a job is as it is, the evidence, the next step. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from windlass.core.jobs import JobState, Outcome
from windlass.core.strict import Strict
from windlass.scheduler.events import Promise, Reason
from windlass.server.clock import stamp
from windlass.server.jobs import missing
from windlass.server.reading import or_else

Row = Mapping[str, Any]
WORTH_TELLING = frozenset({"hung", "rank-lost", "rank-back"})
"""Kinds of events that say why a job is as it is."""
SILENT_MS = 60_000
"""A worker that has not been heard for this long is worth a word."""


class Why(Strict):
    job: str
    name: str
    state: JobState
    sentence: str
    code: str = ""
    """The same for machines: why it waits, as the queue's line has it, or `backing-off`; of one
    that has ended, its outcome."""
    missing: dict[str, int] = {}
    """What a waiting one lacks, as the queue's line has it."""
    evidence: tuple[str, ...] = ()
    next: str = ""


def why(
    job: Row,
    attempts: Sequence[Row],
    workers: Sequence[Row],
    told: Sequence[Row],
    waiting: Reason | None,
    now_ms: int,
    said: Mapping[str, str] | None = None,
    paused: Sequence[Row] = (),
) -> Why:
    """`told`: events of the newest attempt that its workers told (`WORTH_TELLING`), newest
    last; `said`: what the engine says of workers that have not come, by node; `paused`: nodes
    that have run out of something, and take nothing until there is room again."""
    hung = [event for event in told if event["kind"] == "hung"]
    losses = [event for event in told if event["kind"] in ("rank-lost", "rank-back")]
    state = JobState(job["state"])
    last = attempts[-1] if attempts else None
    match state:
        case JobState.QUEUED:
            answer = _queued(job, last, waiting, now_ms)
            answer[1].extend(f"node {row['name']} is paused: {row['reason']}" for row in paused)
        case JobState.HELD:
            answer = job["reason"] or "held", [], f"windlass release {job['name']}"
        case JobState.STARTING:
            answer = _starting(job, workers, said or {})
        case JobState.RUNNING:
            answer = _running(job, workers, hung, losses, now_ms)
        case JobState.STOPPING:
            left = _since(last["ending_ms"] if last else None, now_ms)
            answer = (
                f"stopping since {left}: {job['reason']}",
                [],
                f"windlass stop --now {job['name']}",
            )
        case JobState.SUCCEEDED:
            answer = "it succeeded", [*_story(attempts), *_lines(losses)], ""
        case JobState.CANCELLED:
            answer = (
                f"stopped: {job['reason'] or 'as wished'}",
                _story(attempts),
                f"windlass rerun {job['name']}",
            )
        case JobState.FAILED:
            answer = _failed(job, attempts)
            answer[1].extend(_lines(losses))
    sentence, evidence, following = answer
    lacks = waiting if state is JobState.QUEUED else None
    return Why(
        job=job["id"], name=job["name"], state=state, sentence=sentence,
        code=_code(job, state, waiting, now_ms), missing=dict(lacks.missing) if lacks else {},
        evidence=tuple(evidence), next=following,
    )  # fmt: skip


def _code(job: Row, state: JobState, waiting: Reason | None, now_ms: int) -> str:
    if state is not JobState.QUEUED:
        return job["outcome"] or ""
    if job["not_before_ms"] > now_ms:
        return "backing-off"
    return waiting.code if waiting else ""


Told = tuple[str, list[str], str]
_MOST_LINES = 10


def _queued(job: Row, last: Row | None, waiting: Reason | None, now_ms: int) -> Told:
    evidence = [] if last is None else [f"attempt {last['number']} ended: {last['reason']}"]
    if job["not_before_ms"] > now_ms:
        seconds = (job["not_before_ms"] - now_ms) / 1000
        return (
            f"backing off: it is tried again in {seconds:.0f} s",
            evidence,
            f"windlass release {job['name']} starts it now",
        )
    if waiting is None:
        return "waiting: it is about to be looked at", evidence, f"windlass logs -f {job['name']}"
    sentence = f"waiting: {waiting.sentence}"
    if waiting.code in _KNOWS_WHEN:
        sentence += f"; {_starts(waiting.expected_start_ms, now_ms)}"
    return sentence, evidence, _NEXT.get(waiting.code, _NEXT[""]).format(**job)


_KNOWS_WHEN = {"waiting-nodes", "waiting-nodes-fragmented", "waiting-reservation"}
"""Reasons that end when those who run do."""

_NEXT = {
    "": "windlass queue show {queue} draws the line and what holds the resources",
    "paused": "windlass queue resume {queue}",
    "waiting-quota": "windlass quota show {project}",
    "budget-spent": "windlass usage budget ls",
    "exceeds-max": "windlass rerun {name} with less, or windlass quota show {project}",
}


def waits(
    job: Row, waiting: Reason | None, promise: Promise | None, now_ms: int
) -> tuple[str, int | None]:
    """Of a job that is queued: why, in a few words, and when it should start. None: unknown."""
    if JobState(job["state"]) is not JobState.QUEUED:
        return "", None
    if job["not_before_ms"] > now_ms:
        return f"backing off after: {job['reason']}", job["not_before_ms"]
    if waiting is None:
        return "", None
    starts = waiting.expected_start_ms if promise is None else promise.start_ms
    return waiting.sentence, expected(starts, now_ms) if waiting.code in _KNOWS_WHEN else None


def expected(at_ms: int | None, now_ms: int) -> int | None:
    """An expected start that has passed was wrong: whoever was to end runs on, nobody knows how
    long."""
    return at_ms if at_ms is not None and at_ms > now_ms + 1_000 else None


def _starts(at_ms: int | None, now_ms: int) -> str:
    """In the words of a person; the zone is said, as who reads it may be elsewhere."""
    if at_ms is None:
        return (
            "when it starts is unknown: what it waits for has no time limit, and nothing of its "
            "name has ended well before"
        )
    left = at_ms - now_ms
    if expected(at_ms, now_ms) is None:
        return "when it starts is unknown: what it waits for runs longer than was thought"
    at, now = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (at_ms, now_ms))
    day = "" if at.date() == now.date() else f"{at:%Y-%m-%d} "
    minutes = -(-left // 60_000)
    if left < 120_000:
        span = f"{-(-left // 1000)} s"
    elif minutes < 120:
        span = f"{minutes} min"
    else:
        span = f"{round(minutes / 60)} h" if minutes < 2880 else f"{round(minutes / 1440)} days"
    return f"it should start about {day}{at:%H:%M} UTC, in {span}"


def _starting(job: Row, workers: Sequence[Row], said: Mapping[str, str]) -> Told:
    absent = [worker["node"] for worker in workers if not worker["registered_ms"]]
    if absent:
        there = len(workers) - len(absent)
        fetches = ": the code is being fetched" if _fetches(job) else ""
        first = next((f": {said[node]}" for node in absent if node in said), fetches)
        return (
            f"starting: {there} of {len(workers)} workers are there, "
            f"waiting for {', '.join(absent)}{first}",
            [f"{node}: {words}" for node, words in said.items()][:_MOST_LINES],
            "windlass events " + job["name"],
        )  # fmt: skip
    return "starting: the gang is whole, its ranks are being started", [], ""


def _fetches(job: Row) -> bool:
    return bool(_code_of(job).get("git"))


def _code_of(job: Row) -> Mapping[str, Any]:
    spec = job.get("spec")  # garbled, perhaps: the rest is told all the same
    code = spec.get("code") if isinstance(spec, Mapping) else None
    return code if isinstance(code, Mapping) else {}


def _running(
    job: Row, workers: Sequence[Row], hung: Sequence[Row], losses: Sequence[Row], now_ms: int
) -> Told:
    silent = [
        f"node {worker['node']} was last heard {_since(worker['beat_ms'], now_ms)} ago"
        for worker in workers
        if worker["beat_ms"] and now_ms - worker["beat_ms"] > SILENT_MS
    ]
    if hung:
        event = hung[-1]
        stacks = [
            f"rank {stack.get('rank')}: {_where(str(stack.get('text', '')))}"
            for stack in event["data"].get("stacks", ())
        ]
        return (
            f"slow: {event['reason']}", [*stacks, *silent],
            f"windlass debug stack {job['name']}",
        )  # fmt: skip
    if silent:
        return "running, but a worker is silent", silent, "windlass doctor"
    step = f", at step {job['step']}" if job["step"] is not None else ""
    away = _away(losses)
    without = f", without {', '.join(away)}" if away else ""
    return f"running{step}{without}", _lines(losses), f"windlass logs -f {job['name']}"


def _away(losses: Sequence[Row]) -> list[str]:
    """Ranks and nodes that were lost and are not back."""
    last: dict[str, bool] = {}
    for event in losses:
        data = event["data"]
        name = (
            f"{data['role']}-{data['index']}-{data.get('local_rank', 0)}"
            if "role" in data
            else f"node {data.get('node')}"
        )
        last[name] = event["kind"] == "rank-lost"
    return [name for name, lost in last.items() if lost]


def _lines(losses: Sequence[Row]) -> list[str]:
    """The newest of them."""
    return [str(event["reason"]) for event in losses[-_MOST_LINES:]]


def _failed(job: Row, attempts: Sequence[Row]) -> Told:
    last = attempts[-1] if attempts else None
    evidence: list[str] = []
    following = f"windlass logs {job['name']}"
    failure = (or_else(last["failure"], None) if last else None) or {}
    if failure and "advice" not in failure:
        who = f"{failure.get('role')}-{failure.get('index')}"
        how = (
            f"signal {failure['signal']}"
            if failure.get("signal")
            else f"exit code {failure.get('exit')}"
        )
        evidence.append(
            f"first to fail: rank {failure.get('rank')} ({who}) "
            f"on node {failure.get('node')}, {how}"
        )
        if failure.get("ended_ms"):
            evidence.append(f"at {stamp(failure['ended_ms'])}")
        if failure.get("traceback"):
            evidence.append(str(failure["traceback"]).rstrip())
        following = f"windlass logs --rank {failure.get('rank', 0)} {job['name']}"
        trace = str(failure.get("traceback") or "")
        if not_sent := missing.sentence(trace, _code_of(job)):
            evidence.append(not_sent)
    if last and last["outcome"] == Outcome.OOM:
        following = f"windlass rerun {job['name']} --memory with more"
    if last and last["outcome"] == Outcome.REFUSED:
        following = str(
            failure.get("advice")
            or f"windlass show {job['name']}: check the command, the code and the environment"
        )
    if _fetches(job):
        code = _code_of(job)
        at = code.get("commit") or code.get("ref") or "its default branch"
        evidence.append(f"code: {code['git']} at {at[:12] if code.get('commit') else at}")
    evidence += _story(attempts[:-1])
    return job["reason"] or "it failed", evidence, following


def _story(attempts: Sequence[Row]) -> list[str]:
    return [
        f"attempt {attempt['number']}: {attempt['outcome']}: {attempt['reason']}"
        for attempt in attempts
        if attempt["outcome"] not in (None, Outcome.SUCCEEDED)
    ]


def _since(then_ms: int | None, now_ms: int) -> str:
    return f"{max(0, now_ms - (then_ms or now_ms)) / 1000:.0f} s"


def _where(stack: str) -> str:
    """The innermost frame of the main thread: both py-spy and faulthandler write it first."""
    lines = [line.strip() for line in stack.splitlines() if line.strip()]
    heads = [i for i, line in enumerate(lines) if line.startswith(("Thread ", "Current thread "))]
    main = [i for i in heads if "MainThread" in lines[i]] or heads[-1:]
    if not main:
        return lines[-1] if lines else ""
    return lines[min(main[0] + 1, len(lines) - 1)]
