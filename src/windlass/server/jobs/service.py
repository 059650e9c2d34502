"""What users may ask of jobs. Every function runs inside the caller's transaction.

The API records wishes; it never moves a job. A submit is exactly once per idempotency key: the
key, the request's digest and the answer are written with the job itself.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from sqlalchemy import (
    BindParameter,
    Connection,
    Delete,
    Select,
    bindparam,
    delete,
    func,
    select,
    text,
)

from windlass.contracts import registry
from windlass.core.access import Principal
from windlass.core.errors import (
    Ambiguous,
    BundleMissing,
    Conflict,
    InvalidInput,
    KeyReused,
    NeverFits,
    NotFound,
    Unavailable,
)
from windlass.core.explain import explain
from windlass.core.jobs import LIVE, TERMINAL, JobSpec, JobState
from windlass.core.parameters import change_spec
from windlass.server import feed
from windlass.server.access.tables import projects, users
from windlass.server.bundles.tables import bundles
from windlass.server.clock import stamp
from windlass.server.events.tables import events
from windlass.server.jobs import dependencies, gangs, moves, naming, views
from windlass.server.jobs.fitting import Fitting
from windlass.server.jobs.tables import attempts, checkpoints, idempotency, jobs, orders, workers
from windlass.server.jobs.tables import dependencies as waits
from windlass.server.queues import service as queues
from windlass.server.store.metadata import JsonText
from windlass.server.store.prepared import Prepared

Row = dict[str, Any]
_choose = random.Random()  # seeded by the system; names are no secrets
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_KEEP_KEY = Prepared(
    text(
        "INSERT INTO idempotency (project_id, key, digest, status, answer, job_id)"
        " VALUES (:project_id, :key, :digest, 201, :answer, :job_id)"
        " ON CONFLICT (project_id, key) DO NOTHING"
    )
)
_OF_KEY = select(idempotency.c.digest, idempotency.c.answer, idempotency.c.job_id).where(
    idempotency.c.project_id == bindparam("project"), idempotency.c.key == bindparam("key")
)


@dataclass(frozen=True, slots=True)
class Accepted:
    job_id: str
    answer: str
    """A `JobView` as JSON: what the first call with this key was told."""
    new: bool


def digest_of(request: Any) -> str:
    """Of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(_SORTED.encode(request).encode()).hexdigest()


def check(spec: JobSpec, fitting: Fitting | None) -> str:
    """What can be said against a spec without the database; returns the framework."""
    if refused := not_yet(spec):
        raise InvalidInput(
            f"not available in this release: {', '.join(refused)}",
            hint="take these fields out: nothing that was asked for is passed over in silence",
            fields=[
                {"field": field, "found": "set", "allowed": "its default"} for field in refused
            ],
        )
    framework = spec.framework or "python"
    try:
        contract = gangs.contract(framework)
    except registry.UnknownFramework as err:
        raise InvalidInput(f"framework: {err}") from err
    names = _variables(spec)
    taken = registry.refused(framework, names) if names else []
    if wrong := contract.problems(gangs.counts(spec)):
        raise InvalidInput(f"roles: {'; '.join(wrong)}")
    if wrong := gangs.command_problems(framework, spec):
        raise InvalidInput(f"run: {'; '.join(wrong)}")
    if taken:
        raise InvalidInput(
            f"environment.vars: {', '.join(taken)} set by the platform for framework {framework}",
            hint="take them out: the script finds them in its environment",
        )
    why = fitting.never(spec) if fitting is not None else None
    if why is not None:
        raise NeverFits(
            f"this gang can never start: {why}", hint="ask for less, see `windlass node ls`"
        )
    return framework


def not_yet(spec: JobSpec) -> list[str]:
    """Fields of the job file that are set, understood, and not carried out yet."""
    asked = {
        "engine": spec.engine not in (None, "local"),
        "code.git": spec.code.git is not None,
        "environment.image": spec.environment.image is not None,
        "environment.secrets": bool(spec.environment.secrets),
        "data": bool(spec.data),
        "outputs.checkpoints": spec.outputs.checkpoints is not None,
        "outputs.models": bool(spec.outputs.models),
        "metrics.goal": spec.metrics.goal is not None,
        "metrics.parse": bool(spec.metrics.parse),
        "limits.cost": spec.limits.cost is not None,
        "on_member_loss: continue": spec.on_member_loss == "continue",
        "isolation.level": spec.isolation.level > 0,
        "isolation.network": spec.isolation.network != "host",
        "notify": bool(spec.notify.on or spec.notify.to),
    }
    return [field for field, is_set in asked.items() if is_set]


def submit(
    conn: Connection,
    who: Principal,
    spec: JobSpec,
    framework: str,
    *,
    key: str | None,
    digest: str,
    now_ms: int,
    rerun_of: str | None = None,
) -> Accepted:
    """Raises KeyReused, BundleMissing. The key goes first, with the answer to come: if it is
    there already, that is what is answered."""
    job_id = uuid4().hex
    after = [_dependency(conn, who, ref) for ref in spec.after]
    held = _held_for(spec, after, now_ms)
    columns: Row = {
        "id": job_id,
        "project_id": who.project_id,
        "user_id": who.user_id,
        "name": spec.name or naming.invent(_choose),
        "state": (JobState.HELD if held else JobState.QUEUED).value,
        "framework": framework,
        "queue": spec.queue.name,
        "priority": spec.queue.priority,
        "order_ms": now_ms,
        "kind": spec.work,
        "members": sum(role.count for role in spec.roles.values()),
        "gpus": sum(role.count * role.gpus for role in spec.roles.values()),
        "bundle": spec.code.bundle,
        "rerun_of": rerun_of,
        "wish": None, "wish_now": 0, "fence": 0, "failures": 0, "stale_restarts": 0,
        "preemptions": 0, "not_before_ms": 0, "lost_nodes": [],
    }  # fmt: skip
    row = moves.created(columns, now_ms, held)
    answer = views.new_job(row, who, spec).model_dump_json()
    if key is not None:
        kept = {
            "project_id": who.project_id, "key": key, "digest": digest, "answer": answer,
            "job_id": job_id,
        }  # fmt: skip
        if _KEEP_KEY.run(conn, kept).rowcount != 1:
            return replayed(conn, who, key, digest)
    queues.require(conn, spec.queue.name)
    bundle = spec.code.bundle
    if bundle is not None and not _bundle_complete(conn, who, bundle):
        raise BundleMissing(
            f"the code bundle {bundle[:12]} is not here",
            hint="upload it, then submit again",
            digest=bundle,
        )
    moves.create(conn, {**row, "spec": JsonText(spec.model_dump_json())})
    dependencies.write(conn, job_id, after)
    return Accepted(job_id, answer, new=True)


def _dependency(conn: Connection, who: Principal, ref: str) -> dependencies.After:
    try:
        found = find(conn, who, ref)
    except NotFound as err:
        raise InvalidInput(
            f"after: {err}", hint="`windlass ps -a` lists the jobs there are"
        ) from err
    return dependencies.After(found["id"], found["name"], JobState(found["state"]))


def _held_for(spec: JobSpec, after: Sequence[dependencies.After], now_ms: int) -> str:
    """What it waits for before it queues; "": nothing."""
    if spec.hold:
        return "held: waits for a release"
    waits = dependencies.waits_for(after)
    if spec.begin is not None and spec.begin > now_ms:
        return "; ".join(filter(None, (waits, f"waits until {stamp(spec.begin)}")))
    return waits


def replayed(conn: Connection, who: Principal, key: str, digest: str) -> Accepted:
    """The first answer to a key that is known."""
    known = conn.execute(_OF_KEY, {"project": who.project_id, "key": key}).mappings().first()
    if known is None:  # PostgreSQL: it went, with its job, a moment ago
        raise Unavailable(f"the idempotency key {key!r} is being removed", retry_after_seconds=1)
    if known["digest"] != digest:
        raise KeyReused(
            f"the idempotency key {key!r} was used for another request (job {known['job_id']})",
            hint="use a new key for a new request",
        )
    answer = json.dumps(known["answer"], separators=(",", ":"), ensure_ascii=False)
    return Accepted(known["job_id"], answer, new=False)  # to the byte as it was first given


def _joined() -> Select[Any]:
    return (
        select(
            jobs,
            projects.c.name.label("project"),
            users.c.name.label("user"),
            attempts.c.step.label("attempt_step"),
        )
        .join(projects, projects.c.id == jobs.c.project_id)
        .join(users, users.c.id == jobs.c.user_id)
        .outerjoin(
            attempts, (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.fence)
        )
    )


def find(conn: Connection, who: Principal, ref: str) -> Row:
    """By id, by a unique prefix of an id, or by name (the newest), in the caller's project."""
    mine = jobs.c.project_id == who.project_id
    hexadecimal = all(char in "0123456789abcdef" for char in ref)
    if hexadecimal and len(ref) == 32:
        row = conn.execute(_joined().where(jobs.c.id == ref, mine)).mappings().first()
        if row is not None:
            return dict(row)
    named = (
        conn.execute(
            _joined().where(mine, jobs.c.name == ref).order_by(jobs.c.number.desc()).limit(1)
        )
        .mappings()
        .first()
    )
    if named is not None:
        return dict(named)
    if hexadecimal and 4 <= len(ref) < 32:
        upper = ref + "g"
        rows = (
            conn.execute(_joined().where(jobs.c.id >= ref, jobs.c.id < upper, mine).limit(5))
            .mappings()
            .all()
        )
        if len(rows) > 1:
            several = ", ".join(f"{row['id'][:12]} ({row['name']})" for row in rows)
            raise Ambiguous(f"{ref!r} names several jobs: {several}", hint="give more of the id")
        if rows:
            return dict(rows[0])
    raise NotFound(f"no job {ref!r}", hint="`windlass ps -a` lists the jobs there are")


def listing(
    conn: Connection,
    who: Principal,
    *,
    states: Sequence[JobState],
    name: str | None,
    user: str | None,
    before: int | None,
    limit: int,
) -> tuple[list[Row], int | None]:
    """Newest first; the second value is the cursor of the next page."""
    query = _joined().where(jobs.c.project_id == who.project_id)
    if states:
        query = query.where(jobs.c.state.in_([state.value for state in states]))
    if name is not None:
        query = query.where(jobs.c.name == name)
    if user is not None:
        query = query.where(users.c.name == user)
    if before is not None:
        query = query.where(jobs.c.number < before)
    rows = [
        dict(row)
        for row in conn.execute(query.order_by(jobs.c.number.desc()).limit(limit + 1)).mappings()
    ]
    return rows[:limit], (rows[limit - 1]["number"] if len(rows) > limit else None)


def counts(conn: Connection, who: Principal) -> dict[str, int]:
    """How many unfinished jobs are in each state."""
    rows = conn.execute(
        select(jobs.c.state, func.count())
        .where(jobs.c.project_id == who.project_id, jobs.c.state.not_in(sorted(TERMINAL)))
        .group_by(jobs.c.state)
    )
    return {state: int(count) for state, count in rows}


def attempts_of(conn: Connection, job_id: str) -> list[Row]:
    rows = conn.execute(
        select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.number)
    )
    return [dict(row) for row in rows.mappings()]


def events_of(conn: Connection, job_id: str, after: int, limit: int = 1000) -> list[Row]:
    rows = conn.execute(
        select(events)
        .where(events.c.job_id == job_id, events.c.seq > after)
        .order_by(events.c.seq)
        .limit(limit)
    )
    return [dict(row) for row in rows.mappings()]


def checkpoints_of(conn: Connection, job_id: str) -> list[Row]:
    rows = conn.execute(
        select(checkpoints)
        .where(checkpoints.c.job_id == job_id)
        .order_by(checkpoints.c.attempt.desc(), checkpoints.c.step.desc())
    )
    return [dict(row) for row in rows.mappings()]


def wish(
    conn: Connection,
    who: Principal,
    ref: str,
    what: str,
    *,
    reason: str,
    now_ms: int,
    at_once: bool = False,
) -> Row:
    """Write down what is wanted; the owner of the job's state carries it out."""
    found = find(conn, who, ref)
    job = moves.load(conn, found["id"])
    state = JobState(job["state"])
    if state in TERMINAL:
        if what == "cancel":
            return found  # it is over already: that is what was wanted
        raise Conflict(
            f"job {job['name']} is {state}", hint=f"`windlass rerun {job['name']}` makes a new one"
        )
    if what == "release" and state not in (JobState.HELD, JobState.QUEUED):
        raise Conflict(f"job {job['name']} is {state}, not held")
    if what == "restart" and state not in LIVE:
        raise Conflict(f"job {job['name']} is {state}, nothing of it runs")
    if job["wish"] == "cancel" and what != "cancel":
        raise Conflict(f"job {job['name']} is being stopped")
    same = job["wish"] == what and bool(job["wish_now"]) >= at_once
    if not same:
        job = moves.note(
            conn, job, "wished", reason=reason, now_ms=now_ms, data={"wish": what, "now": at_once},
            wish=what, wish_reason=reason, wish_now=int(at_once),
        )  # fmt: skip
    return {**found, **job}


def changed(spec: JobSpec, params: Row, changes: Row) -> JobSpec:
    """The spec of a rerun: parameters and any field replaced, then checked like a new one."""
    raw = spec.model_dump(mode="json")
    raw.pop("workers")  # the roles say it
    _merge(raw, changes)
    for name, value in params.items():
        if name in raw["params"]:
            raw["params"][name] = value
        else:
            raw |= change_spec(raw, name, value)
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as err:
        raise explain(err.errors(), JobSpec) from err


def removable(conn: Connection, job_id: str) -> list[str]:
    """The attempts of a finished job, whose files go before its rows do: rows without files can
    be removed again, files without rows would stay for ever. Raises NotFound, Conflict."""
    job = conn.execute(select(jobs.c.name, jobs.c.state).where(jobs.c.id == job_id)).first()
    if job is None:
        raise NotFound(f"no job {job_id}")
    if JobState(job.state) not in TERMINAL:
        raise Conflict(
            f"job {job.name} is {job.state}", hint=f"stop it first: windlass stop {job.name}"
        )
    return list(conn.execute(select(attempts.c.id).where(attempts.c.job_id == job_id)).scalars())


def remove(conn: Connection, job_id: str, now_ms: int) -> None:
    """Take a finished job out, its files being gone. Finished is for ever: no lock is needed."""
    removable(conn, job_id)
    remove_rows(conn, [job_id], now_ms)


def remove_rows(conn: Connection, job_ids: Sequence[str], now_ms: int) -> None:
    """Every row of these jobs, children first. Their events go with them, so one of no job's
    own says that they are gone: who has not heard of their end would keep their place for ever."""
    for statement in _REMOVE:
        conn.execute(statement, {"ids": list(job_ids)})
    for job_id in job_ids:
        feed.append(
            conn, job_id=None, project_id="", seq=0, attempt=None, kind="removed", at_ms=now_ms,
            state=None, reason="", data={"job": job_id},
        )  # fmt: skip


def _removing() -> Iterator[Delete]:
    ids: BindParameter[Any] = bindparam("ids", expanding=True)
    of_attempts = select(attempts.c.id).where(attempts.c.job_id.in_(ids))
    for table in (orders, workers):
        yield delete(table).where(table.c.attempt_id.in_(of_attempts))
    for child in (attempts, checkpoints, waits, idempotency, events):
        yield delete(child).where(child.c.job_id.in_(ids))
    yield delete(jobs).where(jobs.c.id.in_(ids))


_REMOVE = tuple(_removing())


def _variables(spec: JobSpec) -> set[str]:
    return set(spec.environment.vars) | {
        name for role in spec.roles.values() for name in role.vars
    }


def _bundle_complete(conn: Connection, who: Principal, digest: str) -> bool:
    complete = conn.execute(
        select(bundles.c.complete).where(
            bundles.c.digest == digest, bundles.c.project_id == who.project_id
        )
    ).scalar()
    return bool(complete)


def _merge(raw: Row, changes: Row) -> None:
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(raw.get(name), dict):
            _merge(raw[name], value)
        else:
            raw[name] = value
