"""What a worker could not send before it ended: the rest of its spools, and minutes of usage.

A worker says goodbye for some seconds and leaves; its files stay. Where the server finds an
attempt's record on disk, or is told that something was left, it reads on from where it knows each
spool. Ranks wrote these files: none is followed elsewhere, and a line may hold anything.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from windlass.core.jobs import JobSpec
from windlass.core.spools import line_of
from windlass.server.runs import service, system
from windlass.server.store.base import Store

log = logging.getLogger("windlass.runs")

BATCH_BYTES = 1 << 18
MOST_BYTES = 256 << 20
"""Of one spool: what is behind that was no metric of any use."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


async def of_attempt(
    tracking: Store, folder: Path, attempt: Mapping[str, Any], spec: JobSpec
) -> None:
    """As `take`, for an attempt that is about to be over. Never raises: what was logged last is no
    reason to keep an attempt open."""
    try:
        secret = bool(spec.environment.secrets)
        await take(tracking, folder, attempt["job_id"], attempt["number"], secret=secret)
    except Exception:
        log.exception("attempt %s: what its worker left could not be read", attempt["id"])


async def take(
    tracking: Store, folder: Path, run_id: str, attempt: int, *, secret: bool = False
) -> int:
    """Keep what is left of one node's attempt; how many lines that were. Again changes nothing.
    `secret`: the job has secrets, which the worker would have masked: numbers only."""
    lines = 0
    for rank, path in await asyncio.to_thread(_spools, folder / "run"):
        lines += await _take_spool(tracking, path, run_id, attempt, rank, secret)
    minutes = await asyncio.to_thread(_minutes, folder / "usage")
    for at in range(0, len(minutes), 500):
        some = minutes[at : at + 500]
        await tracking.write(partial(_keep_minutes, run_id, attempt, some))
    return lines


async def _take_spool(
    tracking: Store, path: Path, run_id: str, attempt: int, rank: int, secret: bool
) -> int:
    offset = await tracking.read(lambda conn: service.known_offset(conn, run_id, attempt, rank))
    begun, lines = offset, 0
    while offset - begun < MOST_BYTES:
        text = await asyncio.to_thread(_read, path, offset)
        end = text.rfind(b"\n") + 1
        if not end:
            break
        found = [parsed for line in text[:end].split(b"\n") if (parsed := line_of(line))]
        batch = service.sort(found, job_id=run_id, attempt=attempt, rank=rank, offset=offset)
        offset += end
        if secret:
            batch.params, batch.tags = {}, {}

        def write(conn: Connection, batch: service.Batch = batch, end: int = offset) -> None:
            service.keep(conn, batch, job_id=run_id, attempt=attempt, rank=rank, end=end)

        await tracking.write(write)
        lines += len(found)
    return lines


def _keep_minutes(run_id: str, attempt: int, minutes: list[Any], conn: Connection) -> None:
    system.keep(conn, run_id, attempt, minutes)


def _spools(folder: Path) -> list[tuple[int, Path]]:
    found = []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        number = name[6:-6]
        if name.startswith("spool-") and name.endswith(".jsonl") and number.isdecimal():
            found.append((int(number), folder / name))
    return sorted(pair for pair in found if pair[0] < 2**31)


def _read(path: Path, offset: int) -> bytes:
    try:
        opened = os.open(path, _FLAGS)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return b""
        return os.pread(opened, BATCH_BYTES, offset)
    except OSError:
        return b""
    finally:
        os.close(opened)


def _minutes(folder: Path) -> list[Any]:
    """The worker wrote these itself, and no rank can."""
    found = []
    try:
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return []
    for path in paths:
        try:
            found.append(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return found
