"""Removal takes all that is a job's, leaves the writer to others, and goes on all the same."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from sqlalchemy import Connection, Table, func, insert, select, update

from windlass.core.errors import Conflict
from windlass.engines.base import Engine
from windlass.server import feed
from windlass.server.clock import SystemClock
from windlass.server.events.tables import events
from windlass.server.jobs import expire as expiry
from windlass.server.jobs import removal, tables
from windlass.server.jobs.expire import _BUSY_SHARE, _PATIENCE_SECONDS, _QUIET_SECONDS, Expire
from windlass.server.runs.tables import tracking as tracking_tables
from windlass.server.settings import DAY_MS
from windlass.server.storage.reading import Shelf
from windlass.server.store.base import Store
from windlass.server.store.inline import InlineStore

T = TypeVar("T")


class Watched:
    """The store as removal sees it, with word of what it did there."""

    def __init__(self, store: Store, quiet_seconds: float = math.inf) -> None:
        self._store = store
        self._quiet_seconds = quiet_seconds
        self.removed: list[int] = []
        """How many rows of jobs, then of events, went in each transaction."""

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self._store.read(fn)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        def counted(conn: Connection) -> tuple[T, int]:
            before = _rows(conn, tables.jobs) + _rows(conn, events)
            result = fn(conn)
            return result, before - _rows(conn, tables.jobs) - _rows(conn, events)

        result, removed = await self._store.write(counted)
        self.removed.append(removed)
        return result

    def quiet_seconds(self) -> float:
        return self._quiet_seconds


class Engines:
    """Knows the files of attempts; those of some cannot be removed, those of all take a while."""

    def __init__(self, stuck: set[str] = frozenset(), seconds: float = 0.0) -> None:  # type: ignore[assignment]
        self._stuck = stuck
        self._seconds = seconds

    async def forget(self, attempt_id: str) -> None:
        await asyncio.sleep(self._seconds)
        if attempt_id in self._stuck:
            raise Conflict(f"attempt {attempt_id} runs")


@pytest.fixture
def tracked() -> Iterator[InlineStore]:
    store = InlineStore()
    asyncio.run(store.write(lambda conn: tracking_tables.create_all(conn)))
    yield store
    asyncio.run(store.close())


def _rows(conn: Connection, table: Table) -> int:
    return int(conn.execute(select(func.count()).select_from(table)).scalar_one())


def _removing(store: Any, tracked: Store, folder: Path, engine: Engines | None = None) -> Expire:
    engines = cast(dict[str, Engine], {} if engine is None else {"local": engine})
    return Expire(
        store, tracked, SystemClock(), engines, guard=lambda conn: None,
        job_folder=lambda job: folder / job, shelf=Shelf(store, None),
    )  # fmt: skip


def _finished(tenancy: Any, count: int) -> list[str]:
    """Jobs with one attempt each, whose time is over in this order."""
    ids = [tenancy.submit(f"j{number}") for number in range(count)]

    def end(conn: Connection) -> None:
        for number, job in enumerate(ids):
            conn.execute(
                update(tables.jobs)
                .where(tables.jobs.c.id == job)
                .values(state="succeeded", expires_ms=number + 1)
            )
            conn.execute(insert(tables.attempts).values(_attempt(job)))

    tenancy.write(end)
    return ids


def _attempt(job: str) -> dict[str, Any]:
    return {
        "id": job, "job_id": job, "number": 1, "state": "over", "engine": "local",
        "placement": [], "worker_hash": job, "run_hash": job, "tokens": b"", "kek": "",
        "created_ms": 0,
    }  # fmt: skip


def test_nothing_of_a_removed_job_stays(tenancy):
    going, stays = _finished(tenancy, 3)[1:], "j0"

    def surround(conn: Connection) -> None:
        for job in conn.execute(select(tables.jobs.c.id)).scalars().all():
            one = {"attempt_id": job, "node": "a"}
            conn.execute(insert(tables.workers).values(one))
            conn.execute(
                insert(tables.orders).values(**one, id=1, kind="end", body={}, asked_ms=0)
            )
            conn.execute(
                insert(tables.checkpoints).values(
                    job_id=job, path="p", attempt=1, step=1, digest="", bytes=1, registered_ms=0
                )
            )
            conn.execute(insert(tables.dependencies).values(job_id=job, after_id="x", name="x"))
            conn.execute(
                insert(tables.starts).values(
                    job_id=job, kind="model", resume=0, source_name="m", digest="", name="",
                    files=[], lineage=[],
                )
            )  # fmt: skip
            conn.execute(
                insert(tables.idempotency).values(
                    project_id="p", user_id="u", key=job, digest="", status=201, answer={},
                    job_id=job,
                )
            )  # fmt: skip

    tenancy.write(surround)
    tenancy.write(lambda conn: removal.remove_rows(conn, going, 5))
    children = [table for table in vars(tables).values() if isinstance(table, Table)]
    assert len(children) >= 7
    left = tenancy.read(lambda conn: {table.name: _rows(conn, table) for table in children})
    assert set(left.values()) == {1}, left
    names = tenancy.read(lambda conn: conn.execute(select(tables.jobs.c.name)).scalars().all())
    assert names == [stays]
    assert sorted(told["data"]["job"] for told in tenancy.told("removed")) == sorted(going)


def test_each_transaction_of_a_removal_is_small(tenancy, tracked, tmp_path):
    """A submit that comes meanwhile waits for one of them."""
    _finished(tenancy, 120)
    watched = Watched(tenancy.store)
    asyncio.run(_removing(watched, tracked, tmp_path).turn())
    assert tenancy.read(lambda conn: _rows(conn, tables.jobs)) == 0
    assert len(watched.removed) > 120 / expiry.BATCH
    # Of each job: itself and its event; one is added that says that it is gone.
    assert max(watched.removed) <= expiry.BATCH


def test_jobs_that_cannot_go_do_not_hold_up_the_others(tenancy, tracked, tmp_path):
    ids = _finished(tenancy, 12)
    stuck = ids[:6]  # more than the first batch, and the first whose time was over
    removing = _removing(tenancy.store, tracked, tmp_path, Engines(set(stuck)))
    due_ms = asyncio.run(asyncio.wait_for(removing.turn(), 60))
    left = tenancy.read(lambda conn: conn.execute(select(tables.jobs.c.id)).scalars().all())
    assert set(left) == set(stuck)
    assert due_ms == 60_000


def test_old_events_of_no_job_go_by_age_a_few_at_a_time(tenancy, tracked, tmp_path):
    now = SystemClock().now_ms()

    def tell(conn: Connection) -> None:
        for at_ms, many in ((now - 8 * DAY_MS, 500), (now - 6 * DAY_MS, 300)):
            for _ in range(many):
                feed.append(
                    conn, job_id=None, project_id="", seq=0, attempt=None, kind="removed",
                    at_ms=at_ms, state=None, reason="", data={"job": "x"},
                )  # fmt: skip

    tenancy.write(tell)
    watched = Watched(tenancy.store)
    asyncio.run(_removing(watched, tracked, tmp_path).turn())
    assert watched.removed == [200, 200, 100]
    assert {told["at_ms"] for told in tenancy.told("removed")} == {now - 6 * DAY_MS}


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_slow_files_do_not_slow_the_removal_down_a_hundred_times(tenancy, tracked, tmp_path):
    """Others write all the time. What the files take is nobody's time but the removal's own: it
    used to be paid back a hundred times too, and next to nothing was removed."""
    _finished(tenancy, 8)
    watched = Watched(tenancy.store, quiet_seconds=0.0)
    removing = _removing(watched, tracked, tmp_path, Engines(seconds=0.1))
    asyncio.run(asyncio.wait_for(removing.turn(), 60))
    assert tenancy.read(lambda conn: _rows(conn, tables.jobs)) == 0


@pytest.mark.parametrize(
    ("quiet_seconds", "behind", "at_least", "at_most"),
    [
        (math.inf, 0.0, _QUIET_SECONDS, 0.5),  # nobody else: the next batch follows soon
        (0.0, 0.0, 0.01 / _BUSY_SHARE * 0.9, 0.01 / _BUSY_SHARE * 5),  # others all the time
        (0.0, 9 * _PATIENCE_SECONDS, 0.01 / _BUSY_SHARE * 0.09, 0.01 / _BUSY_SHARE * 0.5),
    ],
    ids=["nobody-else", "others-all-the-time", "others-all-the-time-and-far-behind"],
)
def test_removal_waits_longer_while_others_write_unless_it_falls_behind(
    quiet_seconds: float, behind: float, at_least: float, at_most: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By a clock that only its own waits move."""
    waited = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal waited
        waited += seconds

    monkeypatch.setattr(expiry, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(expiry, "time", SimpleNamespace(monotonic=lambda: waited))
    removing = _removing(Watched(cast(Any, None), quiet_seconds), cast(Any, None), Path())
    asyncio.run(removing._leave_room(0.01, 0.01, behind))
    assert at_least <= waited <= at_most


def test_a_folder_goes_whatever_its_ranks_planted_there(tmp_path):
    job = tmp_path / "jobs" / "one"
    deep = job
    for _ in range(1200):  # deeper than a recursion
        deep = deep / "d"
        try:
            deep.mkdir(parents=True)
        except OSError:  # the path is too long for one call
            break
    (job / "closed").mkdir()
    (job / "closed" / "file").write_text("")
    (job / "closed").chmod(0)
    (job / "away").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    removal.remove_folder(job)
    assert not job.exists() and (tmp_path / "kept").exists()
    removal.remove_folder(job)  # again: nothing to do
