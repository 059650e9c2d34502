"""What the loop sends, checks, takes away and sweeps, on both kinds of storage."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from windlass.core.errors import NotFound, Unavailable
from windlass.server.artifacts.tables import artifacts
from windlass.server.bundles.blobs import Blobs
from windlass.server.clock import SystemClock
from windlass.server.settings import Settings
from windlass.server.storage import catalogue
from windlass.server.storage.base import Storage
from windlass.server.storage.catalogue import Object
from windlass.server.storage.moving import Moving
from windlass.server.storage.reading import Shelf
from windlass.server.storage.sending import Pending
from windlass.server.storage.tables import objects

DATA = {hashlib.sha256(text).hexdigest(): text for text in (b"one", b"two", b"three")}


class Ground:
    """A home, a storage, and the loop between both."""

    def __init__(self, tenancy, storage: Storage, home: Path, cache_ms: int) -> None:
        self.tenancy, self.storage = tenancy, storage
        self.project = tenancy.who.project_id
        settings = Settings(home=home, storage_cache_ms=cache_ms)
        self.shelf = Shelf(tenancy.store, storage)
        self.blobs = Blobs(home / "blobs", self.shelf)
        self.moving = Moving(
            tenancy.store, SystemClock(), storage, settings, self.shelf,
            guard=lambda conn: None, gather=self._gather,
        )  # fmt: skip

    async def _gather(self, project: str, job: str) -> None:
        pass

    def keep(self) -> None:
        async def chunks(text: bytes) -> AsyncIterator[bytes]:
            yield text

        for digest, text in DATA.items():
            asyncio.run(self.blobs.of(self.project).put(digest, chunks(text)))

    def turn(self) -> None:
        asyncio.run(self.moving.turn())

    def here(self) -> set[str]:
        return {path.name for path in self.blobs.of(self.project)._folder.glob("??/*")}

    def there(self) -> set[str]:
        return {each.key for each in self.storage.listing()}

    def rows(self) -> set[str]:
        return set(self.tenancy.read(lambda c: c.execute(select(objects.c.key)).scalars().all()))

    def read(self, digest: str) -> bytes:
        async def whole() -> bytes:
            source = await self.blobs.of(self.project).open(digest)
            try:
                return await source.read(source.size, 0)
            finally:
                source.close()

        return asyncio.run(whole())


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def ground(tenancy, storage: Storage, tmp_path: Path) -> Ground:
    return Ground(tenancy, storage, tmp_path / "home", 0)


def test_blobs_move_and_are_read_from_there(ground: Ground) -> None:
    ground.keep()
    ground.turn()
    assert (ground.here(), len(ground.there())) == (set(), 3)
    assert ground.there() == ground.rows()
    assert {ground.read(digest) for digest in DATA} == set(DATA.values())
    ground.turn()
    assert len(ground.there()) == 3
    with pytest.raises(NotFound):
        ground.read("0" * 64)


def test_what_was_used_lately_stays_here_too(tenancy, storage: Storage, tmp_path: Path) -> None:
    ground = Ground(tenancy, storage, tmp_path / "home", 60_000)
    ground.keep()
    old = ground.blobs.of(ground.project).path(next(iter(DATA)))
    os.utime(old, (1, 1))
    ground.turn()
    assert ground.here() == DATA.keys() - {old.name} and len(ground.there()) == 3
    assert ground.read(old.name) == DATA[old.name]


def test_a_bundle_of_what_moved_lacks_nothing(ground: Ground) -> None:
    ground.keep()
    ground.turn()
    wanted = {**{digest: len(text) for digest, text in DATA.items()}, "f" * 64: 3}
    held = ground.blobs.of(ground.project)
    assert ground.tenancy.write(lambda conn: held.named(conn, wanted, 5)) == {"f" * 64}
    other = ground.blobs.of("b" * 32)  # another project learns nothing of it
    assert ground.tenancy.write(lambda conn: other.named(conn, wanted, 5)) == set(wanted)


def test_a_damaged_file_stays_where_it_is(ground: Ground) -> None:
    ground.keep()
    damaged = ground.blobs.of(ground.project).path(next(iter(DATA)))
    damaged.write_bytes(b"xxx")
    ground.turn()
    assert ground.here() == {damaged.name} and len(ground.there()) == 2


def test_a_storage_that_gives_back_other_bytes_is_not_believed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.keep()
    kind = type(ground.storage)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "read", lambda self, key, start, end: b"x" * (end - start))
        with pytest.raises(Unavailable, match="gave back other bytes"):
            ground.turn()
    assert ground.here() == set(DATA) and ground.rows() == set()
    ground.turn()
    assert ground.here() == set() and len(ground.rows()) == 3


def test_the_sweep_takes_what_nothing_refers_to(ground: Ground) -> None:
    ground.keep()
    ground.turn()
    kept, named, gone = DATA
    row = dict(
        owner_id="r", path="p", project_id=ground.project, digest=kept, size=3, changed_ms=0
    )
    ground.tenancy.write(lambda conn: conn.execute(insert(artifacts).values(**row)) and None)
    later = int(time.time() * 1000) + 7_200_000
    owner = catalogue.blobs_of(ground.project)
    ground.tenancy.write(lambda conn: catalogue.touch(conn, owner, [named], later))
    asyncio.run(ground.moving.sweep(later - 1000))
    assert ground.read(kept) and ground.read(named)
    assert ground.there() == ground.rows() and len(ground.rows()) == 2
    with pytest.raises(NotFound):
        ground.read(gone)


def test_the_sweep_takes_bytes_that_nobody_wrote_down(ground: Ground, tmp_path: Path) -> None:
    ground.keep()
    ground.turn()
    path = tmp_path / "x"
    path.write_bytes(b"half")
    opened = os.open(path, os.O_RDONLY)
    ground.storage.put("logs/a/n/orphan", opened, 4)
    os.close(opened)
    now = int(time.time() * 1000)
    asyncio.run(ground.moving.sweep(now - 3_600_000))
    assert "logs/a/n/orphan" in ground.there()  # perhaps its row is on its way
    blobs = {key: now + 10**9 for key in ground.rows()}
    ground.tenancy.write(
        lambda c: [
            c.execute(objects.update().where(objects.c.key == key).values(used_ms=when))
            for key, when in blobs.items()
        ]
    )
    asyncio.run(ground.moving.sweep(now + 60_000))
    assert ground.there() == ground.rows() and len(ground.rows()) == 3


def test_nothing_is_written_down_for_a_job_that_went_meanwhile(
    ground: Ground, tmp_path: Path
) -> None:
    job = ground.tenancy.submit("there")
    path = tmp_path / "x"
    path.write_bytes(b"log")

    def pending(job_id: str) -> Pending:
        def opened() -> int:
            return os.open(path, os.O_RDONLY)

        return Pending(f"logs/{job_id}/n", "a", ground.project, job_id, opened)

    sent = asyncio.run(ground.moving._sending.send([pending(job), pending("e" * 32)]))
    assert len(sent) == 2 and len(ground.rows()) == 1
    found: dict[str, Object] = ground.tenancy.read(
        lambda conn: catalogue.found(conn, f"logs/{job}/n")
    )
    assert found["a"].digest == hashlib.sha256(b"log").hexdigest()
    ground.tenancy.write(lambda conn: catalogue.mark(conn, f"logs/{job}/n", 1))
    asyncio.run(ground.moving.carry_out())
    assert ground.rows() == set()
