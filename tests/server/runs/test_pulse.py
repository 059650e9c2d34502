"""Who follows is told at once that a run logged something, and what; and nobody else is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from windlass.server.runs import jobs as run_rows
from windlass.server.runs import latest
from windlass.server.runs.pulse import MOST_KEYS, Pulse
from windlass.server.runs.tables import tracking as tracking_tables
from windlass.server.store.base import Store
from windlass.server.store.open import open_store
from windlass.testing.platform import Platform

RUN, OTHER = "a" * 32, "b" * 32


@asynccontextmanager
async def scene(url: str) -> AsyncIterator[tuple[Store, Store]]:
    store = await open_store(url)
    second = url if url.startswith("postgresql") else url.replace("windlass.db", "tracking.db")
    tracking = await open_store(second, migrate=False, create=tracking_tables)

    def rows(conn: Any) -> None:
        for run, project in ((RUN, "p"), (OTHER, "q")):
            run_rows.ensure(
                conn, run, project_id=project, name="brisk-otter", user="ann", started_ms=1
            )

    try:
        await tracking.write(rows)
        yield store, tracking
    finally:
        await tracking.close()
        await store.close()


async def log(tracking: Store, run: str, offset: int, **values: float) -> None:
    points = [
        {"run_id": run, "attempt": 1, "rank": 0, "offset": offset, "step": offset, "at_ms": 1000,
         "key": key, "value": value}
        for key, value in values.items()
    ]  # fmt: skip
    await tracking.write(lambda conn: latest.add(conn, points, "windlass.log"))


@asynccontextmanager
async def beating(store: Store, tracking: Store) -> AsyncIterator[Pulse]:
    pulse = Pulse(store, tracking, rest_seconds=0.01)
    pulse.start()
    try:
        yield pulse
    finally:
        await pulse.close()


def test_a_point_is_told_to_its_project_with_what_changed(migrated_url: str) -> None:
    async def play() -> None:
        async with scene(migrated_url) as (store, tracking), beating(store, tracking) as pulse:
            async with asyncio.timeout(60), aclosing(pulse.follow("p")) as notices:
                first = asyncio.ensure_future(anext(notices))
                await asyncio.sleep(0)  # it follows now
                await log(tracking, OTHER, 1, loss=9.0)
                pulse.logged("q", OTHER)
                await log(tracking, RUN, 1, loss=0.5, acc=float("inf"))
                pulse.logged("p", RUN)
                kind, data = await first
                assert kind == "metrics"
                assert (data["run"], data["job"], data["job_name"]) == (RUN, RUN, "brisk-otter")
                assert data["values"] == {"loss": 0.5, "acc": "Infinity"}
                assert data["step"] == 1 and data["at"].startswith("1970-01-01T00:00:01")
                await log(tracking, RUN, 2, loss=0.25)
                pulse.logged("p", RUN)
                _, data = await anext(notices)
                assert data["values"] == {"loss": 0.25}, "what did not change is not told again"

    asyncio.run(play())


def test_many_keys_are_cut_and_it_says_so(migrated_url: str) -> None:
    async def play() -> None:
        async with scene(migrated_url) as (store, tracking), beating(store, tracking) as pulse:
            async with asyncio.timeout(60), aclosing(pulse.follow("p")) as notices:
                waiting = asyncio.ensure_future(anext(notices))
                await asyncio.sleep(0)
                await log(tracking, RUN, 1, **{f"k{i}": 1.0 for i in range(MOST_KEYS + 1)})
                pulse.logged("p", RUN)
                _, data = await waiting
                assert len(data["values"]) == MOST_KEYS and data["more"] is True

    asyncio.run(play())


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_what_another_server_kept_is_found(migrated_url: str) -> None:
    async def play() -> None:
        async with scene(migrated_url) as (store, tracking), beating(store, tracking) as pulse:
            async with asyncio.timeout(60), aclosing(pulse.follow("p")) as notices:
                await log(tracking, RUN, 1, loss=0.5)  # and no hint: it was not this process
                kind, data = await anext(notices)
                assert (kind, data["values"]) == ("metrics", {"loss": 0.5})

    asyncio.run(play())


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path / "home") as found:
        yield found


SCRIPT = """
import os, sys, time, windlass
def wait(path):
    while not os.path.exists(path):
        time.sleep(0.02)
wait(sys.argv[1])
windlass.log(loss=0.5, step=7)
wait(sys.argv[1] + "2")
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["/feed", "/jobs/{id}/stream"])
def test_a_logged_value_reaches_a_follower_of_a_real_server(platform: Platform, where: str):
    gate = platform.gate()
    job = platform.submit([sys.executable, "-c", SCRIPT, str(gate)])
    platform.wait_state(job, "running")
    with platform.new_client() as client:
        following = client.http.stream(where.format(id=job.id), idle_seconds=60)
        gate.touch()
        message = next(each for each in following if each.event == "metrics")
        following.close()
    told = message.json()
    assert (told["job"], told["values"], told["step"]) == (job.id, {"loss": 0.5}, 7)
    gate.with_name(gate.name + "2").touch()
    platform.wait(job)
