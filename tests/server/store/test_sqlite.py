"""The SQLite store under load, kill and a full disk (R-F13, R-G1)."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Connection, MetaData, String, Table, insert, select, text

from windlass.core.errors import Conflict, Internal, StorageFull, Unavailable
from windlass.server.store.claim import Claim, file_system_of
from windlass.server.store.metadata import AutoNumber
from windlass.server.store.sqlite import SqliteStore

tables = MetaData()
rows = Table(
    "rows", tables, Column("id", AutoNumber, primary_key=True), Column("text", String(4000))
)


def add(value: str) -> Callable[[Connection], str]:
    def fn(conn: Connection) -> str:
        conn.execute(insert(rows).values(text=value))
        return value

    return fn


async def opened(path: Path, **options: Any) -> SqliteStore:
    store = await SqliteStore.open(path, **options)
    await store.write(tables.create_all)
    return store


def test_writes_that_wait_together_share_one_commit(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "a.db")
        before = store.counters.commits
        await asyncio.gather(*(store.write(add("x")) for _ in range(1000)))
        assert store.counters.commits - before <= 20
        assert 50 <= store.counters.largest_batch <= 256
        await store.close()

    asyncio.run(main())


def test_thirty_two_clients_get_many_writes_per_commit(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "a.db")
        before = store.counters.commits

        async def client() -> None:
            for _ in range(30):
                await store.write(add("x"))

        await asyncio.gather(*(client() for _ in range(32)))
        commits = store.counters.commits - before
        assert 32 * 30 / commits >= 3, f"{commits} commits for {32 * 30} writes"
        await store.close()

    asyncio.run(main())


def test_the_control_file_is_synced_at_each_commit_and_the_metrics_file_is_not(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        control = await opened(tmp_path / "control.db")
        metrics = await opened(tmp_path / "metrics.db", synchronous="NORMAL")
        level = text("PRAGMA synchronous")
        assert await control.write(lambda c: c.scalar(level)) == 2
        assert await metrics.write(lambda c: c.scalar(level)) == 1
        assert await control.read(lambda c: c.scalar(text("PRAGMA journal_mode"))) == "wal"
        assert await control.write(lambda c: c.scalar(text("PRAGMA foreign_keys"))) == 1
        await control.close()
        await metrics.close()

    asyncio.run(main())


def test_a_second_server_on_the_same_file_is_refused_with_the_pid_of_the_first(
    tmp_path: Path,
) -> None:
    code = f"""
import asyncio
from windlass.server.store.sqlite import SqliteStore
async def main():
    await SqliteStore.open({str(tmp_path / "a.db")!r})
    print("open", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    first = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None and first.stdout.readline() == b"open\n"
        with pytest.raises(Conflict, match=f"pid {first.pid}"):
            asyncio.run(opened(tmp_path / "a.db"))
    finally:
        first.kill()
        first.communicate()

    async def main() -> None:  # and with the death of the first the file is free
        store = await opened(tmp_path / "a.db")
        await store.close()

    asyncio.run(main())


WRITER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_sqlite import add, opened
async def main():
    store = await opened(Path(sys.argv[1]))
    async def client(k):
        for i in range(10**9):
            name = f"{sys.argv[3]}-{k}-{i}"
            await store.write(add(name))
            sys.stdout.write(name + "\\n"); sys.stdout.flush()
    await asyncio.gather(*(client(k) for k in range(8)))
asyncio.run(main())
"""


def test_kill_minus_nine_during_writes_loses_no_acknowledged_row(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    acked: set[str] = set()
    for turn in range(4):
        command = [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent), str(turn)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            acked.add(line.strip())
            if len(acked) >= (turn + 1) * 150:
                break
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        acked |= {line for line in rest.split("\n")[:-1]}

    claim = Claim(path)
    assert claim.unclean, "a killed holder leaves its pid"
    claim.release(clean=False)

    async def main() -> None:
        store = await opened(path)  # checks the file: the last stop was unclean
        found = set(await store.read(lambda c: list(c.scalars(select(rows.c.text)))))
        assert acked <= found
        assert await store.read(lambda c: c.scalar(text("PRAGMA integrity_check"))) == "ok"
        await store.close()

    asyncio.run(main())
    claim = Claim(path)
    assert not claim.unclean
    claim.release()


def test_a_damaged_file_is_noticed_after_an_unclean_stop(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def fill() -> None:
        store = await opened(path)
        await store.write(lambda c: c.execute(insert(rows), [{"text": "x" * 3000}] * 200) and None)
        await store.close()

    asyncio.run(fill())
    with open(path, "r+b") as file:
        for page in range(3, 40):
            file.seek(page * 4096)
            file.write(os.urandom(512))
    (tmp_path / "a.db.lock").write_text("1")
    with pytest.raises(Internal, match="damaged") as caught:
        asyncio.run(opened(path))
    assert "backup" in caught.value.hint
    claim = Claim(path)
    assert claim.unclean, "still to be checked by whoever comes next"
    claim.release()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a tmpfs: not root, or not allowed to")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_writes_keeps_acked_rows_and_heals_by_itself(tiny_disk: Path) -> None:
    async def main() -> None:
        ballast = tiny_disk / "ballast"
        store = await opened(tiny_disk / "a.db")
        ballast.write_bytes(b"x" * 700_000)
        acked: set[str] = set()
        refused = 0

        async def client(k: int) -> None:
            nonlocal refused
            for i in range(150):
                try:
                    acked.add(await store.write(add(f"{k}-{i}-" + "x" * 1000)))
                except StorageFull:
                    refused += 1

        async def everything() -> set[str]:
            return set(await store.read(lambda c: list(c.scalars(select(rows.c.text)))))

        await asyncio.gather(*(client(k) for k in range(8)))
        assert refused > 100 and len(acked) > 100
        assert await everything() == acked, "reads go on, and nothing refused was kept"

        ballast.unlink()
        deadline = time.monotonic() + 60
        while True:
            try:
                acked.add(await store.write(add("after")))
                break
            except StorageFull:
                assert time.monotonic() < deadline, "does not recover"
                await asyncio.sleep(0.05)
        assert await everything() == acked
        await store.close()

        with sqlite3.connect(tiny_disk / "a.db") as raw:
            assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert {row[0] for row in raw.execute("SELECT text FROM rows")} == acked
        raw.close()

    asyncio.run(main())


def test_a_server_killed_on_a_full_disk_opens_again_with_every_acked_row(tiny_disk: Path) -> None:
    path = tiny_disk / "a.db"
    (tiny_disk / "ballast").write_bytes(b"x" * 500_000)
    here = str(Path(__file__).parent)
    code = WRITER.replace('name = f"', 'name = "x" * 1500 + f"')
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path), here, "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    out, _ = process.communicate(timeout=120)  # the first StorageFull ends it
    acked = set(out.split("\n")[:-1])
    (tiny_disk / "ballast").unlink()

    async def main() -> None:
        store = await opened(path)
        found = set(await store.read(lambda c: list(c.scalars(select(rows.c.text)))))
        assert len(acked) > 50 and acked <= found
        await store.write(add("after"))
        await store.close()

    asyncio.run(main())


def test_the_log_stays_bounded_while_readers_come_and_go(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "a.db", wal_bytes=1 << 20)
        done = False
        largest = 0

        async def reader() -> None:
            while not done:
                await store.read(lambda c: c.execute(select(rows).limit(50)).all())

        readers = [asyncio.create_task(reader()) for _ in range(3)]
        for _ in range(60):
            await asyncio.gather(*(store.write(add("x" * 4000)) for _ in range(20)))
            largest = max(largest, os.stat(tmp_path / "a.db-wal").st_size)
        done = True
        await asyncio.gather(*readers)
        assert largest < 8 << 20, f"the log grew to {largest} bytes"
        assert store.counters.checkpoints >= 1
        await store.close()
        assert not (tmp_path / "a.db-wal").exists()

    asyncio.run(main())


def test_a_read_without_end_is_ended(tmp_path: Path) -> None:
    endless = text(
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c"
    )

    async def main() -> None:
        store = await opened(tmp_path / "a.db", read_seconds=0.2)
        with pytest.raises(Unavailable, match="too long"):
            await store.read(lambda c: c.scalar(endless))
        assert await store.read(lambda c: c.scalar(text("SELECT 1"))) == 1
        await store.close()

    asyncio.run(main())


def test_a_foreign_lock_on_the_file_makes_writes_unavailable_and_no_longer(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "a.db")
        await store.write(lambda c: c.exec_driver_sql("PRAGMA busy_timeout=50") and None)
        foreign = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            await store.write(add("x"))
        foreign.execute("ROLLBACK")
        foreign.close()
        await store.write(add("x"))
        await store.close()

    asyncio.run(main())


def test_a_function_may_not_end_the_transaction_of_its_neighbours(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "a.db")
        with pytest.raises(Exception, match="ended the transaction"):
            await store.write(lambda c: c.exec_driver_sql("COMMIT") and None)
        await store.write(add("goes on"))
        await store.close()

    asyncio.run(main())


def test_one_that_fails_in_a_batch_takes_nobody_with_it(tmp_path: Path) -> None:
    """Its neighbours run again, and are there once."""

    def fail(conn: Connection) -> None:
        conn.execute(insert(rows).values(text="never"))
        raise Conflict("not this one")

    async def main() -> None:
        store = await opened(tmp_path / "a.db")
        asked = [store.write(add(f"{n}")) for n in range(20)]
        asked.insert(10, store.write(fail))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(a) for a in answers].count(Conflict) == 1 and answers[19] == "18"
        found = await store.read(lambda c: c.execute(select(rows.c.text)).scalars().all())
        assert sorted(found) == sorted(str(n) for n in range(20))
        await store.close()

    asyncio.run(main())


def test_an_idle_store_costs_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "a.db")
        spent = []
        while len(spent) < 5 and min(spent, default=1.0) >= 0.02:
            # Other threads of this process, and its garbage, have no part in every window.
            before = time.process_time()
            await asyncio.sleep(0.5)
            spent.append(time.process_time() - before)
        assert min(spent) < 0.02
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/srv/nfs/x/a.db", "nfs4"), ("/srv/nfs2/a.db", "ext4"), ("/srv/nfs/local/a.db", "xfs")],
)
def test_the_file_system_of_a_path_is_that_of_its_innermost_mount(path: str, kind: str) -> None:
    mounts = [("/", "ext4"), ("/srv/nfs", "nfs4"), ("/srv/nfs/local", "xfs"), ("/proc", "proc")]
    assert file_system_of(Path(path), mounts) == kind
