"""The table of a project's jobs: filtered, sorted, with any parameter or metric as a column.

Jobs lie in one database, what their runs told in another (two files, in SQLite), so no join
reaches over both. Each clause is asked where its column is:

    facts only (state, user, queue …)   one look at the index, page by page
    parameters and metrics too          the ids for which those hold are read from the other
                                        database, whole and in order, and met with the facts here

The first way is what a table shows that somebody opens: a hundred thousand jobs cost it nothing.
The second takes some tenths of a second for so many, which one who asks such a question waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, func, select

from windlass.core.access import Principal
from windlass.core.errors import InvalidInput
from windlass.core.jobs import JobState, Outcome
from windlass.core.strict import parse_duration_ms
from windlass.server.access.tables import users
from windlass.server.access.tenant import of_tenant
from windlass.server.http.query import moment
from windlass.server.jobs.service import joined
from windlass.server.jobs.tables import jobs
from windlass.server.runs import table as runs
from windlass.server.runs.filters import Clause, Value, parse, split_key
from windlass.server.store.base import Store

Row = dict[str, Any]

_TEXT: dict[str, Column[Any]] = {
    "name": jobs.c.name, "id": jobs.c.id, "user": users.c.name, "queue": jobs.c.queue,
    "framework": jobs.c.framework, "work": jobs.c.kind, "reason": jobs.c.reason,
    "engine": jobs.c.engine, "rerun_of": jobs.c.rerun_of,
}  # fmt: skip
_WORDS: dict[str, tuple[Column[Any], tuple[str, ...]]] = {
    "state": (jobs.c.state, tuple(JobState)),
    "outcome": (jobs.c.outcome, tuple(Outcome)),
}
_NUMBERS: dict[str, Column[Any]] = {
    "priority": jobs.c.priority, "members": jobs.c.members, "gpus": jobs.c.gpus,
    "attempt": jobs.c.fence, "failures": jobs.c.failures, "exit_code": jobs.c.exit_code,
    "step": jobs.c.step, "preemptions": jobs.c.preemptions,
}  # fmt: skip
_TIMES: dict[str, Column[Any]] = {
    "submitted": jobs.c.submitted_ms, "queued": jobs.c.queued_ms, "started": jobs.c.started_ms,
    "ended": jobs.c.ended_ms,
}  # fmt: skip
FACTS = (*_TEXT, *_WORDS, *_NUMBERS, *_TIMES, "duration")
_KNOWN = "metrics.…, min.…, max.…, params.…, tags.…, " + ", ".join(FACTS)


@dataclass(frozen=True)
class Asked:
    filter: str = ""
    sort: str = ""
    """`-metrics.loss`, `params.lr`, `-duration`; empty: the newest first."""
    columns: tuple[str, ...] = ()
    states: tuple[JobState, ...] = ()
    name: str | None = None
    user: str | None = None
    before: str | None = None
    """What the page before gave as `next`: a job's number, or `o` and a place in the order."""
    limit: int = 50


@dataclass(frozen=True)
class Found:
    rows: list[Row]
    following: str | None
    total: int | None
    """Of all pages, said on the first."""
    states: dict[str, int] | None
    """How many are in each state, whichever states were asked for; said on the first page."""
    params: dict[str, dict[str, Any]]
    metrics: dict[str, dict[str, Any]]


async def page(store: Store, tracking: Store, who: Principal, asked: Asked, now_ms: int) -> Found:
    """Raises InvalidInput."""
    clauses = parse(asked.filter)
    told = [clause for clause in clauses if runs.tracked(clause.kind)]
    facts = [_fact(clause, now_ms) for clause in clauses if not runs.tracked(clause.kind)]
    facts += _given(asked)
    number, offset = _place(asked.before)
    by_run = bool(asked.sort) and runs.tracked(split_key(asked.sort.removeprefix("-"))[0])
    if told or by_run:
        chosen = await tracking.read(
            lambda conn: runs.ids(conn, who.project_id, told, asked.sort if by_run else "")
        )
        found = await store.read(
            lambda conn: _met(conn, who, facts, asked, chosen, bool(told), by_run, offset, now_ms)
        )
    else:
        found = await store.read(
            lambda conn: _listed(conn, who, facts, asked, number, offset, now_ms)
        )
    rows, following, states = found
    params: dict[str, dict[str, Any]] = {}
    metrics: dict[str, dict[str, Any]] = {}
    if asked.columns and rows:
        ids = [row["id"] for row in rows]
        params, metrics = await tracking.read(lambda conn: runs.cells(conn, ids, asked.columns))
    total = None
    if asked.before is not None:
        states = None
    elif states is not None:
        total = sum(states.get(state, 0) for state in asked.states or JobState)
    return Found(rows, following, total, states, params, metrics)


_Page = tuple[list[Row], str | None, dict[str, int] | None]
"""Rows, the next page, jobs by their state."""
_Where = Sequence[ColumnElement[bool]]


def _listed(
    conn: Connection, who: Principal, facts: _Where, asked: Asked, number: int | None,
    offset: int, now_ms: int,
) -> _Page:  # fmt: skip
    where = [of_tenant(jobs.c.project_id, who), *facts]
    query = joined().where(*where, *_in_states(asked))
    if asked.sort:
        query = query.order_by(*_order(asked.sort, now_ms)).offset(offset)
    else:
        query = query.order_by(jobs.c.number.desc())
        query = query if number is None else query.where(jobs.c.number < number)
    rows = [dict(row) for row in conn.execute(query.limit(asked.limit + 1)).mappings()]
    states = None
    if asked.before is None:
        counted = _with_users(select(jobs.c.state, func.count()).select_from(jobs), asked)
        counts = conn.execute(counted.where(*where).group_by(jobs.c.state))
        states = {state: count for state, count in counts}
    following = None
    if len(rows) > asked.limit:
        rows = rows[: asked.limit]
        following = f"o{offset + asked.limit}" if asked.sort else str(rows[-1]["number"])
    return rows, following, states


def _met(
    conn: Connection, who: Principal, facts: _Where, asked: Asked, chosen: list[str],
    filtered: bool, by_run: bool, offset: int, now_ms: int,
) -> _Page:  # fmt: skip
    """A page of the jobs for which both hold. `chosen` are the runs, in their order if `by_run`;
    jobs that have no run come last in it, unless `filtered`."""
    columns = select(jobs.c.id, jobs.c.state)
    query = _with_users(columns, asked).where(of_tenant(jobs.c.project_id, who), *facts)
    order = (jobs.c.number.desc(),) if by_run or not asked.sort else _order(asked.sort, now_ms)
    mine: dict[str, str] = {job: state for job, state in conn.execute(query.order_by(*order))}
    if by_run:
        ids = [run for run in chosen if run in mine]
        if not filtered:
            have = set(chosen)
            ids += [job for job in mine if job not in have]
    else:
        wanted = set(chosen)
        ids = [job for job in mine if job in wanted]
    states = Counter(mine[job] for job in ids)
    if asked.states:
        ids = [job for job in ids if mine[job] in asked.states]
    shown = ids[offset : offset + asked.limit]
    rows = {
        row["id"]: dict(row)
        for row in conn.execute(joined().where(jobs.c.id.in_(shown))).mappings()
    }
    end = offset + asked.limit
    return (
        [rows[job] for job in shown if job in rows],
        f"o{end}" if end < len(ids) else None, dict(states),
    )  # fmt: skip


def _with_users(query: Select[Any], asked: Asked) -> Select[Any]:
    """Joined with their users, where the question is about them: a look for each job is most of
    what it costs to count them."""
    if asked.user is None and "user" not in (asked.filter + asked.sort).lower():
        return query
    return query.join(users, users.c.id == jobs.c.user_id)


def _place(before: str | None) -> tuple[int | None, int]:
    """The number to go on below, and the place in the order to go on from."""
    if before is None:
        return None, 0
    digits = before.removeprefix("o")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise InvalidInput(f"before: what a page gave as `next` (found {before[:80]!r})")
    return (None, int(digits)) if before.startswith("o") else (int(digits), 0)


def _in_states(asked: Asked) -> list[ColumnElement[bool]]:
    if not asked.states:
        return []
    return [jobs.c.state.in_([state.value for state in asked.states])]


def _given(asked: Asked) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if asked.name is not None:
        found.append(jobs.c.name == asked.name)
    if asked.user is not None:
        found.append(users.c.name == asked.user)
    return found


def _duration(now_ms: int) -> ColumnElement[Any]:
    """Milliseconds since its first start, up to its end or now; NULL: it never ran."""
    return func.coalesce(jobs.c.ended_ms, now_ms) - jobs.c.started_ms


def _fact(clause: Clause, now_ms: int) -> ColumnElement[bool]:
    key = clause.key.lower()
    if clause.kind.lower() not in ("", "job", "jobs") or key not in FACTS:
        name = f"{clause.kind}.{clause.key}" if clause.kind else clause.key
        raise InvalidInput(f"filter: no {name!r}; known: {_KNOWN}")
    if key in _TEXT:
        return runs.text_of(_TEXT[key], clause)
    if runs.is_like(clause):
        raise InvalidInput(f"filter: {key} is no text: no {clause.operator}")
    if key in _WORDS:
        column, known = _WORDS[key]
        return runs.compare(column, clause, [_word(key, each, known) for each in clause.values])
    if key in _NUMBERS:
        return runs.compare(_NUMBERS[key], clause, _all(clause, _number))
    if key in _TIMES:
        return runs.compare(_TIMES[key], clause, _all(clause, _moment))
    return runs.compare(_duration(now_ms), clause, _all(clause, _span))


def _all(clause: Clause, read: Callable[[str, Value], Any]) -> list[Any]:
    return [read(clause.key.lower(), each) for each in clause.values]


def _word(key: str, value: Value, known: tuple[str, ...]) -> str:
    word = value.text.lower()
    if word not in known:
        raise InvalidInput(f"filter: {key}: no {value.text!r}; known: {', '.join(known)}")
    return word


def _number(key: str, value: Value) -> float:
    try:
        number = float(value.text)
    except ValueError:
        number = float("nan")
    if not abs(number) < 2**53:
        raise InvalidInput(f"filter: {key}: a number (found {value.text!r})")
    return number


def _moment(key: str, value: Value) -> int:
    found = moment(f"filter: {key}", value.text)
    assert found is not None
    return found


def _span(key: str, value: Value) -> int:
    """`90` are seconds; `10m`, `2h`."""
    try:
        if value.text.replace(".", "", 1).isdigit() and len(value.text) < 16:
            return round(float(value.text) * 1000)
        return int(parse_duration_ms(value.text))
    except Exception:
        raise InvalidInput(
            f"filter: {key}: seconds, or such as 10m, 2h (found {value.text!r})"
        ) from None


def _order(word: str, now_ms: int) -> tuple[ColumnElement[Any], ...]:
    down = word.startswith("-")
    kind, key = split_key(word.removeprefix("-"))
    key = key.lower()
    column: ColumnElement[Any]
    if kind.lower() not in ("", "job", "jobs") or key not in FACTS:
        raise InvalidInput(f"sort: no {word!r}; known: {_KNOWN}")
    if key == "duration":
        column = _duration(now_ms)
    elif key in _WORDS:
        column = _WORDS[key][0]
    else:
        column = {**_TEXT, **_NUMBERS, **_TIMES}[key]
    # Who has no value comes last either way.
    return column.is_(None), column.desc() if down else column.asc(), jobs.c.number.desc()
