"""One leads; a former leader is fenced by its epoch."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import Connection, update

from windlass.core.errors import Fenced
from windlass.server import leases
from windlass.server.store.base import Store
from windlass.server.store.inline import InlineStore
from windlass.server.store.metadata import metadata
from windlass.server.store.open import open_store


async def expire(store: Store) -> None:
    await store.write(lambda conn: conn.execute(update(leases.leases).values(until_ms=1)) and None)


def test_one_leads_and_the_others_wait(store: Store) -> None:
    async def main() -> None:
        asks = [leases.try_lead(store, "jobs", f"server-{i}", 60_000) for i in range(8)]
        epochs = await asyncio.gather(*asks)
        assert sorted(map(str, epochs)) == ["1", *["None"] * 7]
        leader = f"server-{epochs.index(1)}"
        assert await leases.try_lead(store, "jobs", leader, 60_000) == 1
        assert await leases.try_lead(store, "other", "server-9", 60_000) == 1

    asyncio.run(main())


def test_a_lease_that_ran_out_goes_to_the_next_with_a_new_epoch(store: Store) -> None:
    async def main() -> None:
        assert await leases.try_lead(store, "jobs", "a", 60_000) == 1
        await expire(store)
        assert await leases.try_lead(store, "jobs", "b", 60_000) == 2
        assert not await leases.renew(store, "jobs", 1, 60_000)
        assert await leases.renew(store, "jobs", 2, 60_000)
        assert await leases.try_lead(store, "jobs", "a", 60_000) is None

    asyncio.run(main())


def test_a_lease_nobody_wanted_is_renewed_late(store: Store) -> None:
    async def main() -> None:
        assert await leases.try_lead(store, "jobs", "a", 60_000) == 1
        await expire(store)
        assert await leases.renew(store, "jobs", 1, 60_000)
        assert await leases.try_lead(store, "jobs", "b", 60_000) is None

    asyncio.run(main())


def test_the_lease_of_one_who_is_known_to_be_dead_is_not_waited_for(store: Store) -> None:
    async def main() -> None:
        assert await leases.try_lead(store, "jobs", "home-1/a", 60_000) == 1
        assert await leases.try_lead(store, "jobs", "home-2/b", 60_000, dead="home-2/") is None
        assert await leases.try_lead(store, "jobs", "home-1/c", 60_000, dead="home-1/") == 2
        assert not await leases.renew(store, "jobs", 1, 60_000)

    asyncio.run(main())


def test_a_holder_whose_lease_ran_out_leads_anew_under_a_new_epoch(store: Store) -> None:
    async def main() -> None:
        assert await leases.try_lead(store, "jobs", "a", 60_000) == 1
        await expire(store)
        assert await leases.try_lead(store, "jobs", "a", 60_000) == 2

    asyncio.run(main())


def test_a_released_lease_is_free_at_once(store: Store) -> None:
    async def main() -> None:
        assert await leases.try_lead(store, "jobs", "a", 60_000) == 1
        await leases.release(store, "jobs", 1)
        assert await leases.try_lead(store, "jobs", "b", 60_000) == 2

    asyncio.run(main())


def test_a_former_leader_writes_nothing(store: Store) -> None:
    def act(conn: Connection, epoch: int) -> str:
        leases.check(conn, "jobs", epoch)
        return "done"

    async def main() -> None:
        await leases.try_lead(store, "jobs", "a", 60_000)
        assert await store.write(lambda conn: act(conn, 1)) == "done"
        await expire(store)
        assert await store.write(lambda conn: act(conn, 1)) == "done", "nobody else came"
        await leases.try_lead(store, "jobs", "b", 60_000)
        with pytest.raises(Fenced, match="epoch is 1, the newest 2"):
            await store.write(lambda conn: act(conn, 1))
        with pytest.raises(Fenced):
            await store.write(lambda conn: leases.check(conn, "unknown", 1))

    asyncio.run(main())


@pytest.mark.parametrize("dialect", ["postgresql"])  # with one writer there is no middle
def test_nobody_takes_over_in_the_middle_of_a_checked_transaction(store: Store) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await leases.try_lead(store, "jobs", "a", 60_000)
        await expire(store)
        order: list[str] = []

        def act(conn: Connection) -> None:
            leases.check(conn, "jobs", 1)
            taking = asyncio.run_coroutine_threadsafe(take_over(), loop)
            with pytest.raises(TimeoutError):
                taking.result(0.3)
            order.append("acted")

        async def take_over() -> None:
            assert await leases.try_lead(store, "jobs", "b", 60_000) == 2
            order.append("taken")

        await store.write(act)
        async with asyncio.timeout(60):
            while len(order) < 2:
                await asyncio.sleep(0.01)
        assert order == ["acted", "taken"]

    asyncio.run(main())


def test_the_next_server_on_a_file_does_not_wait_for_the_lease_of_a_dead_one(
    tmp_path: object,
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"

    async def main() -> None:
        store = await open_store(url)
        assert await leases.try_lead(store, "jobs", "a", 3_600_000) == 1
        await store.close()
        store = await open_store(url)
        assert await leases.try_lead(store, "jobs", "b", 3_600_000) == 2
        await store.close()

    asyncio.run(main())


def test_a_lease_runs_out_by_the_clock_of_the_store() -> None:
    class Clock:
        now = 1_000

        def now_ms(self) -> int:
            return self.now

    async def main() -> None:
        clock = Clock()
        store = InlineStore(clock=clock)
        await store.write(metadata.create_all)
        assert await leases.try_lead(store, "jobs", "a", 500) == 1
        clock.now = 1_499
        assert await leases.try_lead(store, "jobs", "b", 500) is None
        clock.now = 1_500
        assert await leases.try_lead(store, "jobs", "b", 500) == 2
        await store.close()

    asyncio.run(main())
