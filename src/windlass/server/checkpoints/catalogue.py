"""The rows of a job's checkpoints: list them, find one by a word, mark those that go.

A row is marked first and its files go after, so that nobody is sent to one that is going; what a
crash leaves in between is found by its mark. All of it is decided under the job's row lock: a
submit that starts from a checkpoint takes the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, select, update

from windlass.core.errors import Conflict, InvalidInput, NotFound
from windlass.core.jobs import TERMINAL, JobState, KeepBest
from windlass.server.checkpoints import rules
from windlass.server.checkpoints.rules import Saved, Scores
from windlass.server.jobs import moves
from windlass.server.jobs.tables import checkpoints, jobs, starts
from windlass.server.reading import spec_of
from windlass.server.storage import catalogue as storage

Row = dict[str, Any]
_WORD = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?")


def listing(conn: Connection, job_id: str) -> list[Row]:
    """What there is, newest first; a bad one also after its files are gone."""
    rows = conn.execute(
        select(checkpoints)
        .where(
            checkpoints.c.job_id == job_id,
            checkpoints.c.removing_ms.is_(None) | checkpoints.c.bad.is_not(None),
        )
        .order_by(checkpoints.c.attempt.desc(), checkpoints.c.step.desc())
    )
    return [dict(row) for row in rows.mappings()]


def saved_of(row: Row) -> Saved:
    return Saved(
        path=row["path"],
        attempt=row["attempt"],
        step=row["step"],
        registered_ms=row["registered_ms"],
        bad=row["bad"] is not None,
        own_files=row["source"] == "files",
    )


def find(rows: Sequence[Row], name: str, word: str, best: KeepBest | None, scores: Scores) -> Row:
    """By a step (of several attempts the newest), `STEP.ATTEMPT`, `latest` or `best`. Raises
    InvalidInput, NotFound."""
    good = [row for row in rows if row["bad"] is None and row["removing_ms"] is None]
    if word == "latest":
        chosen = good
    elif word == "best":
        if best is None:
            raise InvalidInput(
                f"best: job {name} does not say by which metric",
                hint="outputs: {keep_best: {metric: val_acc, goal: max}}, or name a step",
            )
        order = rules.best_of([saved_of(row) for row in good], best, scores)
        chosen = [row for row in good if order and row["path"] == order[0].path]
    else:
        asked = _WORD.fullmatch(word)
        if asked is None:
            raise InvalidInput(f"checkpoint: a step such as 4000, latest or best (found {word!r})")
        chosen = [
            row
            for row in rows
            if row["step"] == int(asked[1]) and asked[2] in (None, str(row["attempt"]))
        ]
    if not chosen:
        steps = ", ".join(dict.fromkeys(str(row["step"]) for row in good))
        raise NotFound(
            f"job {name} has no checkpoint {word}",
            hint=f"it has those of step {steps}" if steps else "it has none",
        )
    return chosen[0]


def held(conn: Connection, job_id: str) -> dict[str, list[str]]:
    """Paths of a job's checkpoints that unfinished jobs start from: path → their names."""
    rows = conn.execute(
        select(starts.c.path, jobs.c.name.label("holder"))
        .join(jobs, jobs.c.id == starts.c.job_id)
        .where(
            starts.c.source_id == job_id,
            starts.c.path.is_not(None),
            jobs.c.state.not_in(sorted(TERMINAL)),
        )
    )
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.path, []).append(row.holder)
    return found


def mark_superfluous(conn: Connection, job_id: str, scores: Scores, now_ms: int) -> int:
    """Mark what the job's own rules do not keep; how many there are."""
    try:
        job = moves.load(conn, job_id)
    except NotFound:
        return 0
    spec = spec_of(job)
    rows = [row for row in listing(conn, job_id) if row["removing_ms"] is None]
    going = rules.superfluous(
        [saved_of(row) for row in rows],
        keep=spec.outputs.keep,
        best=spec.outputs.keep_best,
        scores=scores,
        fence=job["fence"],
        unfinished=JobState(job["state"]) not in TERMINAL,
        held=held(conn, job_id),
        now_ms=now_ms,
    )
    for each in going:
        _mark(conn, job_id, each.path, "not among those to keep", now_ms)
    return len(going)


def mark(conn: Connection, job_id: str, row: Row, why: str, now_ms: int) -> None:
    """Mark one that somebody wants to be gone. Raises Conflict where it is needed."""
    job = moves.load(conn, job_id)
    if holders := held(conn, job_id).get(row["path"]):
        raise Conflict(
            f"checkpoint {row['step']} of {job['name']} is what {', '.join(holders)} starts from",
            hint=f"it can go when {holders[0]} has ended",
        )
    if JobState(job["state"]) not in TERMINAL:
        rows = [saved_of(each) for each in listing(conn, job_id) if each["removing_ms"] is None]
        good = sorted((each for each in rows if not each.bad), key=lambda each: each.age)
        needed = {good[-1].path} if good else set()
        if row["path"] in needed | rules.resumed_from(good, job["fence"]):
            raise Conflict(
                f"job {job['name']} is {job['state']} and would go on from checkpoint "
                f"{row['step']}",
                hint=f"stop it first: windlass stop {job['name']}",
            )
        if row["source"] == "files":
            raise Conflict(
                f"job {job['name']} is {job['state']}: its script writes and removes these itself",
                hint=f"stop it first: windlass stop {job['name']}",
            )
    _mark(conn, job_id, row["path"], why, now_ms)


def mark_all(conn: Connection, job_id: str, now_ms: int) -> None:
    """Its job is about to go: nobody may start from any of them any more. Without a reason:
    their files go with the job's folder, once those who need one have it."""
    moves.load(conn, job_id)
    conn.execute(
        update(checkpoints)
        .where(checkpoints.c.job_id == job_id, checkpoints.c.removing_ms.is_(None))
        .values(removing_ms=now_ms)
    )


def going(conn: Connection, job_id: str | None, limit: int = 100) -> list[Row]:
    """Those that are to be removed by themselves, whose files may still be there."""
    query = select(checkpoints).where(checkpoints.c.removing_ms.is_not(None))
    query = query.where(checkpoints.c.removing_why.is_not(None))
    if job_id is not None:
        query = query.where(checkpoints.c.job_id == job_id)
    found = conn.execute(query.order_by(checkpoints.c.removing_ms).limit(limit))
    return [dict(row) for row in found.mappings()]


def stored_as(job_id: str, row: Row) -> str:
    """Whose files they are, where they lie in the storage."""
    return storage.checkpoint_of(job_id, row["attempt"], row["step"], row["digest"])


def stored_files(conn: Connection, job_id: str, row: Row) -> list[dict[str, Any]]:
    """A checkpoint's files in the storage, as its manifest would name them; [] when it is not
    there."""
    found = storage.found(conn, stored_as(job_id, row))
    if sum(each.size for each in found.values()) != row["bytes"]:
        return []  # not all of it
    return [
        {"path": path, "bytes": each.size, "digest": each.digest}
        for path, each in sorted(found.items())
    ]


def gone(conn: Connection, rows: Sequence[Row], now_ms: int) -> None:
    """Their files are removed from this disk, those in the storage go next. Of a bad one the row
    stays: it says what was wrong."""
    for row in rows:
        storage.mark(conn, stored_as(row["job_id"], row), now_ms)
        this = (checkpoints.c.job_id == row["job_id"]) & (checkpoints.c.path == row["path"])
        if row["bad"] is None:
            conn.execute(delete(checkpoints).where(this))
        else:
            conn.execute(update(checkpoints).where(this).values(removing_why=None))


def _mark(conn: Connection, job_id: str, path: str, why: str, now_ms: int) -> None:
    conn.execute(
        update(checkpoints)
        .where(
            checkpoints.c.job_id == job_id,
            checkpoints.c.path == path,
            checkpoints.c.removing_ms.is_(None),
        )
        .values(removing_ms=now_ms, removing_why=why)
    )
