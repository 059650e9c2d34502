"""A reader who comes before the output is woken when its folder comes, however deep that lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from windlass.server.logs.watch import FolderWatch

NEVER = 3600.0


@asynccontextmanager
async def watching() -> AsyncIterator[FolderWatch]:
    watch = FolderWatch()
    try:
        async with asyncio.timeout(60):
            yield watch
    finally:
        watch.close()


def test_each_folder_above_it_that_comes_wakes_and_then_what_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "attempt" / "node" / "logs"

    async def story() -> None:
        async with watching() as watch:
            for missing in (folder.parent.parent, folder.parent, folder):
                assert not watch.add(folder)
                missing.mkdir()
                await watch.wait(NEVER)
            assert watch.add(folder)
            await watch.wait(NEVER)  # that it is watched now: something may be in it already
            (folder / "worker-0-0.out").write_text("line\n")
            await watch.wait(NEVER)

    asyncio.run(story())


def test_a_folder_that_is_moved_there_whole_is_found(tmp_path: Path) -> None:
    """As a worker's is laid down: under another name, then renamed."""
    fresh, folder = tmp_path / ".new", tmp_path / "node" / "logs"

    async def story() -> None:
        async with watching() as watch:
            assert not watch.add(folder)
            (fresh / "logs").mkdir(parents=True)
            fresh.rename(folder.parent)
            await watch.wait(NEVER)
            while not watch.add(folder):  # that it came may be told before that it was renamed
                await watch.wait(NEVER)

    asyncio.run(story())
