"""Every event once, in one order, for every follower."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from sqlalchemy import Connection, delete, select, text

from windlass.core.errors import Unavailable
from windlass.server import feed
from windlass.server.events.tables import events
from windlass.server.feed import Event, Feed
from windlass.server.store.base import Store
from windlass.server.store.open import open_store
from windlass.testing.postgres import PostgresServer


def event(
    job: str, seq: int | None = None, project: str = "p", sleep: float = 0.0
) -> Callable[[Connection], None]:
    def fn(conn: Connection) -> None:
        columns = {} if seq is None else {"seq": seq}
        feed.append(
            conn, job_id=job, project_id=project, kind="note", at_ms=1, data={"a": 1}, **columns
        )
        if sleep and conn.dialect.name == "postgresql":
            conn.execute(text("SELECT pg_sleep(:s)"), {"s": sleep})

    return fn


@asynccontextmanager
async def tailing(store: Store, **options: float) -> AsyncIterator[Feed]:
    tail = Feed(store, **options)  # type: ignore[arg-type]
    tail.start()
    try:
        yield tail
    finally:
        await tail.close()


async def take(tail: Feed, count: int, cursor: int = 0, **filters: str) -> list[Event]:
    taken: list[Event] = []
    async with asyncio.timeout(60), aclosing(tail.follow(cursor, **filters)) as rows:
        async for row in rows:
            taken.append(row)
            if len(taken) == count:
                break
    return taken


async def settled(store: Store) -> None:
    while await store.write(feed.sequence):
        pass


def test_events_come_in_order_with_what_they_hold(store: Store) -> None:
    async def main() -> None:
        for seq in (1, 2, 3):
            await store.write(event("a", seq))
        await settled(store)
        rows = await store.read(lambda conn: feed.after(conn, 0))
        assert [(r.position, r.job_id, r.seq, r.data) for r in rows] == [
            (1, "a", 1, {"a": 1}),
            (2, "a", 2, {"a": 1}),
            (3, "a", 3, {"a": 1}),
        ]
        assert await store.read(feed.last_position) == 3
        assert [r.seq for r in await store.read(lambda c: feed.after(c, 1, limit=1))] == [2]

    asyncio.run(main())


def test_without_a_seq_an_event_is_the_next_of_its_job(store: Store) -> None:
    async def main() -> None:
        for job in ("a", "b", "a"):
            await store.write(event(job))
        found = await store.read(
            lambda c: c.execute(select(events.c.job_id, events.c.seq).order_by(events.c.id)).all()
        )
        assert [tuple(row) for row in found] == [("a", 1), ("b", 1), ("a", 2)]

    asyncio.run(main())


def test_filters_by_project_and_by_job(store: Store) -> None:
    async def main() -> None:
        await store.write(event("a", project="p"))
        await store.write(event("b", project="p"))
        await store.write(event("c", project="q"))
        await settled(store)

        async def of(**wish: str) -> list[str]:
            return await store.read(lambda c: [r.job_id for r in feed.after(c, 0, **wish)])  # type: ignore[arg-type]

        await store.write(event("", project=feed.SERVER))
        await settled(store)
        assert await of(project_id="p") == ["a", "b", ""]
        assert await of(project_id="q") == ["c", ""], "what is about the server, everybody hears"
        page = {"project_id": "p", "limit": 2}
        assert await of(**page) == ["a", "b"]  # type: ignore[arg-type]
        assert await of(job_id="b") == ["b"]
        assert await of(project_id="q", job_id="b") == []

    asyncio.run(main())


def test_a_position_is_never_given_twice_even_when_the_newest_events_are_deleted(
    store: Store,
) -> None:
    async def main() -> None:
        await store.write(event("a"))
        await store.write(event("a"))
        await settled(store)
        cursor = await store.read(feed.last_position)
        await store.write(lambda conn: conn.execute(delete(events)) and None)
        await store.write(event("b"))
        await settled(store)
        assert [r.job_id for r in await store.read(lambda c: feed.after(c, cursor))] == ["b"]

    asyncio.run(main())


def test_a_follower_sees_what_was_before_it_and_what_comes_after(store: Store) -> None:
    async def main() -> None:
        async with tailing(store) as tail:
            for _ in range(3):
                await store.write(event("a"))
            follower = asyncio.create_task(take(tail, 6))
            other = asyncio.create_task(take(tail, 2, job_id="b"))
            while tail.followers < 2:
                await asyncio.sleep(0.001)
            for _ in range(2):
                await store.write(event("b"))
            await store.write(event("a"))
            assert [(r.job_id, r.seq) for r in await follower] == [
                *(("a", 1), ("a", 2), ("a", 3)),
                *(("b", 1), ("b", 2), ("a", 4)),
            ]
            assert [(r.job_id, r.seq) for r in await other] == [("b", 1), ("b", 2)]
            assert tail.followers == 0

    asyncio.run(main())


def test_an_event_reaches_a_follower_at_once_not_at_the_next_poll(store: Store) -> None:
    async def main() -> None:
        async with tailing(store, poll_seconds=30.0) as tail:
            await store.write(event("a"))
            await settled(store)
            for _ in range(5):
                cursor = await store.read(feed.last_position)
                follower = asyncio.create_task(take(tail, 1, cursor))
                while tail.followers < 1:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.02)
                started = time.monotonic()
                await store.write(event("a"))
                await follower
                assert time.monotonic() - started < 20

    asyncio.run(main())


def test_a_follower_that_comes_back_with_its_cursor_misses_and_repeats_nothing(
    store: Store,
) -> None:
    async def main() -> None:
        async with tailing(store) as tail:
            writing = asyncio.create_task(burst(store, 200))
            seen: list[int] = []
            cursor = 0
            while len(seen) < 200:
                some = await take(tail, min(random.randint(1, 20), 200 - len(seen)), cursor)
                seen += [row.position for row in some]
                cursor = seen[-1]
            await writing
            assert seen == list(range(1, 201))

    asyncio.run(main())


def test_a_slow_follower_loses_its_buffer_but_no_event_and_holds_up_nobody(store: Store) -> None:
    async def main() -> None:
        async with tailing(store, buffer=10) as tail:
            go = asyncio.Event()
            slow: list[int] = []

            async def crawl() -> None:
                async with aclosing(tail.follow(0)) as rows:
                    async for row in rows:
                        slow.append(row.position)
                        await go.wait()
                        if len(slow) == 301:
                            return

            crawling = asyncio.create_task(crawl())
            await store.write(event("first"))
            while not slow:
                await asyncio.sleep(0.001)
            quick = asyncio.create_task(take(tail, 301))
            await burst(store, 300)
            assert [r.position for r in await quick] == list(range(1, 302))
            assert slow == [1]
            assert tail.followers == 0, "the slow one keeps a buffer without end"
            go.set()
            await asyncio.wait_for(crawling, 60)
            assert slow == list(range(1, 302))

    asyncio.run(main())


async def burst(store: Store, count: int) -> None:
    for start in range(0, count, 10):
        await asyncio.gather(*(store.write(event(f"j{start + k}")) for k in range(10)))


def test_eight_writers_with_random_delays_on_postgresql_no_skip_no_repeat(
    postgres: PostgresServer,
) -> None:
    """Two servers, each with its own tail, follow from the start and along the way."""
    url = postgres.fresh()
    chance = random.Random(7)

    async def main() -> None:
        one = await open_store(url, connections=12)
        two = await open_store(url, connections=4)
        count = 8 * 40

        async def writer(k: int) -> None:
            for seq in range(1, 41):
                # Job ids collide within a writer only: events of one job are serial.
                await one.write(event(f"{k}-{seq % 3}", sleep=chance.random() * 0.01))

        async with tailing(one) as first, tailing(two, poll_seconds=0.02) as second:
            followers = [asyncio.create_task(take(t, count)) for t in (first, second, second)]
            writers = [asyncio.create_task(writer(k)) for k in range(8)]
            await asyncio.sleep(0.1)
            followers.append(asyncio.create_task(take(first, count)))
            await asyncio.gather(*writers)
            seen = await asyncio.gather(*followers)
        for rows in seen:
            assert [r.position for r in rows] == list(range(1, count + 1))
            assert [r.id for r in rows] == [r.id for r in seen[0]]
            by_job: dict[str, list[int]] = defaultdict(list)
            for row in rows:
                by_job[row.job_id].append(row.seq)
            assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in by_job.values())
        ids = [r.id for r in seen[0]]
        assert ids != sorted(ids), "no commit was out of order: the test shows nothing"
        await one.close()
        await two.close()

    asyncio.run(main())
    postgres.drop(url)


def test_a_follower_waits_out_a_crash_of_the_database(postgres: PostgresServer) -> None:
    url = postgres.fresh()

    async def main() -> None:
        store = await open_store(url)
        async with tailing(store) as tail:
            follower = asyncio.create_task(take(tail, 20))
            for _ in range(10):
                await store.write(event("a"))
            await asyncio.to_thread(postgres.kill)
            with pytest.raises(Unavailable):
                await store.write(event("a"))
            await asyncio.to_thread(postgres.start)
            for _ in range(10):
                await store.write(event("a"))
            assert [row.seq for row in await follower] == list(range(1, 21))
        await store.close()

    asyncio.run(main())
    postgres.drop(url)


def test_an_idle_tail_costs_under_one_percent_of_a_core(store: Store) -> None:
    async def main() -> None:
        async with tailing(store) as tail:
            follower = asyncio.create_task(take(tail, 1))
            while tail.followers < 1:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.3)
            spent = []
            while len(spent) < 5 and min(spent, default=1.0) >= 0.02:
                # Other threads of this process, and its garbage, have no part in every window.
                before = time.process_time()
                await asyncio.sleep(2)
                spent.append(time.process_time() - before)
            assert min(spent) < 0.02, f"{min(spent) * 1000:.1f} ms of CPU in 2 s"
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)

    asyncio.run(main())
