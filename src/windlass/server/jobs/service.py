"""What users may ask of jobs. Every function runs inside the caller's transaction.

The API records wishes; it never moves a job. A submit is exactly once per idempotency key: the
key, the request's digest and the answer are written with the job itself.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from sqlalchemy import Connection, Select, bindparam, func, select, text

from windlass.contracts import registry
from windlass.core.access import Principal, Right
from windlass.core.errors import (
    Ambiguous,
    BundleMissing,
    Conflict,
    Forbidden,
    Internal,
    InvalidInput,
    KeyReused,
    NeverFits,
    NotFound,
    Unavailable,
)
from windlass.core.explain import explain
from windlass.core.jobs import LIVE, TERMINAL, JobSpec, JobState
from windlass.core.parameters import change_spec
from windlass.server.access.tables import projects, users
from windlass.server.access.tenant import of_tenant
from windlass.server.bundles.tables import bundles
from windlass.server.checkpoints import starting
from windlass.server.clock import stamp
from windlass.server.events.tables import events
from windlass.server.jobs import dependencies, gangs, moves, naming, views
from windlass.server.jobs.fitting import Fitting
from windlass.server.jobs.tables import attempts, idempotency, jobs
from windlass.server.limits import service as limits
from windlass.server.queues import service as queues
from windlass.server.secrets import service as secrets
from windlass.server.store.metadata import JsonText
from windlass.server.store.prepared import Prepared

Row = dict[str, Any]
_choose = random.Random()  # seeded by the system; names are no secrets
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_KEEP_KEY = Prepared(
    text(
        "INSERT INTO idempotency (project_id, user_id, key, digest, status, answer, job_id)"
        " VALUES (:project_id, :user_id, :key, :digest, 201, :answer, :job_id)"
        " ON CONFLICT (project_id, user_id, key) DO NOTHING"
    )
)
_OF_KEY = select(idempotency.c.digest, idempotency.c.answer, idempotency.c.job_id).where(
    idempotency.c.project_id == bindparam("project"),
    idempotency.c.user_id == bindparam("user"),  # another's answer is another's
    idempotency.c.key == bindparam("key"),
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
    if spec.code.here is not None and spec.engine != "local":
        raise InvalidInput(
            f"code.here: {spec.code.here} is a folder of this machine, and engine "
            f"{spec.engine or '(any)'} may start the job elsewhere",
            hint="say engine: local (--engine local), or send the code: --code DIR",
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
    if wrong := gangs.loss_problems(framework, spec):
        raise InvalidInput(
            f"on_member_loss: continue: {'; '.join(wrong)}",
            hint="leave it at restart: the gang starts again from its newest checkpoint. Scripts "
            "of windlass.train (framework pytorch) and members that know nothing of each other "
            "(framework python) can go on",
        )
    if taken:
        raise InvalidInput(
            f"environment: {', '.join(taken)} set by the platform for framework {framework}",
            hint="take them out: the script finds them in its environment",
        )
    if twice := sorted(set(spec.environment.secrets) & set(spec.environment.vars)):
        raise InvalidInput(f"environment: {', '.join(twice)} is both a variable and a secret")
    why = fitting.never(spec) if fitting is not None else None
    if why is not None:
        raise NeverFits(
            f"this gang can never start: {why}", hint="ask for less, see `windlass node ls`"
        )
    return framework


def not_yet(spec: JobSpec) -> list[str]:
    """Fields of the job file that are set, understood, and not carried out yet."""
    asked = {
        "data": bool(spec.data),
        "outputs.checkpoints": spec.outputs.checkpoints is not None,
        "outputs.models": bool(spec.outputs.models),
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
    start: starting.Start | None = None,
) -> Accepted:
    """Raises KeyReused, LimitExceeded, BundleMissing. The key goes first, with the answer to
    come: if it is there already, that is what is answered. `start`: what `spec.start_from` was
    found to be (`starting.prepare`)."""
    if start is not None:
        spec = start.in_spec(spec)
    elif spec.start_from is not None:
        raise Internal("start_from was not looked up")
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
            "project_id": who.project_id, "user_id": who.user_id, "key": key, "digest": digest,
            "answer": answer, "job_id": job_id,
        }  # fmt: skip
        if _KEEP_KEY.run(conn, kept).rowcount != 1:
            return replayed(conn, who, key, digest)
    secrets.require(conn, who, spec.environment.secrets)
    limits.hold_to(conn, who, spec.work)
    queues.require(conn, spec.queue.name)
    bundle = spec.code.bundle
    if bundle is not None and not _bundle_complete(conn, who, bundle):
        raise BundleMissing(
            f"the code bundle {bundle[:12]} is not here",
            hint="upload it, then submit again",
            digest=bundle,
        )
    if spec.project is None:  # whoever reads it later, a worker too, finds it there
        spec = spec.model_copy(update={"project": who.project_name})
    moves.create(conn, {**row, "spec": JsonText(spec.model_dump_json())})
    dependencies.write(conn, job_id, after)
    if start is not None:
        starting.hold(conn, job_id, start)
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
    asked = {"project": who.project_id, "user": who.user_id, "key": key}
    known = conn.execute(_OF_KEY, asked).mappings().first()
    if known is None:  # PostgreSQL: it went, with its job, a moment ago
        raise Unavailable(f"the idempotency key {key!r} is being removed", retry_after_seconds=1)
    if known["digest"] != digest:
        raise KeyReused(
            f"the idempotency key {key!r} was used for another request (job {known['job_id']})",
            hint="use a new key for a new request",
        )
    answer = json.dumps(known["answer"], separators=(",", ":"), ensure_ascii=False)
    return Accepted(known["job_id"], answer, new=False)  # to the byte as it was first given


def joined() -> Select[Any]:
    """Jobs with what a view of them needs."""
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
    mine = of_tenant(jobs.c.project_id, who)
    hexadecimal = all(char in "0123456789abcdef" for char in ref)
    if hexadecimal and len(ref) == 32:
        row = conn.execute(joined().where(jobs.c.id == ref, mine)).mappings().first()
        if row is not None:
            return dict(row)
    named = (
        conn.execute(
            joined().where(mine, jobs.c.name == ref).order_by(jobs.c.number.desc()).limit(1)
        )
        .mappings()
        .first()
    )
    if named is not None:
        return dict(named)
    if hexadecimal and 4 <= len(ref) < 32:
        upper = ref + "g"
        rows = (
            conn.execute(joined().where(jobs.c.id >= ref, jobs.c.id < upper, mine).limit(5))
            .mappings()
            .all()
        )
        if len(rows) > 1:
            several = ", ".join(f"{row['id'][:12]} ({row['name']})" for row in rows)
            raise Ambiguous(f"{ref!r} names several jobs: {several}", hint="give more of the id")
        if rows:
            return dict(rows[0])
    raise NotFound(f"no job {ref!r}", hint="`windlass ps -a` lists the jobs there are")


def find_to_change(
    conn: Connection, who: Principal, ref: str, anybodys: Right = Right.JOB_WRITE_ANY
) -> Row:
    """As `find`; Forbidden for another user's job, unless the caller may change anybody's."""
    found = find(conn, who, ref)
    if found["user_id"] != who.user_id and not who.may(anybodys):
        raise Forbidden(
            f"job {found['name']} is {found['user']}'s: a member changes its own jobs only",
            hint="ask its owner, or a maintainer of the project",
            right=str(anybodys),
        )
    return found


def counts(conn: Connection, who: Principal) -> dict[str, int]:
    """How many unfinished jobs are in each state."""
    rows = conn.execute(
        select(jobs.c.state, func.count())
        .where(of_tenant(jobs.c.project_id, who), jobs.c.state.not_in(sorted(TERMINAL)))
        .group_by(jobs.c.state)
    )
    return {state: int(count) for state, count in rows}


def those_of(conn: Connection, who: Principal, ids: Sequence[str]) -> set[str]:
    """Of these ids those of jobs in the caller's project."""
    query = select(jobs.c.id).where(jobs.c.id.in_(ids), of_tenant(jobs.c.project_id, who))
    return set(conn.scalars(query))


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
    found = find_to_change(conn, who, ref)
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
    code = changes.get("code")
    if isinstance(code, dict) and code.keys() & {"git", "ref"}:
        raw["code"]["commit"] = None  # another place: what was found at the old one is past
        if code.get("git"):
            raw["code"] |= {
                "bundle": None, "ignore": [], "include": [], "left_out": [], "here": None,
            }  # fmt: skip
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


def _variables(spec: JobSpec) -> set[str]:
    return {*spec.environment.vars, *spec.environment.secrets} | {
        name for role in spec.roles.values() for name in role.vars
    }


def _bundle_complete(conn: Connection, who: Principal, digest: str) -> bool:
    complete = conn.execute(
        select(bundles.c.complete).where(
            bundles.c.digest == digest, of_tenant(bundles.c.project_id, who)
        )
    ).scalar()
    return bool(complete)


def _merge(raw: Row, changes: Row) -> None:
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(raw.get(name), dict):
            _merge(raw[name], value)
        else:
            raw[name] = value
