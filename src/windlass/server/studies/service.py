"""What users may ask of studies. Every function runs inside the caller's transaction.

The API writes a study and wishes about it; only `tuning.py` moves studies and makes trials.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from windlass.core.access import Principal, Right
from windlass.core.errors import (
    Ambiguous,
    BundleMissing,
    Conflict,
    Forbidden,
    InvalidInput,
    KeyReused,
    NotFound,
)
from windlass.core.queues import DEFAULT
from windlass.core.studies import LIVE_STUDIES, StudySpec, StudyState, TrialState
from windlass.server import feed
from windlass.server.access.tables import projects, users
from windlass.server.access.tenant import of_tenant
from windlass.server.bundles.tables import bundles
from windlass.server.jobs import naming
from windlass.server.queues import service as queues
from windlass.server.reading import as_model
from windlass.server.secrets import service as secrets
from windlass.server.studies import reports
from windlass.server.studies.tables import studies, trials
from windlass.tune.draw import fits
from windlass.tune.history import Past

Row = dict[str, Any]
WARM = 1000
"""At most so many results are taken over from earlier studies."""
_choose = random.Random()


def create(
    conn: Connection,
    who: Principal,
    spec: StudySpec,
    framework: str,
    *,
    key: str | None,
    digest: str,
    now_ms: int,
) -> tuple[Row, bool]:
    """A new study, and True; or the one that this key has made before. Raises Conflict for a
    name that is taken, KeyReused, InvalidInput, BundleMissing."""
    if key is not None and (known := _of_key(conn, who, key)) is not None:
        if known["digest"] != digest:
            raise KeyReused(
                f"the idempotency key {key!r} was used for another request "
                f"(study {known['name']})",
                hint="use a new key for a new request",
            )
        return known, False
    job = spec.job
    code, environment = job.get("code") or {}, job.get("environment") or {}
    secrets.require(conn, who, environment.get("secrets") or ())
    queues.require(conn, (job.get("queue") or {}).get("name") or DEFAULT)
    _require_bundle(conn, who, code.get("bundle"))
    name = _free_name(conn, who, spec.name)
    study_id = uuid4().hex
    spec = spec.model_copy(update={"name": name, "project": who.project_name})
    row: Row = {
        "id": study_id, "project_id": who.project_id, "user_id": who.user_id, "name": name,
        "state": StudyState.RUNNING.value, "reason": "", "wish": None, "wish_reason": None,
        "ending": None, "spec": spec.model_dump(mode="json"), "framework": framework,
        "bundle": code.get("bundle"), "target": spec.trials, "made": 0,
        "warm": _warm(conn, who, spec), "revision": 1, "key": key, "digest": digest,
        "created_ms": now_ms,
        "deadline_ms": None if spec.max_time is None else now_ms + spec.max_time,
        "ended_ms": None,
    }  # fmt: skip
    conn.execute(insert(studies).values(**row))
    tell(conn, row, f"study {name} made by {who.user_name}", now_ms)
    return find(conn, who, study_id), True


def find(conn: Connection, who: Principal, ref: str) -> Row:
    """By name, by id, or by a unique prefix of an id, in the caller's project."""
    mine = _joined().where(of_tenant(studies.c.project_id, who))
    rows = conn.execute(mine.where((studies.c.id == ref) | (studies.c.name == ref)).limit(2))
    found = [dict(row) for row in rows.mappings()]
    if not found and 4 <= len(ref) < 32 and all(char in "0123456789abcdef" for char in ref):
        rows = conn.execute(mine.where(studies.c.id >= ref, studies.c.id < ref + "g").limit(3))
        found = [dict(row) for row in rows.mappings()]
        if len(found) > 1:
            raise Ambiguous(f"{ref!r} names several studies", hint="give more of the id")
    if not found:
        raise NotFound(f"no study {ref!r}", hint="`windlass study ls` lists those there are")
    return found[0]


def find_to_change(conn: Connection, who: Principal, ref: str) -> Row:
    """As `find`, locked; Forbidden for another user's, unless the caller may change anybody's."""
    found = find(conn, who, ref)
    if found["user_id"] != who.user_id and not who.may(Right.JOB_WRITE_ANY):
        raise Forbidden(
            f"study {found['name']} is {found['user']}'s: a member changes its own only",
            hint="ask its owner, or a maintainer of the project",
            right=str(Right.JOB_WRITE_ANY),
        )
    locked = load(conn, found["id"])
    if locked is None:
        raise NotFound(f"no study {ref!r}")
    return {**found, **locked}


def load(conn: Connection, study_id: str) -> Row | None:
    """A study's row, locked until the transaction ends."""
    query = select(studies).where(studies.c.id == study_id).with_for_update()
    row = conn.execute(query).mappings().first()
    return None if row is None else dict(row)


def listing(
    conn: Connection, who: Principal, *, before: int | None, limit: int
) -> tuple[list[Row], int | None]:
    """Newest first; the second value is the cursor of the next page."""
    query = _joined().where(of_tenant(studies.c.project_id, who))
    if before is not None:
        query = query.where(studies.c.number < before)
    found = conn.execute(query.order_by(studies.c.number.desc()).limit(limit + 1))
    rows = [dict(row) for row in found.mappings()]
    return rows[:limit], (rows[limit - 1]["number"] if len(rows) > limit else None)


def stop(conn: Connection, who: Principal, ref: str, reason: str, now_ms: int) -> Row:
    """Ask for the end: no new trials, and those that run are stopped."""
    row = find_to_change(conn, who, ref)
    if StudyState(row["state"]) not in LIVE_STUDIES:
        return row  # it is over already: that is what was wanted
    if row["wish"] == "delete":
        return row
    return _wish(conn, row, "stop", reason, now_ms)


def remove(conn: Connection, who: Principal, ref: str, now_ms: int) -> Row:
    """Take a study away; one that runs is stopped first. Its jobs stay, as any jobs."""
    row = find_to_change(conn, who, ref)
    if StudyState(row["state"]) in LIVE_STUDIES:
        return _wish(conn, row, "delete", f"removed by {who.user_name}", now_ms)
    erase(conn, row["id"])
    tell(conn, row, f"study {row['name']} removed by {who.user_name}", now_ms)
    return row


def add_trials(conn: Connection, who: Principal, ref: str, more: int, now_ms: int) -> Row:
    """So many more are to be tried; one that is over goes on."""
    row = find_to_change(conn, who, ref)
    if row["wish"] in ("stop", "delete") or row["state"] == StudyState.STOPPING:
        raise Conflict(f"study {row['name']} is being stopped", hint="add trials once it is")
    target = row["target"] + more
    if target > 100_000:
        raise InvalidInput(f"trials: a study has at most 100000 (this one has {row['target']})")
    live = StudyState(row["state"]) in LIVE_STUDIES
    columns: Row = {"target": target, "revision": row["revision"] + 1}
    if not live:
        columns |= {"wish": "go-on", "wish_reason": f"{more} trials added by {who.user_name}"}
    conn.execute(update(studies).where(studies.c.id == row["id"]).values(**columns))
    tell(conn, row, f"study {row['name']}: {more} trials added by {who.user_name}", now_ms)
    return {**row, **columns}


def erase(conn: Connection, study_id: str) -> None:
    conn.execute(delete(trials).where(trials.c.study_id == study_id))
    conn.execute(delete(studies).where(studies.c.id == study_id))


def trials_of(conn: Connection, study_id: str, after: int = -1) -> list[Row]:
    rows = conn.execute(
        select(trials)
        .where(trials.c.study_id == study_id, trials.c.number > after)
        .order_by(trials.c.number)
    )
    return [dict(row) for row in rows.mappings()]


def counts(conn: Connection, study_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """By study, how many of its trials are in each state."""
    found: dict[str, dict[str, int]] = {study_id: {} for study_id in study_ids}
    rows = conn.execute(
        select(trials.c.study_id, trials.c.state, func.count())
        .where(trials.c.study_id.in_(list(study_ids)))
        .group_by(trials.c.study_id, trials.c.state)
    )
    for study_id, state, count in rows:
        found[study_id][state] = int(count)
    return found


def results(conn: Connection, study_ids: Sequence[str]) -> dict[str, list[Past]]:
    """By study, its trials as far as their values go: no parameters, no reports."""
    found: dict[str, list[Past]] = {study_id: [] for study_id in study_ids}
    rows = conn.execute(
        select(
            trials.c.study_id, trials.c.number, trials.c.state, trials.c["values"],
            trials.c.excess,
        )
        .where(trials.c.study_id.in_(list(study_ids)))
        .order_by(trials.c.study_id, trials.c.number)
    )  # fmt: skip
    for study_id, number, state, values, excess in rows:
        found[study_id].append(
            Past(
                number=number, params={}, state=TrialState(state), values=tuple(values),
                excess=_excess(excess),
            )
        )  # fmt: skip
    return found


def past_of(row: Mapping[str, Any]) -> Past:
    """A trial's row as the pure part knows it."""
    return Past(
        number=row["number"],
        params=row["params"],
        state=TrialState(row["state"]),
        reports=reports.restored(row["reports"]),
        values=tuple(row["values"]),
        excess=_excess(row["excess"]),
        rung=row["rung"],
        attrs=row["attrs"],
        job_id=row["job_id"],
    )


def _excess(stored: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(math.inf if each is None else each for each in stored)


def tell(conn: Connection, row: Mapping[str, Any], reason: str, now_ms: int) -> None:
    """An event of no job: who follows the project hears of the study, and so does its owner."""
    feed.append(
        conn, job_id=None, project_id=row["project_id"], seq=0, attempt=None, kind="study",
        at_ms=now_ms, state=None, reason=reason,
        data={"study": row["id"], "name": row["name"], "state": row["state"]},
    )  # fmt: skip


def _wish(conn: Connection, row: Row, wish: str, reason: str, now_ms: int) -> Row:
    columns = {"wish": wish, "wish_reason": reason, "revision": row["revision"] + 1}
    conn.execute(update(studies).where(studies.c.id == row["id"]).values(**columns))
    tell(conn, row, f"study {row['name']}: {reason}", now_ms)
    return {**row, **columns}


def _joined() -> Select[Any]:
    return (
        select(studies, projects.c.name.label("project"), users.c.name.label("user"))
        .join(projects, projects.c.id == studies.c.project_id)
        .join(users, users.c.id == studies.c.user_id)
    )


def _of_key(conn: Connection, who: Principal, key: str) -> Row | None:
    row = conn.execute(
        _joined().where(
            of_tenant(studies.c.project_id, who),
            studies.c.user_id == who.user_id,  # another's answer is another's
            studies.c.key == key,
        )
    )
    found = row.mappings().first()
    return None if found is None else dict(found)


def _free_name(conn: Connection, who: Principal, name: str | None) -> str:
    # Two that come at once would both find it free: whoever makes a study holds the project.
    conn.execute(
        select(projects.c.id)
        .where(projects.c.id == who.project_id)
        .with_for_update(key_share=True)
    )
    mine = of_tenant(studies.c.project_id, who)
    for _ in range(100):
        tried = name or naming.invent(_choose)
        taken = conn.execute(select(studies.c.id).where(mine, studies.c.name == tried)).first()
        if taken is None:
            return tried
        if name is not None:
            break
    raise Conflict(
        f"there is a study {tried} in {who.project_name}",
        hint=f"another name, or more trials for it: windlass study add-trials {tried} 20",
    )


def _require_bundle(conn: Connection, who: Principal, digest: str | None) -> None:
    if digest is None:
        return
    complete = conn.execute(
        select(bundles.c.complete).where(
            bundles.c.digest == digest, of_tenant(bundles.c.project_id, who)
        )
    ).scalar()
    if not complete:
        raise BundleMissing(
            f"the code bundle {digest[:12]} is not here",
            hint="upload it, then create the study again",
            digest=digest,
        )


def _warm(conn: Connection, who: Principal, spec: StudySpec) -> list[Row]:
    """The results of the studies that it starts from, as they are now."""
    found: list[Row] = []
    for ref in spec.warm_start:
        try:
            other = find(conn, who, ref)
        except NotFound as err:
            raise InvalidInput(f"from: {err}", hint="`windlass study ls` lists them") from err
        theirs = as_model(StudySpec, other["spec"], "spec")
        if [(o.metric, o.goal) for o in theirs.objectives] != [
            (o.metric, o.goal) for o in spec.objectives
        ]:
            raise InvalidInput(
                f"from: study {ref} has other objectives: "
                + ", ".join(f"{o.goal} {o.metric}" for o in theirs.objectives)
            )
        for row in trials_of(conn, other["id"]):
            usable = row["values"] and all(value is not None for value in row["values"])
            if usable and row["state"] in ("succeeded", "pruned"):
                if fits(spec.space, row["params"]):
                    found.append({"params": row["params"], "values": row["values"]})
    return found[-WARM:]
