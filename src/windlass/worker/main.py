"""`python worker.pyz run DIR [FROM]` and `python worker.pyz reap DIR`.

FROM is a folder that holds `launch.json` and `token` where DIR does not: what an engine without
a shared file system mounts.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

USAGE = "usage: worker.pyz run DIR [FROM] | worker.pyz reap DIR"


def main(arguments: List[str]) -> int:
    word, given = arguments[0] if arguments else "", len(arguments)
    if word not in ("run", "reap") or not 2 <= given <= (3 if word == "run" else 2):
        print(USAGE, file=sys.stderr)
        return 2
    directory = os.path.abspath(arguments[1])
    os.umask(0o077)
    if given == 3:
        lay_down(directory, arguments[2])
    lock = take_lock(directory, wait_seconds=0.5)
    if word == "reap":
        if lock is None:
            print("the worker of %s is alive: its lock is held" % directory, file=sys.stderr)
            return 3
        from windlass.worker.reap import reap

        return reap(directory)
    if lock is None:
        return 0
    return run(directory)


def run(directory: str) -> int:
    """One attempt, from the lock to the record. A second worker on the same directory leaves."""
    for name in ("worker.json", "exit.json"):
        if os.path.lexists(os.path.join(directory, name)):
            return 0
    if os.getpid() != os.getsid(0):
        try:
            os.setsid()
        except OSError:
            pass
    os.chdir(directory)
    from windlass.worker import launch, needs, record
    from windlass.worker.words import Words

    sys.stdout, sys.stderr = Words(1), Words(2)
    told = None
    try:
        told = launch.read(directory)
        record.reserve(directory, sum(member.nproc for member in told.members))
        _introduce(directory)
        from windlass.worker.attempt import Attempt

        attempt = Attempt(told)
    except Exception as err:
        need = needs.of(err, directory)
        who = (told.attempt_id, told.attempt, told.node) if told is not None else ("", 0, "")
        if need:
            words = needs.sentence(need, err)
            record.write(directory, record.make(*who, "lost", words, need=need))
        elif isinstance(err, launch.Refused):
            record.write(directory, record.make(*who, "refused", str(err)))
        else:
            raise
        return 0
    attempt.run()
    # Threads that wait for the server are not waited for: all that matters is on disk.
    os._exit(0)


def _introduce(directory: str) -> None:
    from windlass import __version__
    from windlass.worker import processes, record

    record.write_json(
        os.path.join(directory, "worker.json"),
        {
            "pid": os.getpid(),
            "start_time": processes.start_time(os.getpid()) or time.time(),
            "boot_id": processes.boot_id(),
            "version": __version__,
        },
    )


def lay_down(directory: str, source: str) -> None:
    """What we were told, copied from where it was mounted into a directory of our own. A second
    worker there changes nothing."""
    os.makedirs(directory, 0o700, exist_ok=True)
    for name in ("launch.json", "token"):
        with open(os.path.join(source, name), "rb") as file:
            content = file.read()
        fresh = os.path.join(directory, ".%s-%d" % (name, os.getpid()))
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as copy:
            copy.write(content)
        os.replace(fresh, os.path.join(directory, name))


def take_lock(directory: str, wait_seconds: float) -> Optional[int]:
    """The open lock, None when another holds it. Whoever looks whether a worker lives holds it
    for a moment, so one refusal proves nothing."""
    path = os.path.join(directory, "lock")
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
        except OSError:
            if time.monotonic() > deadline:
                os.close(opened)
                return None
            time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
