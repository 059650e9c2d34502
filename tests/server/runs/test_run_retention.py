"""Runs that no job made go when nobody writes to them for as long as finished jobs are kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runs_scene import PROJECT, Runs, run_id
from sqlalchemy import insert, select

from windlass.server.artifacts.tables import artifacts
from windlass.server.runs import caps, retention
from windlass.server.runs.retention import Retention
from windlass.server.runs.tables import logged_models, points, run_marks
from windlass.server.runs.tables import runs as run_rows
from windlass.server.store.inline import InlineStore
from windlass.server.store.metadata import metadata

TTL = 1000


class Clock:
    now = 10_000

    def now_ms(self) -> int:
        return self.now


@pytest.fixture
def scene(runs: Runs) -> Any:
    control, clock = InlineStore(), Clock()
    asyncio.run(control.write(lambda conn: metadata.create_all(conn, tables=[artifacts])))
    loop = Retention(control, runs.store, clock, ttl_ms=TTL, guard=lambda conn: None)
    yield runs, control, clock, lambda: asyncio.run(loop.turn())
    asyncio.run(control.close())


def left(runs: Runs) -> set[int]:
    ids = runs.read(lambda conn: conn.execute(select(run_rows.c.id)).scalars().all())
    return {int(each, 16) for each in ids}


def laptop(runs: Runs, number: int, **facts: Any) -> str:
    return runs.run(number, source="mlflow", job_id=None, **facts)


def test_who_is_not_written_to_goes_and_jobs_runs_stay(scene: Any) -> None:
    runs, control, clock, turn = scene
    runs.run(1)
    old = laptop(runs, 2, started_ms=1, ended_ms=2)
    laptop(runs, 3, status="RUNNING")
    runs.log(old, [(1, 1, 0.5)])
    model = {
        "id": "m-1", "project_id": PROJECT, "experiment_id": "0", "name": "m", "run_id": old,
        "status": "READY", "created_ms": 1, "updated_ms": 1, "state": "active",
    }  # fmt: skip
    runs.write(lambda conn: conn.execute(insert(logged_models).values(model)) and None)
    file = {"project_id": PROJECT, "digest": "d" * 64, "size": 1, "changed_ms": 1, "path": "x"}
    rows = [{**file, "owner_id": owner} for owner in (old, "m-1", run_id(1))]
    asyncio.run(control.write(lambda conn: conn.execute(insert(artifacts), rows) and None))
    turn()
    clock.now += TTL - 1
    turn()
    assert left(runs) == {1, 2, 3}, "what a client says of its times counts for nothing"
    clock.now += 1
    assert turn() == TTL
    assert left(runs) == {1}
    for table in (points, run_marks, logged_models):
        assert runs.read(lambda conn, table=table: conn.execute(select(table)).all()) == []
    kept = asyncio.run(
        control.read(lambda conn: conn.execute(select(artifacts.c.owner_id)).scalars().all())
    )
    assert kept == [run_id(1)]


@pytest.mark.parametrize("what", ["points", "tag", "end"])
def test_who_is_written_to_stays_as_long_again(scene: Any, what: str) -> None:
    runs, _, clock, turn = scene
    run = laptop(runs, 2, status="RUNNING")
    turn()
    clock.now += TTL // 2
    if what == "points":
        runs.log(run, [(1, 1, 0.5)])
    elif what == "tag":
        runs.write(lambda conn: caps.tell(conn, run, "words"))
    else:
        ended = run_rows.update().where(run_rows.c.id == run).values(ended_ms=5)
        runs.write(lambda conn: conn.execute(ended) and None)
    clock.now += TTL // 2
    turn()
    assert left(runs) == {2}
    clock.now += TTL
    turn()
    assert left(runs) == set()


def test_many_are_marked_and_removed_in_pages(scene: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(retention, "_PAGE", 3)
    runs, _, clock, turn = scene
    for number in range(10):
        laptop(runs, number)
    turn()
    runs.log(run_id(4), [(1, 1, 0.5)])
    clock.now += TTL
    turn()
    assert left(runs) == {4}
