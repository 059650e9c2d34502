"""The exit record: written once, whole, and still there after a power cut.

Its blocks are reserved before anything of the job runs, in `exit.reserve`: it is written in place
there, cut to its length and renamed, so that a disk which the job has filled takes it all the
same.
"""

from __future__ import annotations

import json
import os
import time

from windlass.patterns import tracebacks
from windlass.worker import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

    from windlass.worker.pump import Pump
    from windlass.worker.ranks import Rank

TRACEBACK_BYTES = 4096
RESERVE = "exit.reserve"
_RESERVE_BYTES = 16384
_RESERVE_BYTES_A_RANK = 8192


def make(
    attempt_id: str,
    attempt: int,
    node: str,
    outcome: str,
    reason: str,
    ranks: Optional[List[Dict[str, Any]]] = None,
    first_failure: Optional[Dict[str, Any]] = None,
    survivors: Optional[List[int]] = None,
    need: str = "",
) -> Dict[str, Any]:
    """`need`: what the node had run out of, when that is why nothing could be started."""
    return {
        "api": 1,
        "attempt_id": attempt_id,
        "attempt": attempt,
        "node": node,
        "boot_id": processes.boot_id(),
        "ended_ms": int(time.time() * 1000),
        "outcome": outcome,
        "reason": reason,
        "ranks": ranks or [],
        "first_failure": first_failure,
        "survivors": survivors or [],
        **({"need": need} if need else {}),
    }


def of_rank(rank: Rank, pump: Pump) -> Dict[str, Any]:
    # A rank that was killed, or ended well, printed no last words worth keeping.
    tail = pump.tail(rank.number) if rank.exit else b""
    return {
        **rank.place(),
        "exit": rank.exit,
        "signal": rank.signal,
        "started_ms": rank.started_ms,
        "ended_ms": rank.ended_ms,
        "ended_by": rank.ended_by,
        "traceback": traceback_in(tail),
        "oom": rank.oom,
        "limit": rank.limit,
        "peak_bytes": rank.peak_bytes,
        "cpu_ms": rank.cpu_ms,
        "matched": pump.matched(rank.number),
        "dropped_bytes": pump.dropped(rank.number),
        "restarts": rank.restarts,
        "given_up": rank.given_up,
        "first_loss": rank.first_loss,
    }


def failure_of(rank: Rank) -> Dict[str, Any]:
    place = rank.place()
    del place["local_rank"]
    how = rank.first_loss or {"exit": rank.exit, "signal": rank.signal}
    return {**place, "exit": how["exit"], "signal": how["signal"]}


def traceback_in(text: bytes) -> Optional[str]:
    """The traceback that says why, of the end of a stderr; None if there is none."""
    return tracebacks.last_traceback(text.decode("utf-8", "replace"), TRACEBACK_BYTES)


def reserve(directory: str, ranks: int) -> None:
    """Blocks for the record of so many ranks, unless the engine has reserved them. Raises
    OSError."""
    path = os.path.join(directory, RESERVE)
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return
    try:
        size = _RESERVE_BYTES + _RESERVE_BYTES_A_RANK * ranks
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened, 0, size)
        else:
            os.write(opened, bytes(size))
    finally:
        os.close(opened)


def write(directory: str, record: Dict[str, Any]) -> None:
    """Durable when this returns. One that is longer than what was reserved, on a disk that is
    full, leaves out what can be missed. Raises OSError."""
    reserved = os.path.join(directory, RESERVE)
    opened = os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        for text in _shorter_and_shorter(record):
            try:
                _put(opened, text)
                break
            except OSError as err:
                trouble = err
        else:
            raise trouble
        os.ftruncate(opened, len(text))
        os.fsync(opened)
    finally:
        os.close(opened)
    os.rename(reserved, os.path.join(directory, "exit.json"))
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _shorter_and_shorter(record: Dict[str, Any]) -> Iterator[bytes]:
    yield json.dumps(record).encode()
    without = ("traceback", "matched", "limit", "first_loss")
    ranks = [{**rank, **dict.fromkeys(without)} for rank in record["ranks"]]
    yield json.dumps({**record, "ranks": ranks}).encode()


def _put(opened: int, text: bytes) -> None:
    at = 0
    while at < len(text):
        at += os.pwrite(opened, text[at:], at)


def write_json(path: str, content: Dict[str, Any]) -> None:
    """Whole or not at all, but not synced: for what a reboot makes worthless anyway."""
    fresh = "%s-%d" % (path, os.getpid())
    opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(opened, "wb") as file:
            file.write(json.dumps(content).encode())
        os.rename(fresh, path)
    except OSError:
        os.unlink(fresh)
        raise
