"""The end of the ranks: a warning, time to save, then the whole tree until nothing is left."""

from __future__ import annotations

import os
import signal
import time

from windlass.worker import cgroups, needs, processes
from windlass.worker.launch import Refused
from windlass.worker.server import Fenced, Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional

    from windlass.worker.ranks import Rank

KILL_SECONDS = 5.0


class Ending:
    """Why this node's part of the attempt ends, and when patience does."""

    def __init__(
        self, outcome: str, reason: str, grace_seconds: float, failure: Optional[Rank] = None
    ) -> None:
        self.outcome = outcome
        self.reason = reason
        self.failure = failure
        self.advice = ""
        self.need = ""
        """What the node had run out of, when that is why."""
        self.kill_at = time.monotonic() + grace_seconds

    def hurry(self, grace_seconds: float) -> None:
        """A second order can shorten the grace, never lengthen it."""
        self.kill_at = min(self.kill_at, time.monotonic() + grace_seconds)


def after(err: Exception, directory: str) -> Ending:
    """Why it ends when something was raised on the way."""
    need = needs.of(err, directory)
    if need:
        found = Ending("lost", needs.sentence(need, err), 0)
        found.need = need
    elif isinstance(err, Refused):
        found = Ending("refused", str(err), 0)
        found.advice = err.advice
    elif isinstance(err, Fenced):
        found = Ending("lost", "fenced: %s" % err, 0)
    elif isinstance(err, Gone):
        found = Ending("cancelled", "the worker was told to stop", 0)
    elif isinstance(err, OSError):
        found = Ending("lost", "the node failed the worker: %s" % err, 0)
    else:
        _trace(err)
        words = "a fault in the worker: %s: %s" % (type(err).__name__, err)
        found = Ending("lost", words, 0)
    return found


def tried(step: Callable[[], object]) -> bool:
    """One of the last steps, none of which may keep the record from being written: False when it
    failed, and `worker.log` says why."""
    try:
        step()
        return True
    except Exception as err:
        _trace(err)
        return False


def _trace(err: Exception) -> None:
    import traceback

    traceback.print_exception(type(err), err, err.__traceback__)


def warn(ranks: List[Rank]) -> None:
    """SIGTERM to every rank's process group: also to what a shell started and did not wait for."""
    processes.kill_groups([rank.pid for rank in ranks if rank.pid], signal.SIGTERM)
    # A stopped process cannot hear the warning.
    processes.kill_groups([rank.pid for rank in ranks if rank.pid], signal.SIGCONT)


def groups_live(ranks: List[Rank]) -> bool:
    for rank in ranks:
        if rank.pid:
            try:
                os.killpg(rank.pid, 0)
                return True
            except OSError:
                continue
    return False


def kill_everything(groups: List[str], ranks: List[Rank]) -> List[int]:
    """SIGKILL to all that the ranks ever started; the pids that would not die in time.

    The cgroup finds all of them at once; without one, our descendants do, since every orphan
    became our child.
    """
    processes.kill_groups([rank.pid for rank in ranks if rank.pid], signal.SIGKILL)
    left = cgroups.kill(groups, KILL_SECONDS) if groups else []
    deadline = time.monotonic() + KILL_SECONDS
    own = os.getpid()
    while True:
        reap_orphans()
        if processes.LINUX and childless():
            return [pid for pid in left if processes.stat(pid)]
        found = [each.pid for each in processes.descendants(own)]
        if not found or time.monotonic() > deadline:
            return sorted({*found, *(pid for pid in left if processes.stat(pid))})
        processes.kill(found)
        time.sleep(0.002)


def childless() -> bool:
    """Whether nothing is left below us: with a subreaper, no child means no descendant."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def reap_orphans() -> List[Any]:
    """Collect every child that has ended: (pid, status, usage) of each."""
    found: List[Any] = []
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except OSError:
            return found
        if pid == 0:
            return found
        found.append((pid, status, usage))
