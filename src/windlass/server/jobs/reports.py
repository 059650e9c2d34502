"""What workers and user code report: evidence, kept under the attempt's fence.

Nothing here moves a job. A report that is a repeat, late or out of order changes nothing; one
of an attempt that is over is refused (`Fenced`), and its worker then ends what it runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, delete, func, insert, select, update

from windlass.core.access import Principal
from windlass.core.errors import Fenced, InvalidInput, Unreadable
from windlass.core.explain import explain
from windlass.core.reports import (
    MOST_EVIDENCE,
    Beat,
    CheckpointNote,
    Ended,
    Fetched,
    Note,
    OrderAnswer,
    RankEnd,
    RankWords,
    Register,
    Report,
)
from windlass.server.checkpoints import files, starting
from windlass.server.events.tables import events
from windlass.server.jobs import gangs, losses, moves, orders
from windlass.server.jobs.tables import attempts, checkpoints, jobs, workers
from windlass.server.reading import spec_of
from windlass.server.secrets import service as secrets
from windlass.server.usage import used

Row = dict[str, Any]
_NOTES = frozenset({"hung", "dropped", "bad-checkpoint", "rank-lost", "rank-back", "note"})
_OF_CHECKPOINTS = frozenset({"checkpoint", "checkpoint-verified", "checkpoint-gone"})
_MAX_STACK = 20_000
MOST_NOTES = 1000
"""Of one attempt in the job's story; what a note leads to happens after that too."""


def register(conn: Connection, who: Principal, report: Register, now_ms: int) -> None:
    """A worker is there, with its addresses."""
    _, attempt = _mine(conn, who, report)
    expected = {
        (placed["role"], placed["index"])
        for placed in attempt["placement"]
        if placed["node"] == report.node
    }
    given = {(member.role, member.index) for member in report.members}
    if given != expected:
        raise InvalidInput(
            f"members: node {report.node} was given {sorted(expected)}, "
            f"it registers {sorted(given)}"
        )
    orders.report(
        conn, attempt["id"], report.node, report.seq,
        {
            "host": report.host, "pid": report.pid, "boot_id": report.boot_id,
            "members": [member.model_dump(mode="json") for member in report.members],
            "isolation": dict(report.isolation), "registered_ms": now_ms, "beat_ms": now_ms,
        },
    )  # fmt: skip
    for offered in report.checkpoints:
        # Complete on disk, though its attempt may have died before it was registered.
        with suppress(ValidationError, InvalidInput):  # a damaged one has no digest
            note = CheckpointNote.model_validate(offered)
            if note.attempt < attempt["number"]:
                keep_checkpoint(conn, who, note, now_ms)


def fetched(conn: Connection, who: Principal, report: Fetched, now_ms: int) -> str:
    """A worker has the job's code out of its repository. The commit that is told first is the
    job's: for all nodes, for every later attempt, for every rerun."""
    mine, _ = _mine(conn, who, report)
    job = moves.load(conn, mine["id"])
    code = job["spec"].get("code") or {}
    if not code.get("git"):
        raise InvalidInput("commit: the code of this job is not in a repository")
    if code.get("commit"):
        return str(code["commit"])
    data = {"git": code["git"], "ref": code.get("ref"), "commit": report.commit}
    spec = {**job["spec"], "code": {**code, "commit": report.commit}}
    ref = f" ({code['ref']})" if code.get("ref") else ""
    words = f"code: commit {report.commit[:12]}{ref} of {code['git']}"
    moves.note(conn, job, "code", reason=words, now_ms=now_ms, data=data, spec=spec)
    return report.commit


def rendezvous(
    conn: Connection, who: Principal, node: str, now_ms: int
) -> tuple[Row, Row, Row] | None:
    """(job, attempt, this node's answer) once the gang is whole; None before."""
    job, attempt = orders.current(conn, who.attempt_id or "")
    rows = [
        dict(row)
        for row in conn.execute(
            select(workers).where(workers.c.attempt_id == attempt["id"])
        ).mappings()
    ]
    if node not in {row["node"] for row in rows}:
        raise InvalidInput(f"node: this attempt has no worker on {node!r}")
    if not all(row["registered_ms"] for row in rows):
        return None
    spec = spec_of(job)
    answer = gangs.rendezvous(job, spec, attempt, rows)[node]
    answer["resume_from"] = newest_checkpoint(conn, job["id"]) if spec.retry.resume else None
    answer["start_from"] = starting.for_worker(conn, job["id"])
    names = spec.environment.secrets
    answer["sealed"] = secrets.sealed_for(conn, job, names)
    there = {row["name"] for row in answer["sealed"]}
    answer["secrets_gone"] = [name for name in names if name not in there]
    limit = spec.limits.time
    # Its limit counts from the start of its ranks, which is still to come.
    answer["deadline_ms"] = None if limit is None else now_ms + limit
    return job, attempt, answer


def started(
    conn: Connection, who: Principal, report: Report, ranks: Sequence[RankWords], now_ms: int
) -> None:
    _, attempt = _mine(conn, who, report)
    told = [rank.as_told() for rank in ranks]
    columns = {"started_ms": now_ms, "beat_ms": now_ms, "ranks": told}
    orders.report(conn, attempt["id"], report.node, report.seq, columns)


def beat(conn: Connection, who: Principal, report: Beat, now_ms: int) -> bool:
    """Keep a beat; True when it says something that reconcile should look at."""
    job, attempt = _mine(conn, who, report)
    columns: Row = {"beat_ms": now_ms}
    if report.ranks:
        columns["ranks"] = [rank.as_told() for rank in report.ranks]
        columns |= used.by_beat(columns["ranks"], now_ms)
    ended = {note.rank: _end_in(note) for note in report.notes if _has_ended(note)}
    if ended:
        known = conn.execute(
            select(workers.c.ended_ranks).where(
                workers.c.attempt_id == attempt["id"], workers.c.node == report.node
            )
        ).scalar()
        before = [each for each in known or () if each.get("rank") not in ended]
        columns["ended_ranks"] = [*before, *ended.values()]
    if any(note.kind == "hung" and note.whole_node for note in report.notes):
        columns["hung_ms"] = now_ms
    if not orders.report(conn, attempt["id"], report.node, report.seq, columns):
        return False
    room = _room_for_notes(conn, job["id"], attempt["number"]) if report.notes else 0
    for note in report.notes:
        if note.kind in _OF_CHECKPOINTS:
            _keep_word_of_checkpoint(conn, who, job["id"], note, now_ms)
        elif note.kind in _NOTES:
            _keep_note(conn, job["id"], report.node, note, now_ms, room)
            room -= 1
    return bool(report.notes)


def ended(conn: Connection, who: Principal, report: Ended, now_ms: int) -> None:
    """A node's part of the attempt is over, with its record."""
    job, attempt = orders.current(conn, who.attempt_id or "")
    record = report.record
    if record.attempt_id != attempt["id"] or report.attempt != attempt["number"]:
        raise Fenced("this record is of another attempt")
    whole = record.model_dump(mode="json", exclude={"ranks"})
    whole["ranks"] = [rank.as_told() for rank in record.ranks]
    keep_record(conn, job, attempt, whole, now_ms)


def keep_record(
    conn: Connection, job: Row, attempt: Row, record: Mapping[str, Any], now_ms: int
) -> None:
    """A node's exit record. Where the others go on without it, that is told."""
    node = str(record["node"])
    if orders.keep_record(conn, attempt["id"], node, record):
        try:
            words = losses.node_lost(spec_of(job), attempt, node, record)
        except Unreadable:
            return  # reconcile sets the job aside; that this part of it has ended stands
        if words is not None:
            moves.note(
                conn, moves.load(conn, job["id"]), "rank-lost", reason=words, now_ms=now_ms,
                data={"node": node, "given_up": True},
            )  # fmt: skip


def order_answer(
    conn: Connection, who: Principal, order: int, report: OrderAnswer, now_ms: int
) -> None:
    _, attempt = _mine(conn, who, report)
    result = report.result.model_dump(mode="json")
    orders.answer(conn, attempt["id"], order, report.node, report.ok, result, now_ms)


def keep_checkpoint(conn: Connection, who: Principal, note: CheckpointNote, now_ms: int) -> bool:
    """Register a checkpoint: from here on a restart resumes from it. False when it was known.
    Raises InvalidInput for one that cannot be this job's."""
    job, attempt = orders.current(conn, who.attempt_id or "")
    if note.attempt > attempt["number"]:
        raise Fenced(f"attempt {note.attempt} has not begun")
    if note.mirrored:
        return False  # its worker registers it once all of it is here (`server/mirror`)
    files.demand_place(job["id"], note)
    this = (checkpoints.c.job_id == job["id"]) & (checkpoints.c.path == note.path)
    columns = (checkpoints.c.digest, checkpoints.c.source, checkpoints.c.attempt)
    known = conn.execute(select(*columns).where(this)).first()
    own_files = note.source == "files"
    if known is None and not own_files and _is_known(conn, job["id"], note):
        return False
    if known is not None and (
        not own_files or known.digest == note.digest or known.attempt > note.attempt
    ):
        return False
    values = {
        "attempt": note.attempt, "step": note.step, "digest": note.digest, "bytes": note.bytes,
        "registered_ms": now_ms, "verified_ms": now_ms, "source": note.source,
        "ranks": note.ranks,
    }  # fmt: skip
    if known is None:
        conn.execute(insert(checkpoints).values(job_id=job["id"], path=note.path, **values))
    else:  # a script wrote another one to the same place
        again = {**values, "bad": None, "removing_ms": None, "removing_why": None}
        conn.execute(update(checkpoints).where(this).values(**again))
    moves.note(
        conn, moves.load(conn, job["id"]), "checkpoint", reason=f"checkpoint at step {note.step}",
        now_ms=now_ms, data={"step": note.step, "path": note.path, "bytes": note.bytes},
    )  # fmt: skip
    advance(conn, attempt["id"], note.step)
    return True


def _is_known(conn: Connection, job_id: str, note: CheckpointNote) -> bool:
    """Whether our writer's checkpoint of this step and attempt is there by another path: told
    twice, one would push others out of those that are kept."""
    same = (checkpoints.c.attempt == note.attempt) & (checkpoints.c.step == note.step)
    mine = (checkpoints.c.job_id == job_id) & (checkpoints.c.source == note.source)
    return conn.execute(select(checkpoints.c.path).where(mine, same)).first() is not None


def newest_checkpoint(conn: Connection, job_id: str) -> Row | None:
    row = (
        conn.execute(
            select(
                checkpoints.c.path,
                checkpoints.c.step,
                checkpoints.c.attempt,
                checkpoints.c.digest,
            )
            .where(
                checkpoints.c.job_id == job_id,
                checkpoints.c.bad.is_(None),
                checkpoints.c.removing_ms.is_(None),
            )
            .order_by(checkpoints.c.attempt.desc(), checkpoints.c.step.desc())
            .limit(1)
        )
        .mappings()
        .first()
    )
    return None if row is None else dict(row)


def advance(conn: Connection, attempt_id: str, step: int) -> None:
    """The attempt has reached this step."""
    conn.execute(
        update(attempts)
        .where(
            attempts.c.id == attempt_id,
            (attempts.c.step.is_(None)) | (attempts.c.step < step),
        )
        .values(step=step)
    )


def progress(
    conn: Connection, who: Principal, *, step: int | None, done: int | None, total: int | None
) -> None:
    """What the newest spool lines say about how far it is. No event: it changes all the time."""
    if step is not None:
        advance(conn, who.attempt_id or "", step)
    if done is not None and total:
        conn.execute(update(jobs).where(jobs.c.id == who.job_id).values(done=done, total=total))


def _mine(conn: Connection, who: Principal, report: Report) -> tuple[Row, Row]:
    job, attempt = orders.current(conn, who.attempt_id or "")
    if report.attempt != attempt["number"]:
        raise Fenced(
            f"this token is of attempt {attempt['number']}, the report of {report.attempt}"
        )
    return job, attempt


def _has_ended(note: Note) -> bool:
    """That a rank will not run again: it ended well, or was given up."""
    return note.kind == "rank-ended" or (note.kind == "rank-lost" and note.given_up)


def _end_in(note: Note) -> Row:
    """Raises InvalidInput where it does not say which rank ended."""
    told = note.as_told()
    try:
        RankEnd.model_validate(told)
    except ValidationError as err:
        raise explain(err.errors(include_url=False), RankEnd) from None
    return told


def _keep_word_of_checkpoint(
    conn: Connection, who: Principal, job_id: str, note: Note, now_ms: int
) -> None:
    """A script's own files were found finished, or are gone; one was verified once more."""
    this = (checkpoints.c.job_id == job_id) & (checkpoints.c.path == (note.path or ""))
    if note.kind == "checkpoint":
        # User code may have had a part in it.
        with suppress(ValidationError, InvalidInput):
            keep_checkpoint(conn, who, CheckpointNote.model_validate(note.as_told()), now_ms)
    elif note.kind == "checkpoint-verified":
        conn.execute(update(checkpoints).where(this).values(verified_ms=now_ms))
    else:
        conn.execute(delete(checkpoints).where(this, checkpoints.c.source == "files"))


def _room_for_notes(conn: Connection, job_id: str, attempt: int) -> int:
    mine = (events.c.job_id == job_id) & (events.c.attempt == attempt)
    kept = select(func.count()).select_from(events).where(mine, events.c.kind.in_(_NOTES))
    return MOST_NOTES - int(conn.execute(kept).scalar_one())


def _keep_note(
    conn: Connection, job_id: str, node: str, note: Note, now_ms: int, room: int
) -> None:
    data = {**_story(note), "node": node}
    words = _sentence(note)
    if room == 1:
        words += f" ({MOST_NOTES} notes of this attempt are kept; this is the last)"
    if room > 0:
        moves.note(
            conn, moves.load(conn, job_id), note.kind, reason=words, now_ms=now_ms, data=data
        )
    if note.kind == "bad-checkpoint" and note.path:
        conn.execute(
            update(checkpoints)
            .where(checkpoints.c.job_id == job_id, checkpoints.c.path == note.path)
            .values(bad=(note.reason or "")[:1000])
        )


def _sentence(note: Note) -> str:
    if note.kind == "hung":
        seconds = note.idle_ms / 1000
        long = f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"
        return f"rank {note.rank} made no progress for {long}"
    if note.kind == "bad-checkpoint":
        return f"checkpoint {note.path} left aside: {note.reason}"
    if note.kind == "dropped":
        return f"rank {note.rank}: {note.bytes} bytes of output dropped"
    return (note.text or note.reason or note.kind)[:_MAX_STACK]


def _story(note: Note) -> Row:
    """What is kept of a note: long texts are cut, the more the longer all of it is."""
    told = note.as_told()
    told.pop("kind", None)
    for most in (_MAX_STACK, _MAX_STACK // 10, 100):
        kept = {name: _bounded(value, most) for name, value in told.items()}
        if len(json.dumps(kept)) <= MOST_EVIDENCE:
            return kept
    return {}


def _bounded(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return value[:most]
    if isinstance(value, Sequence):
        return [_bounded(each, most) for each in value[:64]]
    if isinstance(value, Mapping):
        return {str(name)[:most]: _bounded(each, most) for name, each in [*value.items()][:64]}
    return value
