"""A worker that does nothing but obey the rules of docs/internals/protocol.md: lock, worker.json,
exit.json, reap. It stands in for the real one where an engine, not a worker, is under test.

    stub_worker.py run DIR        be the worker of DIR
    stub_worker.py reap DIR       clean up after it

What it does is told in `launch.json` under `stub`, each optional:
    before_lock   a FIFO: nothing happens until someone opens it for writing
    until         a FIFO: it lives until someone opens it for writing
    outcome       of the record, default `succeeded`; null: exit without writing one
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from typing import Any


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: stub_worker.py run DIR | reap DIR", file=sys.stderr)
        return 2
    verb, directory = arguments
    return {"run": work, "reap": reap}[verb](directory)


def work(directory: str) -> int:
    with open(os.path.join(directory, "launch.json")) as file:
        launch = json.load(file)
    stub = launch.get("stub", {})
    _wait_for(stub.get("before_lock"))
    lock = _lock(directory)
    # A second worker leaves; so does one that comes too late, after a reap gave it up.
    if lock is None or any(
        os.path.exists(os.path.join(directory, name)) for name in ("worker.json", "exit.json")
    ):
        return 0
    _write(directory, "worker.json", _identity())
    _wait_for(stub.get("until"))
    outcome = stub.get("outcome", "succeeded")
    if outcome is not None:
        _write(directory, "exit.json", _record(launch, outcome, []))
    return 0


def reap(directory: str) -> int:
    lock = _lock(directory)
    if lock is None:
        print("refused: the worker lives", file=sys.stderr)
        return 3
    with open(os.path.join(directory, "launch.json")) as file:
        launch = json.load(file)
    deadline = time.monotonic() + 30
    survivors = _marked(directory)
    while survivors and time.monotonic() < deadline:
        for pid in survivors:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
        survivors = _marked(directory)
    if not os.path.exists(os.path.join(directory, "exit.json")):
        _write(directory, "exit.json", _record(launch, "lost", survivors))
    return 0


def _lock(directory: str) -> int | None:
    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(100):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            time.sleep(0.01)
    return None


def _wait_for(fifo: str | None) -> None:
    if fifo is not None:
        open(fifo).close()


def _identity() -> dict[str, Any]:
    with open("/proc/self/stat", "rb") as file:
        start_time = int(file.read().rpartition(b")")[2].split()[19])
    return {"pid": os.getpid(), "start_time": start_time, "boot_id": _boot_id(), "version": "stub"}


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _record(launch: dict[str, Any], outcome: str, survivors: list[int]) -> dict[str, Any]:
    return {
        "api": 1,
        "attempt_id": launch["attempt_id"],
        "attempt": launch["attempt"],
        "node": launch["node"],
        "boot_id": _boot_id(),
        "ended_ms": int(time.time() * 1000),
        "outcome": outcome,
        "reason": "a stub ended",
        "ranks": [],
        "first_failure": None,
        "survivors": survivors,
    }


def _marked(directory: str) -> list[int]:
    """Every process that carries this worker's mark in its environment. Not the attempt's id:
    another node of the attempt may be on the same machine."""
    mark = os.fsencode("WINDLASS_RUN_DIR=" + os.path.join(directory, "run"))
    found = []
    for name in os.listdir("/proc"):
        try:
            with open("/proc/" + name + "/environ", "rb") as file:
                if mark in file.read().split(b"\0") and int(name) != os.getpid():
                    found.append(int(name))
        except (OSError, ValueError):
            continue
    return found


def _write(directory: str, name: str, value: dict[str, Any]) -> None:
    path = os.path.join(directory, name)
    with open(path + ".tmp", "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    opened = os.open(directory, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
