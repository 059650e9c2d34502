"""The table of jobs: what a page of it holds, in which order, whichever database a clause is
about."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from windlass.core.access import CallerKind, Principal
from windlass.core.errors import InvalidInput
from windlass.server.access.tables import projects, users
from windlass.server.jobs import table
from windlass.server.jobs.tables import jobs
from windlass.server.runs import jobs as run_rows
from windlass.server.runs import latest
from windlass.server.runs.tables import params
from windlass.server.runs.tables import tracking as tracking_tables
from windlass.server.store.base import Store
from windlass.server.store.open import open_store

MINE, OTHER = "a" * 32, "b" * 32
NOW = 10_000_000
WHO = Principal(kind=CallerKind.USER, project_id=MINE, project_name="mine")


def job_id(number: int) -> str:
    return f"{number:032x}"


def job(number: int, **columns: Any) -> dict[str, Any]:
    return {
        "id": job_id(number), "project_id": MINE, "user_id": "1" * 32, "name": f"job-{number}",
        "state": "succeeded", "reason": "", "revision": 1, "framework": "python", "queue": "main",
        "priority": 50, "order_ms": 1, "kind": "train", "members": 1, "gpus": 0,
        "spec": {"run": ["true"]}, "submitted_ms": number * 1000, "started_ms": 0, "ended_ms": 1,
        "not_before_ms": 0, "exit_code": 0, "outcome": "succeeded", **columns,
    }  # fmt: skip


JOBS = [
    job(1, state="failed", outcome="failed", exit_code=3, ended_ms=7_200_000),
    job(2, user_id="2" * 32, gpus=8),
    job(3, name="resnet-a"),
    job(4, name="resnet-b", started_ms=None, ended_ms=None, state="queued", outcome=None),
    job(5, project_id=OTHER, name="theirs"),
]
RUNS = {1: (0.5, "0.1"), 2: (0.2, "1e-1"), 3: (0.9, "adam"), 5: (0.1, "0.1")}


class Scene:
    def __init__(self, store: Store, tracking: Store) -> None:
        self.store, self.tracking = store, tracking

    def page(self, **asked: Any) -> table.Found:
        question = table.Asked(**asked)
        return asyncio.run(table.page(self.store, self.tracking, WHO, question, NOW))

    def numbers(self, **asked: Any) -> list[int]:
        return [int(row["id"], 16) for row in self.page(**asked).rows]


def fill(conn: Connection) -> None:
    for place, (name, key) in enumerate((("mine", MINE), ("other", OTHER))):
        conn.execute(insert(projects).values(id=key, name=name, created_ms=place))
    for digit, name in (("1", "ann"), ("2", "bob")):
        conn.execute(insert(users).values(id=digit * 32, name=name, created_ms=1))
    conn.execute(insert(jobs), JOBS)


def fill_runs(conn: Connection) -> None:
    for number, (loss, lr) in RUNS.items():
        project = OTHER if number == 5 else MINE
        run = job_id(number)
        run_rows.ensure(
            conn, run, project_id=project, name="x", user="ann", started_ms=number * 1000
        )
        point = {"run_id": run, "attempt": 1, "rank": 0, "offset": 1, "step": 1, "at_ms": 1}
        latest.add(conn, [{**point, "key": "loss", "value": loss}], "windlass.log")
        conn.execute(insert(params).values(run_id=run, key="lr", value=lr))


@pytest.fixture
def scene(store: Store, migrated_url: str, tmp_path: Path) -> Iterator[Scene]:
    on_file = f"sqlite:///{tmp_path}/tracking.db"
    url = migrated_url if store.dialect == "postgresql" else on_file
    tracking = asyncio.run(open_store(url, migrate=False, create=tracking_tables))
    asyncio.run(store.write(fill))
    asyncio.run(tracking.write(fill_runs))
    yield Scene(store, tracking)
    asyncio.run(tracking.close())


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ({}, [4, 3, 2, 1]),
        ({"filter": "state = failed"}, [1]),
        ({"filter": "state in (failed, queued)"}, [4, 1]),
        ({"filter": "outcome != failed"}, [3, 2]),
        ({"filter": "name like 'resnet%'"}, [4, 3]),
        ({"filter": "user = bob"}, [2]),
        ({"filter": "gpus >= 8"}, [2]),
        ({"filter": "exit_code = 3"}, [1]),
        ({"filter": "duration > 2h"}, []),
        ({"filter": "duration >= 2h"}, [1]),
        ({"filter": "duration > 60 and state = failed"}, [1]),
        ({"filter": "submitted < 1970-01-01T00:00:02.500"}, [2, 1]),
        ({"filter": "metrics.loss < 0.6"}, [2, 1]),
        ({"filter": "metrics.loss < 0.6 and user = ann"}, [1]),
        ({"filter": "params.lr = 0.1"}, [2, 1]),
        ({"filter": "params.lr = adam"}, [3]),
        ({"sort": "metrics.loss"}, [2, 1, 3, 4]),
        ({"sort": "-metrics.loss"}, [3, 1, 2, 4]),
        ({"sort": "metrics.loss", "filter": "state = succeeded"}, [2, 3]),
        ({"sort": "name"}, [1, 2, 3, 4]),
        ({"sort": "-duration"}, [1, 3, 2, 4]),
        ({"sort": "-user"}, [2, 4, 3, 1]),
        ({"sort": "-gpus", "filter": "metrics.loss > 0"}, [2, 3, 1]),
        ({"states": ("failed",)}, [1]),
        ({"name": "resnet-a"}, [3]),
        ({"user": "bob"}, [2]),
    ],
)
def test_it_holds_what_was_asked_for_in_order(scene: Scene, asked: Any, numbers: list[int]):
    if "states" in asked:
        asked = {"states": tuple(table.JobState(state) for state in asked["states"])}
    found = scene.page(**asked)
    assert [int(row["id"], 16) for row in found.rows] == numbers
    assert found.total == len(numbers) and found.following is None


@pytest.mark.parametrize(
    "asked",
    [{}, {"sort": "name"}, {"sort": "-metrics.loss"}, {"filter": "metrics.loss > 0"},
     {"filter": "state != cancelled"}],
)  # fmt: skip
def test_pages_hold_each_job_once(scene: Scene, asked: Any) -> None:
    whole = scene.numbers(**asked)
    found: list[int] = []
    before = None
    for turn in range(10):
        page = scene.page(**asked, before=before, limit=1)
        found += [int(row["id"], 16) for row in page.rows]
        assert page.total == (len(whole) if turn == 0 else None)
        before = page.following
        if before is None:
            break
    assert found == whole


@pytest.mark.parametrize(
    ("filter", "sort", "counts"),
    [
        ("", "", {"failed": 1, "succeeded": 2, "queued": 1}),
        ("user = ann", "", {"failed": 1, "succeeded": 1, "queued": 1}),
        ("metrics.loss > 0", "", {"failed": 1, "succeeded": 2}),
        ("", "metrics.loss", {"failed": 1, "succeeded": 2, "queued": 1}),
    ],
)
def test_the_first_page_says_how_many_are_in_each_state(
    scene: Scene, filter: str, sort: str, counts: dict[str, int]
) -> None:
    failed = (table.JobState.FAILED,)
    found = scene.page(filter=filter, sort=sort, states=failed)
    assert found.states == counts, "whichever states were asked for"
    assert found.total == 1 and [int(row["id"], 16) for row in found.rows] == [1]
    first = scene.page(filter=filter, sort=sort, limit=1)
    assert scene.page(filter=filter, sort=sort, before=first.following).states is None


def test_columns_are_filled_where_a_run_told_them(scene: Scene) -> None:
    found = scene.page(columns=("params.lr", "metrics.loss"))
    assert found.params[job_id(2)]["lr"]["value"] == "1e-1"
    assert found.metrics[job_id(2)]["loss"]["last"] == 0.2
    assert job_id(4) not in found.metrics, "it never ran"
    assert job_id(5) not in found.metrics, "another project's"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"filter": "stat = failed"}, "no 'stat'; known: metrics"),
        ({"filter": "state = done"}, "no 'done'; known: held, queued"),
        ({"filter": "gpus = many"}, "gpus: a number"),
        ({"filter": "gpus = 1e300"}, "gpus: a number"),
        ({"filter": "gpus like '1%'"}, "gpus is no text"),
        ({"filter": "duration > soon"}, "duration: seconds"),
        ({"filter": "submitted > soon"}, "submitted: an ISO-8601 time"),
        ({"sort": "colour"}, "sort: no 'colour'"),
        ({"before": "x"}, "before: what a page gave"),
        ({"before": "o"}, "before: what a page gave"),
    ],
)
def test_what_is_not_understood_is_named(scene: Scene, asked: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        scene.page(**asked)
    assert words in refused.value.message


def test_names_of_columns_are_told_the_most_common_first(scene: Scene) -> None:
    from windlass.server.runs import table as runs_table

    found = asyncio.run(scene.tracking.read(lambda conn: runs_table.keys(conn, MINE, 1000, 10)))
    assert found == {"params": ["lr"], "metrics": ["loss"]}
