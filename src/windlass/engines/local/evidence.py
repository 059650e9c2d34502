"""What lies in a worker's directory, and what that proves. The verdict is a pure function.

    directory   lock    exit.json  worker.json / spawn.json            verdict
    ---------   -----   ---------  --------------------------------   -----------------------------
    none        –       –          –                                  ABSENT
    there       held    any        –                                  ALIVE (but see below)
    there       free    any        worker's process lives             ALIVE (it is just ending)
    there       free    there      –                                  ENDED
    there       free    none       worker: gone, or another boot      DEAD
    there       free    none       spawned: gone, or another boot     DEAD
    there       free    none       no worker yet, within the bound    STARTING
    there       free    none       no worker yet, bound passed        DEAD

"The lock is held" wins over a pid that cannot be found, since the worker may live in another
pid namespace, unless a process we can see holds the file and is not the worker: then the worker
is gone and something it left behind has kept the lock.

DEAD is safe to say of a worker that is only slow: before anything else is done about a dead
worker, `end` has a record written under its lock, and a worker that finds a record leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.engines.base import Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.processes import Identity, boot_id, boot_seconds, holders, lives


@dataclass(frozen=True)
class Evidence:
    there: bool = True
    locked: bool = False
    record: dict[str, Any] | None = None
    worker: Identity | None = None
    worker_lives: bool = False
    worker_file: bool = False
    stray_holder: int | None = None
    spawned: Identity | None = None
    spawned_lives: bool = False
    spawn_boot_id: str | None = None
    waited_seconds: float | None = None
    boot_id: str = ""
    last_words: str = ""


def gather(directory: Directory) -> Evidence:
    """Look, without disturbing anyone. The record is read last: it is written before the worker
    dies, so one that is not there after the worker was seen gone will never come."""
    if not directory.exists():
        return Evidence(there=False)
    locked = directory.is_locked()
    worker = directory.worker()
    worker_lives = worker is not None and lives(worker)
    mark = directory.spawn_mark() or {}
    spawned = Identity.read(mark)
    spawned_lives = spawned is not None and lives(spawned)
    since, spawn_boot_id = mark.get("boot_seconds"), mark.get("boot_id")
    kept = locked and worker is not None and not worker_lives
    record = directory.record()
    return Evidence(
        locked=locked,
        record=record,
        worker=worker,
        worker_lives=worker_lives,
        worker_file=worker is not None or directory.has_worker_file(),
        stray_holder=_stray_holder(directory, worker) if kept else None,
        spawned=spawned,
        spawned_lives=spawned_lives,
        spawn_boot_id=spawn_boot_id if isinstance(spawn_boot_id, str) else None,
        waited_seconds=boot_seconds() - since
        if spawn_boot_id == boot_id() and isinstance(since, (int, float))
        else None,
        boot_id=boot_id(),
        last_words="" if worker or record else directory.last_words(),
    )


def judge(evidence: Evidence, starting_seconds: float) -> tuple[Sight, str]:
    """The verdict and, where one would ask, its reason."""
    if not evidence.there:
        return Sight.ABSENT, ""
    if evidence.locked:
        if evidence.stray_holder is None:
            return Sight.ALIVE, ""
        return Sight.DEAD, (
            f"its worker is gone, but pid {evidence.stray_holder} has kept its lock"
        )
    if evidence.worker_lives:
        return Sight.ALIVE, ""
    if evidence.record is not None:
        return Sight.ENDED, ""
    if evidence.worker is not None and evidence.worker.boot_id != evidence.boot_id:
        return Sight.DEAD, "the machine was restarted under it"
    if evidence.worker_file:
        return Sight.DEAD, "its worker died and left no record"
    return _judge_start(evidence, starting_seconds)


def _judge_start(evidence: Evidence, starting_seconds: float) -> tuple[Sight, str]:
    words = f": {evidence.last_words}" if evidence.last_words else ""
    if evidence.spawn_boot_id is not None and evidence.spawn_boot_id != evidence.boot_id:
        return Sight.DEAD, "the machine was restarted before its worker had started"
    if evidence.spawned is not None and not evidence.spawned_lives:
        return Sight.DEAD, f"its worker died before it took its lock{words}"
    if evidence.waited_seconds is not None and evidence.waited_seconds < starting_seconds:
        return Sight.STARTING, ""
    return Sight.DEAD, f"its worker did not start within {starting_seconds:g} s{words}"


def see(directory: Directory, starting_seconds: float) -> tuple[Seen, Evidence]:
    evidence = gather(directory)
    sight, reason = judge(evidence, starting_seconds)
    record = evidence.record if sight is Sight.ENDED else None
    return Seen(directory.attempt_id, directory.node, sight, record, reason), evidence


def running(evidence: Evidence) -> Identity | None:
    """The process to watch, if there is one."""
    if evidence.worker is not None and evidence.worker_lives:
        return evidence.worker
    if evidence.spawned is not None and evidence.spawned_lives:
        return evidence.spawned
    return None


def _stray_holder(directory: Directory, worker: Identity | None) -> int | None:
    return next((found.pid for found in holders(directory.lock) if found != worker), None)
