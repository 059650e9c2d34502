"""What a job left in `$WINDLASS_OUTPUT_DIR` becomes files of its run, when somebody first asks for
them after its end.

User code wrote that folder, and may have put anything there: no link is followed, only regular
files with one name are read, and each by a descriptor below the folder. A file that the run has
already under that path stays as it is. What cannot be kept is told in a tag of the run.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, select

from windlass.core.errors import WindlassError
from windlass.core.jobs import TERMINAL
from windlass.core.paths import plain_path
from windlass.server.artifacts import service
from windlass.server.artifacts.owners import Owner
from windlass.server.artifacts.service import File
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.parts import Parts
from windlass.server.reading import or_else
from windlass.server.runs import caps

_BLOCK = 2**20
_BEGINNING = 2**16
_TOGETHER = 64
"""Files that are read at once, and written down in one transaction."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_seen: set[str] = set()
"""Jobs that this server has looked at: their folders do not change any more."""
_turns: dict[str, asyncio.Lock] = {}


async def gather(parts: Parts, project_id: str, owner: Owner) -> None:
    """Make a finished job's outputs files of its run; harmless when it was done."""
    if owner.id != owner.job_id or owner.id in _seen:
        return
    turn = _turns.setdefault(owner.id, asyncio.Lock())
    try:
        async with turn:
            if owner.id not in _seen and await _gather(parts, project_id, owner.id):
                if len(_seen) > 100_000:
                    _seen.clear()
                _seen.add(owner.id)
    finally:
        if not turn.locked():
            _turns.pop(owner.id, None)


async def gather_job(parts: Parts, project_id: str, job_id: str) -> None:
    """The same, before anybody asks."""
    await gather(parts, project_id, Owner(job_id, job_id, job_id))


async def _gather(parts: Parts, project_id: str, job_id: str) -> bool:
    """False: the job has not ended, there is more to come."""
    folders = await parts.store.read(partial(_folders, home=parts.settings.home, job_id=job_id))
    if folders is None:
        return False
    known = await parts.store.read(
        lambda conn: {file.path for file in service.files_below(conn, project_id, job_id)}
    )
    left_out: list[str] = []
    for folder in folders:
        try:
            top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # its attempt is gone, or never began
        try:
            new, why = _chosen(await asyncio.to_thread(_listed, top), known)
            known.update(new)
            left_out += why
            for at in range(0, len(new), _TOGETHER):
                some = new[at : at + _TOGETHER]
                left_out += await _keep_all(parts, project_id, job_id, top, some)
        finally:
            os.close(top)
    if left_out:
        await parts.tracking.write(partial(_tell, job_id=job_id, left_out=left_out))
    return True


def _tell(conn: Connection, job_id: str, left_out: list[str]) -> None:
    for words in left_out:
        caps.tell(conn, job_id, words)


async def _keep_all(
    parts: Parts, project_id: str, job_id: str, top: int, paths: list[str]
) -> list[str]:
    """Why some of the files could not be kept."""
    opened = await asyncio.to_thread(_opened, top, paths)
    kept = [_kept(parts, project_id, path, *each) for path, each in opened.items()]
    found = await asyncio.gather(*kept)
    files = [each for each in found if isinstance(each, File)]
    now = parts.clock.now_ms()
    await parts.store.write(
        lambda conn: service.write(conn, project_id, job_id, files, now, job_id)
    )
    return [each for each in found if isinstance(each, str)]


def _chosen(listed: list[str], known: set[str]) -> tuple[list[str], list[str]]:
    """What of a folder becomes files of a run that has the known ones; why some does not."""
    folders = {folder for path in known for folder in service.folders_of(path)}
    chosen: list[str] = []
    left_out: list[str] = []
    for path in listed:
        if path in known:
            continue
        file = next((above for above in service.folders_of(path) if above in known), None)
        if path in folders:
            left_out.append(f"{path[:200]} is left out: the run has a folder of that name")
        elif file is not None:
            left_out.append(f"{path[:200]} is left out: {file[:200]} is a file of the run")
        elif len(known) + len(chosen) >= service.MOST_FILES:
            most = service.MOST_FILES
            left_out.append(f"files past {most} of $WINDLASS_OUTPUT_DIR are left out")
            break
        else:
            chosen.append(path)
    return chosen, left_out


def _folders(conn: Connection, home: Path, job_id: str) -> list[Path] | None:
    state = conn.execute(select(jobs.c.state).where(jobs.c.id == job_id)).scalar()
    if state not in TERMINAL:
        return None
    newest = conn.execute(
        select(attempts.c.id, attempts.c.placement)
        .where(attempts.c.job_id == job_id)
        .order_by(attempts.c.number.desc())
        .limit(1)
    ).first()
    if newest is None:
        return []
    nodes = dict.fromkeys(placed["node"] for placed in or_else(newest.placement, ()))
    return [home / "attempts" / newest.id / node / "out" for node in nodes]


def _listed(top: int) -> list[str]:
    """Paths of the files below an open folder, by name."""
    found: list[str] = []
    for root, folders, names, _ in os.fwalk(".", dir_fd=top, follow_symlinks=False):
        folders.sort()
        for name in sorted(names):
            try:
                found.append(plain_path(os.path.normpath(f"{root}/{name}")))
            except WindlassError:
                continue  # no name that others could read
            if len(found) > service.MOST_FILES:
                return found
    return found


def _opened(top: int, paths: list[str]) -> dict[str, tuple[int, bytes]]:
    """Regular files with one name, open, and how each begins: most are small, and a way into
    another thread for each takes longer than all of it."""
    found = {}
    for path in paths:
        try:
            opened = _open_below(top, path)
        except OSError:
            continue
        about = os.fstat(opened)
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
            found[path] = (opened, os.read(opened, _BEGINNING))
        else:
            os.close(opened)
    return found


async def _kept(
    parts: Parts, project_id: str, path: str, opened: int, beginning: bytes
) -> File | str:
    """The file, its bytes among the blobs; or why it is left out."""
    try:
        digest, size = await parts.blobs.of(project_id).keep(
            _pieces(opened, beginning), parts.settings.artifact_bytes
        )
    except WindlassError as error:
        return f"{path[:200]} of $WINDLASS_OUTPUT_DIR is left out: {error.message}"
    finally:
        os.close(opened)
    return File(path, digest, size)


def _open_below(top: int, path: str) -> int:
    """A file by its path, each part of it opened below the one before and none a link."""
    here = os.dup(top)
    *folders, name = path.split("/")
    try:
        for folder in folders:
            inner = os.open(folder, _READ | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = inner
        return os.open(name, _READ, dir_fd=here)
    finally:
        os.close(here)


async def _pieces(opened: int, beginning: bytes) -> AsyncIterator[bytes]:
    yield beginning
    while len(beginning) == _BEGINNING and (
        piece := await asyncio.to_thread(os.read, opened, _BLOCK)
    ):
        yield piece
