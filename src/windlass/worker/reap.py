"""After a worker that died without a word: end what it left, and write the record it could not.

Whatever still runs is found by cgroup, by process group and session of its ranks, and by the
marks that every rank carries, in its environment and in a limit (`mark`). The caller holds the
worker's lock.
"""

from __future__ import annotations

import json
import os
import time

from windlass.worker import cgroups, mark, needs, processes, scratch
from windlass.worker import record as records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Set

KILL_SECONDS = 5.0


def reap(directory: str) -> int:
    """The exit status: 0 when the record is there. The caller holds the lock."""
    launch = _read(os.path.join(directory, "launch.json"))
    known = _read(os.path.join(directory, "processes.json"))
    groups = [path for path in known.get("cgroups", []) if os.path.isdir(path)]
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        left = _left(directory, known, groups)
        if not left:
            # Who forks while one looks can be missed once: the child is not in the list yet, the
            # parent not any more.
            left = _left(directory, known, groups)
        if not left or time.monotonic() > deadline:
            break
        cgroups.kill(groups, 0)
        processes.kill(left)
        processes.gone(left, 0.5)
    cgroups.remove(groups)
    scratch.remove(directory)
    if not os.path.exists(os.path.join(directory, "exit.json")):
        started = bool(known.get("ranks"))
        last = "" if started else _last_words(directory)
        need = needs.in_words(last, directory)
        words = "the worker died and left no record"
        record = records.make(
            str(launch.get("attempt_id", "")),
            int(launch.get("attempt", 0)),
            str(launch.get("node", "")),
            "lost",
            needs.sentence(need, last) if need else words,
            survivors=sorted(left),
            need=need,
        )
        records.write(directory, record)
    return 0


def _left(directory: str, known: Dict[str, Any], groups: Any) -> Set[int]:
    """The pids of all that still runs of this attempt on this node."""
    everyone = processes.everyone()
    found = set(cgroups.processes(groups))
    leaders = {}
    for rank in known.get("ranks", []):
        leaders[rank["pid"]] = rank["start_time"]
    for each in everyone:
        for leader in {each.group, each.session} & set(leaders):
            # The group is the rank's unless its number was given to a newer leader.
            now = processes.stat(leader)
            if now is None or now.start_time == leaders[leader]:
                found.add(each.pid)
    # The folder, not the attempt's id: other nodes of the attempt may be on this machine too.
    named = os.fsencode("WINDLASS_RUN_DIR=" + os.path.join(directory, "run"))
    found.update(each.pid for each in processes.marked(named, everyone))
    number = known.get("mark")
    if type(number) is int:
        found.update(each.pid for each in mark.bearers(number, everyone))
    found.discard(os.getpid())
    return {pid for pid in found if processes.gone({pid}, 0)}


def _last_words(directory: str) -> str:
    """The end of what a worker said that died before it had started anything."""
    try:
        opened = os.open(os.path.join(directory, "worker.log"), os.O_RDONLY | os.O_NOFOLLOW)
        with open(opened, "rb") as file:
            file.seek(max(0, os.fstat(opened).st_size - 4096))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


def _read(path: str) -> Dict[str, Any]:
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
