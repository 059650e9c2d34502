"""The owner of studies and trials: looks at each live study, and carries out what `tune` plans.

    rows, jobs, reports ──► judge ──► plan ──► sampler ──► one transaction ──► jobs
        (read)             (pure)    (pure)   (a process)   (trials + jobs)

Nothing is remembered between two looks but caches of what never changes: a server that dies at
any moment is followed by one that looks at the same rows and decides the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.errors import Conflict, Fenced, Unavailable, Unreadable
from windlass.core.jobs import TERMINAL as OVER
from windlass.core.jobs import JobState
from windlass.core.studies import LIVE_STUDIES, StudySpec, StudyState, TrialState
from windlass.server import failpoints
from windlass.server.clock import Clock
from windlass.server.jobs.tables import jobs
from windlass.server.reading import as_model
from windlass.server.store.base import Store
from windlass.server.studies import aside, judging, reports, service, writing
from windlass.server.studies.asking import NoAnswer, Sampling
from windlass.server.studies.tables import studies
from windlass.server.studies.writing import CannotGoOn, Change, Draft
from windlass.server.troubles import Troubles
from windlass.tune.history import Advance, Create, Finish, Past, Pause, Prune, Resume, Step
from windlass.tune.plan import hopeless, plan
from windlass.tune.results import best

log = logging.getLogger("windlass.studies")

POLL_MS = 1000
"""How often reports are looked at where a pruner compares them."""
LIMITED_MS = 2000
"""When to try again after a limit on live jobs was met."""
_AGAIN_MS = 50
_TOGETHER = 20
"""Trials made in one transaction."""
Row = dict[str, Any]


@dataclass
class Look:
    """A study as it was found, and its trials as they now are."""

    row: Row
    spec: StudySpec
    history: list[Past]
    jobs: Mapping[str, Row]
    changes: list[Change] = field(default_factory=list)
    """What became of trials, to be written."""


class Tuning:
    def __init__(
        self,
        store: Store,
        tracking: Store,
        clock: Clock,
        sampling: Sampling,
        *,
        guard: Callable[[Connection], None],
        wished: Callable[[str], None],
        checkpoints_of: Callable[[str], Path],
        ring: Callable[[], None] = lambda: None,
        troubles: Troubles | None = None,
    ) -> None:
        """`wished` hears of jobs that were told something, `ring` wakes the loop."""
        self._store = store
        self._tracking = tracking
        self._clock = clock
        self._sampling = sampling
        self._guard = guard
        self._wished = wished
        self._checkpoints_of = checkpoints_of
        self._ring = ring
        self._handling = (troubles or Troubles(clock)).of("studies")
        self._watch = reports.Watch()
        self._ended: dict[str, dict[int, Past]] = {}  # by study: what will not change any more
        self._live = True

    def hear(self) -> None:
        """Something was committed: of no interest while no study is live."""
        if self._live:
            self._ring()

    def wake(self) -> None:
        """A study was made or changed here."""
        self._live = True
        self._ring()

    async def turn(self) -> int | None:
        """One round over all live studies; the milliseconds until one must be looked at again."""
        ids = await self._store.read(_live_ids)
        self._live = bool(ids)
        for gone in self._ended.keys() - set(ids):
            del self._ended[gone]
        due: int | None = None
        for study_id in ids:
            if not self._handling.may(study_id):
                due = 1000 if due is None else min(due, 1000)
                continue
            try:
                again = await self._tend(study_id)
            except (Fenced, Unavailable):
                raise
            except Conflict as err:
                log.debug("study %s: %s", study_id, err)
                again = _AGAIN_MS
            except Exception as err:  # of this one: the others go on
                again = self._handling.failed(study_id, err)
            else:
                self._handling.well(study_id)
            due = again if due is None else due if again is None else min(due, again)
        return due

    # One study

    async def _tend(self, study_id: str) -> int | None:
        try:
            look = await self._look(study_id)
        except Unreadable as err:
            return await self._set_aside(study_id, err)
        if look is None:
            return None
        state = StudyState(look.row["state"])
        if state not in LIVE_STUDIES:
            return await self._go_on(look)
        if state is StudyState.RUNNING and (end := self._end(look)) is not None:
            ending, reason = end
            await self._write(look, [], to=StudyState.STOPPING, ending=ending.value, reason=reason)
            return 0
        if state is StudyState.STOPPING:
            return await self._stop(look)
        return await self._advance(look)

    async def _set_aside(self, study_id: str, err: Unreadable) -> int | None:
        def write(conn: Connection) -> list[str]:
            self._guard(conn)
            now = self._clock.now_ms()
            return aside.set_aside(conn, study_id, err.message, now, self._checkpoints_of)

        told = await self._store.write(write)
        for job_id in told:
            self._wished(job_id)
        return 0 if told else POLL_MS

    async def _look(self, study_id: str) -> Look | None:
        known = self._ended.setdefault(study_id, {})

        def read(conn: Connection) -> tuple[Row, list[Row], dict[str, Row]] | None:
            row = conn.execute(select(studies).where(studies.c.id == study_id)).mappings().first()
            if row is None:
                return None
            first = 0
            while first in known:
                first += 1
            rows = service.trials_of(conn, study_id, after=first - 1)
            open_ = [each["job_id"] for each in rows if each["ended_ms"] is None]
            return dict(row), rows, _jobs(conn, open_)

        found = await self._store.read(read)
        if found is None:
            return None
        row, rows, now = found
        spec = as_model(StudySpec, row["spec"], "spec")
        for each in rows:
            if each["ended_ms"] is not None:
                known.setdefault(each["number"], service.past_of(each))
        pasts = {**known, **{r["number"]: service.past_of(r) for r in rows if not r["ended_ms"]}}
        look = Look(row, spec, [pasts[number] for number in sorted(pasts)], now)
        await self._judge(look)
        return look

    async def _judge(self, look: Look) -> None:
        """Bring the history up to what became of the jobs."""
        spec, live = look.spec, [past for past in look.history if not past.ended]
        over = [past.job_id for past in live if self._is_over(look, past)]
        held = [past.job_id for past in live if past.state is TrialState.PAUSING]
        seen: dict[str, Any] = {}
        finals: dict[str, Any] = {}
        if spec.pruner.kind != "none" or over:
            asked = [past.job_id for past in live]
            metric = spec.objectives[0].metric

            def read(conn: Connection) -> tuple[Any, Any]:
                wanted = asked if spec.pruner.kind != "none" else over
                return (
                    self._watch.look(conn, metric, wanted),
                    reports.finals(conn, spec, [*over, *held]),
                )

            seen, finals = await self._tracking.read(read)
        none = (tuple(None for _ in spec.objectives), ())
        stops = look.row["state"] == StudyState.STOPPING or look.row["wish"] in ("stop", "delete")
        for at, past in enumerate(look.history):
            if past.ended:
                continue
            past = replace(past, reports=seen.get(past.job_id, past.reports))
            values, excess = finals.get(past.job_id, none)
            verdict = judging.judge(
                past.state, look.jobs.get(past.job_id), values, spec.objectives, study_stops=stops
            )
            look.history[at] = past
            if verdict is not None:
                change = Change(past.number, past.state, verdict.state, verdict.reason)
                if past.job_id in finals:
                    change.values, change.excess, change.reports = values, excess, past.reports
                    past = replace(past, values=values, excess=excess)
                elif verdict.state is not TrialState.RUNNING:
                    change.values, change.reports = none[0], past.reports
                look.changes.append(change)
                look.history[at] = replace(past, state=verdict.state)

    def _is_over(self, look: Look, past: Past) -> bool:
        job = look.jobs.get(past.job_id)
        return job is None or JobState(job["state"]) in OVER

    def _end(self, look: Look) -> tuple[StudyState, str] | None:
        """Whether a running study is to stop, what it will then be, and why."""
        row = look.row
        if row["wish"] in ("stop", "delete"):
            return StudyState.STOPPED, row["wish_reason"] or "stopped"
        if row["deadline_ms"] is not None and self._clock.now_ms() >= row["deadline_ms"]:
            return StudyState.FINISHED, "its time is over"
        if why := hopeless(look.spec, look.history):
            return StudyState.FAILED, why
        return None

    async def _go_on(self, look: Look) -> int:
        """A study that is over and was given more trials."""
        spec, now = look.spec, self._clock.now_ms()
        await self._write(
            look, [], to=StudyState.RUNNING, reason=look.row["wish_reason"] or "", wish=None,
            wish_reason=None, ending=None, ended_ms=None,
            deadline_ms=None if spec.max_time is None else now + spec.max_time,
        )  # fmt: skip
        return 0

    async def _stop(self, look: Look) -> int | None:
        """Tell every live trial to end; when none is left, so is the study."""
        changes = [
            Change(
                past.number, past.state, TrialState.STOPPING,
                f"the study stops: {look.row['reason']}", wish="cancel",
            )
            for past in look.history
            if not past.ended and past.state is not TrialState.STOPPING
        ]  # fmt: skip
        if changes or any(not past.ended for past in look.history):
            if changes or look.changes:
                await self._write(look, changes)
            return None
        if look.row["wish"] == "delete":
            await self._erase(look)
            return None
        to = StudyState(look.row["ending"] or StudyState.STOPPED)
        await self._write(
            look, [], to=to, ended_ms=self._clock.now_ms(), wish=None, wish_reason=None
        )
        return None

    async def _advance(self, look: Look) -> int | None:
        """Carry out what is planned."""
        steps = plan(look.spec, look.row["target"], look.history)
        if len(steps) == 1 and isinstance(steps[0], Finish):
            reason = steps[0].why
            await self._write(
                look, [], to=StudyState.FINISHED, reason=reason, ended_ms=self._clock.now_ms()
            )
            return None
        changes = [change for step in steps if (change := _change(look, step)) is not None]
        given = [Draft(s, s.params) for s in steps if isinstance(s, Create) and s.params]
        wanted = [s for s in steps if isinstance(s, Create) and not s.params]
        try:
            if changes or given or look.changes:
                await self._write(look, changes, given)
                if wanted:
                    return 0  # with the rows as they now are
            short = await self._create(look, wanted)
        except (CannotGoOn, NoAnswer) as err:
            await self._write(
                await self._again(look), [], to=StudyState.STOPPING,
                ending=StudyState.FAILED.value, reason=str(err),
            )  # fmt: skip
            return 0
        return self._due(look, short)

    async def _create(self, look: Look, steps: Sequence[Create]) -> str:
        """New trials, with parameters by the sampler; why not all could be made."""
        if not steps:
            return ""
        warm = [
            Past(-at - 1, each["params"], TrialState.SUCCEEDED, values=tuple(each["values"]))
            for at, each in enumerate(look.row["warm"])
        ]
        history, drafts = list(look.history), []
        found = best(look.spec.objectives, history) if look.spec.share_weights else []
        weights = found[0].number if found else None
        for step in steps[:_TOGETHER]:
            params, attrs = await self._sampling.ask(look.spec, step.number, history, warm)
            drafts.append(Draft(step, params, attrs, weights))
            history.append(Past(step.number, params, TrialState.RUNNING, attrs=attrs))
        failpoints.passing("before-trial-commit")
        short = await self._write(look, [], drafts)
        failpoints.passing("after-trial-commit")
        if short and look.row["reason"] != short:
            await self._write(await self._again(look), [], reason=short)
        if not short and len(steps) > len(drafts):
            self._ring()
        return short

    def _due(self, look: Look, short: str) -> int | None:
        due = []
        if short:
            due.append(LIMITED_MS)
        if look.spec.pruner.kind != "none" and any(past.busy for past in look.history):
            due.append(POLL_MS)
        if look.row["deadline_ms"] is not None:
            due.append(max(0, look.row["deadline_ms"] - self._clock.now_ms()))
        return min(due, default=None)

    async def _write(
        self, look: Look, changes: Sequence[Change], drafts: Sequence[Draft] = (), **columns: Any
    ) -> str:
        """One transaction, with what became of trials before."""
        now, to = self._clock.now_ms(), columns.pop("to", None)

        def write(conn: Connection) -> tuple[list[str], str]:
            self._guard(conn)
            return writing.change(
                conn, look.row, [*look.changes, *changes], drafts, now,
                checkpoints_of=self._checkpoints_of, to=to, **columns,
            )  # fmt: skip

        told, short = await self._store.write(write)
        for job_id in told:
            self._wished(job_id)
        self._watch.forget([past.job_id for past in look.history if past.ended])
        look.changes = []
        return short

    async def _again(self, look: Look) -> Look:
        found = await self._store.read(partial(_row, study_id=look.row["id"]))
        return replace(look, row=found, changes=[])

    async def _erase(self, look: Look) -> None:
        def write(conn: Connection) -> None:
            self._guard(conn)
            row = writing.current(conn, look.row)
            service.erase(conn, row["id"])
            service.tell(conn, row, f"study {row['name']} removed", self._clock.now_ms())

        await self._store.write(write)


def _change(look: Look, step: Step) -> Change | None:
    if isinstance(step, Create | Finish):
        return None
    past = look.history[step.number]
    told = look.jobs.get(past.job_id, {}).get("wish") is not None
    if isinstance(step, Pause | Resume) and told:
        return None  # one thing at a time: it is looked at again
    if isinstance(step, Advance):
        return Change(past.number, past.state, past.state, rung=step.rung)
    if isinstance(step, Pause):
        return Change(past.number, past.state, TrialState.PAUSING, step.why, wish="hold")
    if isinstance(step, Resume):
        return Change(
            past.number, past.state, TrialState.RUNNING, step.why, rung=step.rung, wish="release"
        )
    assert isinstance(step, Prune)
    return Change(past.number, past.state, TrialState.STOPPING, step.why, wish="cancel")


def _live_ids(conn: Connection) -> list[str]:
    live = studies.c.state.in_(sorted(LIVE_STUDIES))
    query = select(studies.c.id).where(live | (studies.c.wish == "go-on"))
    return list(conn.execute(query.order_by(studies.c.number)).scalars())


def _row(conn: Connection, study_id: str) -> Row:
    row = conn.execute(select(studies).where(studies.c.id == study_id)).mappings().first()
    if row is None:
        raise Conflict("the study is gone")
    return dict(row)


def _jobs(conn: Connection, ids: Sequence[str]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for at in range(0, len(ids), 500):
        rows = conn.execute(
            select(jobs.c.id, jobs.c.state, jobs.c.reason, jobs.c.wish).where(
                jobs.c.id.in_(ids[at : at + 500])
            )
        )
        found |= {row["id"]: dict(row) for row in rows.mappings()}
    return found
