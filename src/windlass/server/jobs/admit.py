"""The owner of held and queued jobs: feeds the scheduler's core and commits what it decides.

The core is a cache, rebuilt from the database at start and after every error; it is kept current
by the events that others committed. A turn: hear what happened, carry out the wishes on waiting
jobs, let the core decide, commit its decisions. Nothing here touches an engine: a start is a row
that reconcile finds, a preemption is a wish that reconcile carries out.

    rows ──► Submit, Restore, Release … ──► core.apply ──► Start    queued → starting
                                                           Preempt  wish on a live job
                                                           Resize   wish on a live job, seats kept
                                                           Promise  kept for the next core
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, bindparam, select

from windlass.core.errors import (
    Conflict,
    Fenced,
    NotFound,
    Unavailable,
    UnlawfulMove,
    Unreadable,
)
from windlass.core.jobs import LIVE, TERMINAL, JobSpec, JobState
from windlass.core.resources import Node, Resources
from windlass.scheduler.core import Core
from windlass.scheduler.events import (
    Decision,
    Event,
    NodeDown,
    NodeUp,
    Preempt,
    Promise,
    Reason,
    Release,
    Resize,
    Resized,
    Restore,
    Rules,
    Seat,
    Start,
    Submit,
    Used,
    Withdraw,
)
from windlass.scheduler.predict import Histories, likeness
from windlass.scheduler.selfcheck import drift
from windlass.server import failpoints, feed
from windlass.server.access.tables import projects, users
from windlass.server.clock import Clock
from windlass.server.jobs import asking, dependencies, lately, moves, promised, waiting
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.nodes.tables import nodes
from windlass.server.queues.rules import rules
from windlass.server.reading import as_model, placement_of, spec_of
from windlass.server.store.base import Store
from windlass.server.store.metadata import Garbled
from windlass.server.troubles import Troubles
from windlass.server.usage import budgets
from windlass.server.usage.budgets import Spent

log = logging.getLogger("windlass.admit")
Row = dict[str, Any]
T = TypeVar("T")
_ID = re.compile(r"\b[0-9a-f]{32}\b")
_BATCH = 1000
_TOGETHER = 50
"""Waiting jobs that are moved in one transaction: others write between two of them."""
_CHECK_MS = 60_000
_AGAIN_MS = 100
_REMEMBERED = 2000
"""Finished jobs from which run times are learnt at the start."""


class Admit:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        guard: Callable[[Connection], None],
        new_attempt: Callable[[], Row],
        started: Callable[[str], None],
        ttl_ms: int,
        base: Rules | None = None,
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._guard = guard
        self._new_attempt = new_attempt
        self._started = started
        self._ttl_ms = ttl_ms
        self._base = base or Rules()
        self._handling = (troubles or Troubles(clock)).of("admit")
        self._unreadable: dict[str, Unreadable] = {}  # nodes and quotas
        self._core: Core | None = None
        self._events: list[Event] = []
        self._cursor = 0
        self._due: list[tuple[int, str]] = []  # (not before, job) of those that wait for a time
        self._engine_of: dict[str, str] = {}
        self._gpu_ids: dict[str, Sequence[str]] = {}
        self._places: dict[str, tuple[str, str]] = {}  # of each node: its pool, its GPUs' model
        self._fences: dict[str, int] = {}  # of each job that the core holds: its attempt's number
        self._resizing: dict[str, tuple[Seat, ...]] = {}
        self._histories = Histories()
        self._checked_ms = self._saved_ms = 0
        self._used: dict[str, Used] = {}  # what tenants used lately, not written yet
        self._names: dict[str, tuple[str, str]] = {}  # project and name of all that is unfinished
        self._spent = Spent()
        self._unpaid: dict[str, Reason] = {}  # jobs that wait for their budget, not for the core

    async def turn(self) -> int | None:
        """One round. Returns the milliseconds until a timer is due, None when there is none."""
        try:
            if self._core is None:
                await self._rebuild()
            await self._hear()
            await self._wake_due()
            while decisions := self._decide():
                await self._commit(decisions)
                await self._hear()
            await self._save()
            self._check()
        except BaseException:
            self._core = None  # the cache may be wrong: build it anew next time
            raise
        due = [self._due[0][0]] if self._due else []
        if self._used:
            due.append(self._saved_ms + lately.SAVED_EVERY_MS)
        core_due = self._core.next_ms() if self._core is not None else None
        if core_due is not None:
            due.append(core_due)
        return max(0, min(due) - self._clock.now_ms()) if due else None

    async def _save(self) -> None:
        """What tenants used lately, now and then."""
        now = self._clock.now_ms()
        if self._core is not None:
            self._used |= {used.tenant: used for used in self._core.used()}
        if self._used and now >= self._saved_ms + lately.SAVED_EVERY_MS:
            used, self._used, self._saved_ms = self._used, {}, now
            await self._write(lambda conn, *_: lately.save(conn, list(used.values())))

    def _check(self) -> None:
        """Once a minute: books that do not add up are thrown away, and told of."""
        now = self._clock.now_ms()
        if self._core is None or now < self._checked_ms + _CHECK_MS:
            return
        self._checked_ms = now
        for name, err in self._unreadable.items():
            self._handling.waits(name, err)
        if (wrong := drift(self._core)) is not None:
            log.error("the scheduler's books do not add up, they are made anew: %s", wrong)
            self._core = None

    def forget(self) -> None:
        """Another server leads: what is known here grows old, and nobody is told it any more."""
        self._core = None

    # What others ask of the core, as it would decide now. None: this server does not lead.

    def why(self, job_id: str) -> Reason | None:
        if self._core is not None and job_id in self._unpaid:
            return self._unpaid[job_id]
        found = self._core.why(job_id) if self._core else None
        if found is None:
            return None
        return replace(found, sentence=self._named(found.sentence, job_id))

    def _named(self, text: str, job_id: str) -> str:
        """What the core says about this job, with the names that its project knows."""
        return self._in_words(text, self._names.get(job_id, ("", ""))[0])

    def _in_words(self, text: str, project: str) -> str:
        def name(found: re.Match[str]) -> str:
            whose, name = self._names.get(found[0], ("", ""))
            if not name:
                return "another job"  # whose it was is not known any more
            return name if whose == project else "a job of another project"

        return _ID.sub(name, text)

    def _told(self, other: str, job_id: str) -> str | None:
        """The id of another job if it is of the same project; a stranger's is not told."""
        whose = [self._names.get(each, ("", ""))[0] for each in (other, job_id)]
        return other if whose[0] and whose[0] == whose[1] else None

    def line(self, queue: str) -> Sequence[str] | None:
        return self._core.line(queue) if self._core else None

    def promise(self, job_id: str) -> Promise | None:
        return self._core.promise(job_id) if self._core else None

    def would_wait(self, spec: JobSpec, tenant: str, user: str) -> str:
        """Why such a job would not start now; "" when it would."""
        if self._core is None:
            return "another server decides what starts, and this one does not know"
        if spent := self._spent.why(tenant, user):
            return spent
        now = self._clock.now_ms()
        row = {
            "id": "", "project": tenant, "order_ms": now, "number": 1 << 62, "user": user,
            "priority": spec.queue.priority, "queue": spec.queue.name, "kind": spec.work,
            "preemptions": 0,
        }  # fmt: skip
        found = self._core.would_wait(asking.submit_of(row, spec, spec.limits.time))
        return "" if found is None else self._in_words(found.sentence, tenant)

    def free(self) -> dict[str, Resources]:
        """By node that is up: what is free there."""
        if self._core is None:
            return {}
        now, index = self._core.nodes.now, self._core.nodes.index
        return {
            name: Resources(
                cpus_milli=max(0, int(now.cpus[at])),
                memory_bytes=max(0, int(now.memory[at])),
                gpus=int(now.whole[at]),
                slots=max(0, int(now.slots[at])),
            )
            for name, at in index.items()
            if self._core.nodes.up[at]
        }

    # Hearing

    async def _rebuild(self) -> None:
        def snapshot(conn: Connection) -> tuple[int, Rules, list[Row], list[Row], list[Row], Any]:
            cursor = feed.last_position(conn)
            offers = [dict(row) for row in conn.execute(select(nodes)).mappings()]
            unfinished = conn.execute(
                _JOBS.where(jobs.c.state.not_in(sorted(TERMINAL))).order_by(jobs.c.number)
            )
            ended = conn.execute(
                _JOBS.where(jobs.c.state == "succeeded")
                .order_by(jobs.c.number.desc())
                .limit(_REMEMBERED)
            )
            placements = {
                row["job_id"]: dict(row)
                for row in conn.execute(_PLACEMENTS.where(attempts.c.state != "over")).mappings()
            }
            return (
                cursor, self._rules(conn), offers, [dict(r) for r in unfinished.mappings()],
                [dict(row) for row in ended.mappings()], placements,
            )  # fmt: skip

        self._cursor, told, offers, unfinished, ended, placements = await self._store.read(
            snapshot
        )
        self._spent = await self._store.read(budgets.spent)  # what comes later will be heard of
        self._core = Core(told)
        self._events, self._due, self._fences, self._resizing = [], [], {}, {}
        self._used = {}
        self._events += await self._store.read(lately.remembered)
        self._unpaid = {}
        self._names = {row["id"]: (row["project"], row["name"]) for row in unfinished}
        self._histories = Histories()
        for row in reversed(ended):
            self._learn(row)
        self._offers(offers)
        # Who holds resources first: nothing may start on what is taken.
        for row in unfinished:
            if row["state"] in LIVE and row["id"] in placements:
                async with self._alone(row):
                    self._restore(row, placements[row["id"]])
        await self._settle([row for row in unfinished if row["state"] not in LIVE])
        self._events += promised.remembered(unfinished)
        if any(row["state"] == JobState.HELD for row in unfinished):
            await self._follow()

    def _rules(self, conn: Connection) -> Rules:
        found: dict[str, Unreadable] = {}
        told = rules(conn, self._base, found.__setitem__)
        gone = [name for name in self._unreadable if name.startswith("quota ")]
        for name in gone:
            if name.removeprefix("quota of ") not in found:
                self._tell_of(name, None)
        for name, err in found.items():
            self._tell_of(f"quota of {name}", err)
        return told

    async def _hear(self) -> None:
        """Bring the core up to what was committed since. The events say which jobs to look at;
        their rows say what is so: hearing twice or late changes nothing."""
        more = True
        while more:

            def news(
                conn: Connection, cursor: int = self._cursor
            ) -> tuple[int, list[Row], list[Row], set[str], Rules | None, bool]:
                events = feed.after(conn, cursor, limit=_BATCH)
                if not events:
                    return cursor, [], [], set(), None, False
                touched = {event.job_id for event in events if event.job_id}
                touched |= {event.data["job"] for event in events if _is_removal(event)}
                rows = _rows(conn, touched)
                gone = touched - {row["id"] for row in rows}
                kinds = {event.kind for event in events}
                offers = (
                    [dict(row) for row in conn.execute(select(nodes)).mappings()]
                    if "node" in kinds
                    else []
                )
                told = self._rules(conn) if "rules" in kinds else None
                # Fewer than asked for: who commits now rings for the next turn.
                more = len(events) == _BATCH
                return int(events[-1].position), rows, offers, gone, told, more

            cursor, rows, offers, gone, told, more = await self._store.read(news)
            if cursor == self._cursor:
                return
            self._cursor = cursor
            if told is not None:
                self._events.append(told)
                await self._hear_budgets()
            self._offers(offers)
            for job_id in sorted(gone):  # removed before its end was heard of
                self._release(job_id)
                self._names.pop(job_id, None)
                self._unpaid.pop(job_id, None)
            await self._settle(rows)
            ended = [row["id"] for row in rows if row["state"] in TERMINAL]
            # Those that one waits for may have ended while it was being submitted.
            ended += [row["id"] for row in rows if _waits_for_others(row)]
            if ended or gone:
                await self._follow([*ended, *sorted(gone)])

    async def _hear_budgets(self) -> None:
        """Of who has spent its budget, or has room again, all that waits is looked at anew."""
        old = self._spent
        self._spent, ids = await self._store.read(lambda conn: budgets.news(conn, old))
        for at in range(0, len(ids), _BATCH):
            some = ids[at : at + _BATCH]
            await self._settle(await self._store.read(partial(_rows, ids=some)))

    def _offers(self, offers: Sequence[Row]) -> None:
        for row in offers:
            self._engine_of[row["name"]] = row["engine"]
            told = f"node {row['name']}"
            if row["state"] == "ready":
                try:
                    node = as_model(Node, row["offer"], "offer")
                except Unreadable as err:  # nothing starts there until its engine offers it anew
                    self._tell_of(told, err)
                    self._events.append(NodeDown(row["name"]))
                    continue
                self._gpu_ids[node.name] = node.gpu_ids
                self._places[node.name] = (node.pool or node.engine, node.gpu_model)
                self._events.append(NodeUp(asking.offer_of(node)))
            else:
                self._events.append(NodeDown(row["name"]))
            self._tell_of(told, None)

    def _tell_of(self, name: str, err: Unreadable | None) -> None:
        """Of a node or a quota, which nobody tries again: told of until it is another."""
        if err is None:
            self._unreadable.pop(name, None)
            self._handling.well(name)
        else:
            self._unreadable[name] = err
            self._handling.waits(name, err)

    async def _settle(self, rows: Sequence[Row]) -> None:
        """Make the core agree with jobs' rows, and carry out the wishes on waiting jobs."""
        wished = [row["id"] for row in rows if row["wish"] and row["state"] in waiting.WAITING]
        moved: dict[str, Row | None] = {}
        for at in range(0, len(wished), _TOGETHER):
            some = wished[at : at + _TOGETHER]
            try:
                moved |= await self._write(waiting.carry_out, some)
            except (Fenced, Unavailable):
                raise
            except Exception:  # of one of them: each by itself
                for job_id in some:
                    moved[job_id] = None
                    async with self._alone({"id": job_id}):
                        moved |= await self._write(waiting.carry_out, [job_id])
        for row in rows:
            if row["id"] in moved:
                new = moved[row["id"]]
                if new is None:
                    self._release(row["id"])
                    continue
                row = {**row, **new}
            async with self._alone(row):
                await self._agree(row)

    @asynccontextmanager
    async def _alone(self, row: Row) -> AsyncIterator[None]:
        """What fails here is of this job: one that cannot be read is set aside, another is put
        off. The core then holds nothing of it but what it has taken."""
        job_id = row["id"]
        try:
            yield
        except (Fenced, Unavailable):
            raise
        except Unreadable as err:
            self._events.append(Withdraw(job_id))
            try:
                await self._write(waiting.set_aside, job_id, err.message)
            except (Fenced, Unavailable):
                raise
            except Exception as failed:
                self._put_off(job_id, failed)
            self._started(job_id)  # one that runs is reconcile's
        except Exception as err:
            self._events.append(Withdraw(job_id))
            self._put_off(job_id, err)
        else:
            self._handling.well(job_id)

    def _put_off(self, job_id: str, err: Exception) -> None:
        """It is looked at again: soon where somebody else only wrote meanwhile."""
        again = isinstance(err, Conflict) and not isinstance(err, UnlawfulMove)
        wait_ms = _AGAIN_MS if again else self._handling.failed(job_id, err)
        heapq.heappush(self._due, (self._clock.now_ms() + wait_ms, job_id))

    async def _agree(self, row: Row) -> None:
        """Make the core agree with a job's row, which has no wish to carry out here."""
        state = JobState(row["state"])
        self._unpaid.pop(row["id"], None)
        if state in TERMINAL:
            self._names.pop(row["id"], None)
        else:
            self._names[row["id"]] = (row["project"], row["name"])
        if state in LIVE:
            if self._fences.get(row["id"]) != row["fence"]:
                await self._hold(row)
            if row["wish"]:
                self._started(row["id"])  # not ours: its owner looks
            return
        if state is JobState.QUEUED and row["id"] in self._resizing and row["id"] in self._fences:
            await self._start_again(row)
            return
        self._release(row["id"])
        if state is JobState.SUCCEEDED:
            self._learn(row)
        waits_until = _waits_until(row, state)
        if waits_until > self._clock.now_ms():
            self._events.append(Withdraw(row["id"]))
            heapq.heappush(self._due, (waits_until, row["id"]))
        elif state is JobState.QUEUED and (why := self._spent.why(row["project"], row["user"])):
            self._unpaid[row["id"]] = Reason("budget-spent", why)
            self._events.append(Withdraw(row["id"]))
        elif state is JobState.QUEUED:
            self._events.append(self._asked(row))
        else:
            self._events.append(Withdraw(row["id"]))
            if waits_until:  # a held job whose time has come
                await self._write(waiting.release, row["id"], "its time has come")

    async def _hold(self, row: Row) -> None:
        """Another server, or a write whose outcome we did not learn, has started it."""

        def look(conn: Connection) -> Row | None:
            found = conn.execute(
                _PLACEMENTS.where(
                    attempts.c.state != "over",
                    attempts.c.job_id == row["id"],
                    attempts.c.number == row["fence"],
                )
            )
            first = found.mappings().first()
            return None if first is None else dict(first)

        held = await self._store.read(look)
        if held is not None:  # else it is over, and its event will be heard
            self._release(row["id"])
            self._restore(row, held)

    def _restore(self, row: Row, held: Row) -> None:
        """Raises Unreadable without its placement; what it holds is then not known."""
        leaving = row["wish"] == "preempt"
        placement = placement_of(held)
        try:
            asked = self._asked(row)
        except Unreadable:  # it holds its seats all the same, until it is ended
            asked = asking.submit_of(row, asking.as_placed(placement), None)
        self._events.append(
            Restore(
                asked,
                asking.seats_of(placement, self._gpu_ids),
                started_ms=held["created_ms"],
                leaving=leaving,
                leaving_for=(row["wish_for"] or "") if leaving else "",
                resized_ms=row["resized_ms"],
            )
        )
        self._fences[row["id"]] = held["number"]  # last: what failed before is tried again

    def _release(self, job_id: str) -> None:
        """What it holds is free."""
        self._resizing.pop(job_id, None)
        if self._fences.pop(job_id, None) is not None:
            self._events.append(Release(job_id))

    def _asked(self, row: Row) -> Submit:
        spec = spec_of(row)
        expected = None if spec.limits.time is None else spec.limits.time + spec.limits.grace
        if expected is None:
            expected = self._histories.alike(row["project"], row["user"], _likeness(spec))
        return asking.submit_of(row, spec, expected)

    def _learn(self, row: Row) -> None:
        """Only from those that ended well by themselves: others ran as long as something let
        them."""
        if row["started_ms"] is not None and row["ended_ms"] is not None:
            try:
                spec = spec_of(row)
            except Unreadable:
                return  # nothing is learnt from it; `show` says why
            ran = max(1, row["ended_ms"] - row["started_ms"])
            self._histories.ended(row["project"], row["user"], _likeness(spec), ran)

    async def _follow(self, ids: Sequence[str] | None = None) -> None:
        """Jobs that wait for others which are over; `ids`: some that either may be among."""
        over = await self._store.read(lambda conn: dependencies.overdue(conn, ids))
        for at in range(0, len(over), _TOGETHER):
            try:
                await self._write(waiting.meet, over[at : at + _TOGETHER])
            except (Fenced, Unavailable):
                raise
            except Exception:  # of one of them: each by itself
                for one in over[at : at + _TOGETHER]:
                    async with self._alone({"id": one.job_id}):
                        await self._write(waiting.meet, [one])

    async def _write(self, fn: Callable[..., T], *words: Any) -> T:
        """A transaction of `waiting`, if this server leads."""

        def write(conn: Connection) -> T:
            self._guard(conn)
            return fn(conn, *words, self._clock.now_ms(), self._ttl_ms)

        return await self._store.write(write)

    async def _wake_due(self) -> None:
        now = self._clock.now_ms()
        due = []
        while self._due and self._due[0][0] <= now:
            due.append(heapq.heappop(self._due)[1])
        if due:
            await self._settle(await self._store.read(lambda conn: _rows(conn, due)))

    # Deciding and committing

    def _decide(self) -> list[Decision]:
        assert self._core is not None
        events, self._events = self._events, []
        return self._core.apply(events, self._clock.now_ms())

    async def _commit(self, decisions: Sequence[Decision]) -> None:
        """Write what the core decided; one that no longer holds is taken back. All are waited
        for, so that none goes on over a core that was built anew meanwhile."""
        tasks = [
            self._one(decision) for decision in decisions if not isinstance(decision, Promise)
        ]
        promises = [decision for decision in decisions if isinstance(decision, Promise)]
        if promises:
            tasks.append(self._note(promises))
        if len(tasks) == 1:
            await tasks[0]
            return
        written = await asyncio.gather(*tasks, return_exceptions=True)
        for error in written:
            if error is not None:
                raise error

    async def _note(self, promises: Sequence[Promise]) -> None:
        """What was promised is told to the next core; nothing of the job's own row changes."""

        def write(conn: Connection) -> None:
            self._guard(conn)
            promised.note(conn, promises, self._clock.now_ms())

        await self._store.write(write)

    async def _one(self, decision: Decision) -> None:
        job_id = decision.job_id
        try:
            match decision:
                case Start(seats=seats, reason=reason):
                    failpoints.passing("before-start-commit")
                    fence = await self._store.write(
                        lambda conn: self._start(conn, job_id, seats, reason)
                    )
                    failpoints.passing("after-start-commit")
                    self._fences[job_id] = fence
                case Preempt(beneficiary=beneficiary, reason=reason):
                    await self._store.write(
                        lambda conn: self._wish(conn, job_id, "preempt", reason, beneficiary)
                    )
                    failpoints.passing("after-preempt-commit")
                case Resize(seats=seats, reason=reason):
                    await self._store.write(
                        lambda conn: self._wish(conn, job_id, "resize", reason, "")
                    )
                    self._resizing[job_id] = seats
                case _:
                    return
        except (Fenced, Unavailable):
            raise  # another server leads, or nobody can: nothing here is ours to settle
        except Exception as err:
            self._fences.setdefault(job_id, 0)  # whatever the core gave it is free again
            self._release(job_id)
            if isinstance(err, Conflict | NotFound) and not isinstance(err, UnlawfulMove):
                await self._settle(await self._store.read(lambda conn: _rows(conn, [job_id])))
                return
            async with self._alone({"id": job_id}):
                raise
        else:
            self._handling.well(job_id)
            self._started(job_id)

    def _start(self, conn: Connection, job_id: str, seats: Sequence[Seat], reason: str) -> int:
        self._guard(conn)
        job = moves.load(conn, job_id)
        if job["state"] != JobState.QUEUED or job["wish"]:
            raise Conflict("it is no longer waiting")
        names = sorted({seat.node for seat in seats})
        attempt = {
            **self._new_attempt(),
            "engine": self._engine_of.get(names[0], "local"),
            "placement": asking.placed_of(seats, self._gpu_ids),
        }
        where = names[0] if len(names) == 1 else f"{len(names)} nodes"
        told = f"placed on {where}" + ("" if reason == "its turn" else f"; {reason}")
        job, _ = moves.start_attempt(
            conn, job, attempt, reason=told, now_ms=self._clock.now_ms(), places=self._places
        )
        return int(job["fence"])

    async def _start_again(self, row: Row) -> None:
        """It was stopped to be given other seats, which the core has kept for it."""
        seats = self._resizing.pop(row["id"])
        self._events.append(Resized(row["id"]))
        await self._one(Start(row["id"], seats, f"resized to {len(seats)} members"))

    def _wish(
        self, conn: Connection, job_id: str, wish: str, reason: str, beneficiary: str
    ) -> None:
        """Of a job that runs: reconcile stops it, and it waits again."""
        self._guard(conn)
        job = moves.load(conn, job_id)
        if job["state"] not in LIVE:
            raise Conflict("it does not run any more")
        if job["wish"]:
            return  # it is ending already
        reason = self._named(reason, job_id)
        columns: Row = {"wish": wish, "wish_reason": reason, "wish_now": 0}
        if wish == "preempt":
            columns |= {"wish_for": beneficiary, "preemptions": job["preemptions"] + 1}
        else:
            columns["resized_ms"] = self._clock.now_ms()
        moves.note(
            conn, job, "wished", reason=reason, now_ms=self._clock.now_ms(),
            data={"wish": wish, "for": self._told(beneficiary, job_id), "by": "scheduler"},
            **columns,
        )  # fmt: skip


_COLUMNS = (
    jobs.c.id, jobs.c.number, jobs.c.name, jobs.c.state, jobs.c.wish, jobs.c.wish_for,
    jobs.c.spec, jobs.c.not_before_ms, jobs.c.fence, jobs.c.queue, jobs.c.priority,
    jobs.c.order_ms, jobs.c.kind, jobs.c.preemptions, jobs.c.started_ms, jobs.c.ended_ms,
    jobs.c.queued_ms, jobs.c.promised, jobs.c.resized_ms,
    projects.c.name.label("project"), users.c.name.label("user"),
)  # fmt: skip
_JOBS: Select[Any] = (
    select(*_COLUMNS)
    .join(projects, projects.c.id == jobs.c.project_id)
    .join(users, users.c.id == jobs.c.user_id)
)
_ROWS = _JOBS.where(jobs.c.id.in_(bindparam("ids", expanding=True))).order_by(jobs.c.number)
_PLACEMENTS = select(
    attempts.c.job_id, attempts.c.number, attempts.c.placement, attempts.c.created_ms
).join_from(attempts, jobs, (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.fence))


def _rows(conn: Connection, ids: Iterable[str]) -> list[Row]:
    return [dict(row) for row in conn.execute(_ROWS, {"ids": sorted(ids)}).mappings()]


def _waits_until(row: Row, state: JobState) -> int:
    """0: it waits for no time."""
    if state is JobState.QUEUED:
        return int(row["not_before_ms"])
    if state is JobState.HELD and not spec_of(row).hold:
        return waiting.begin(row)
    return 0


def _is_removal(event: Any) -> bool:
    return event.kind == "removed" and not isinstance(event.data, Garbled)


def _waits_for_others(row: Row) -> bool:
    try:
        return row["state"] == JobState.HELD and bool(spec_of(row).after)
    except Unreadable:
        return False


def _likeness(spec: JobSpec) -> str:
    """By the name its user gave it: an invented one says nothing."""
    return likeness(spec.name or "", spec.run)
