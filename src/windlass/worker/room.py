"""The room a job's ranks run in: namespaces with a file system of their own, made by bubblewrap.

    worker ──► bwrap ──► (inside) its init ──► cat, which waits for the worker to leave
       └────► fork, enter the room, exec ──► a rank: the worker's own child, seen by its real pid

bubblewrap only builds the room and keeps it; the ranks enter it themselves. So a rank's exit,
signals and debuggers work as without a room, all ranks of a node share one /tmp and /dev/shm,
and when the room's keeper dies, the kernel ends everything inside, escaped or not.
"""

from __future__ import annotations

import errno
import json
import os
import select

from windlass.worker import kernel, layout
from windlass.worker.kernel import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from windlass.worker.layout import Plan

READY_SECONDS = 20.0
_KINDS = (
    ("ipc", kernel.NEW_IPC),
    ("uts", kernel.NEW_HOST_NAME),
    ("net", kernel.NEW_NETWORK),
    ("mnt", kernel.NEW_MOUNTS),
)


class NoRoom(Exception):
    """The room cannot be made here; the message says why."""


class Room:
    """Made whole by the constructor. Raises NoRoom, and TimeoutError on a machine that is so
    busy that another try is worth it.

    One that has only a network of its own (`plan.network_only`) can be made by anybody whom the
    kernel lets have a user namespace; its ranks then enter that one first.
    """

    def __init__(self, plan: Plan, system: Kernel) -> None:
        self._system = system
        self._own_pids = -1
        self._kinds = _KINDS
        if plan.network_only:
            borrowed = () if os.geteuid() == 0 else (("user", kernel.NEW_USERS),)
            self._kinds = (*borrowed, ("net", kernel.NEW_NETWORK))
        self._namespaces: Dict[str, int] = {}
        self.pid = 0
        program = layout.bubblewrap()
        if program is None:
            raise NoRoom("bubblewrap is not installed (apt install bubblewrap)")
        keeper_in, self._keep = os.pipe()
        answer, keeper_out = os.pipe()
        told, told_out = os.pipe()
        words, words_out = os.pipe()
        command = [program, "--info-fd", str(told_out), *layout.arguments(plan), "--", "cat"]
        try:
            self.pid = _start(command, keeper_in, keeper_out, words_out, told_out)
            for each in (keeper_in, keeper_out, told_out, words_out):
                os.close(each)
            os.write(self._keep, b"!")
            _wait_for(answer, words)
            inside = json.loads(_read_all(told))["child-pid"]
            for name, _ in self._kinds:
                self._namespaces[name] = _namespace("/proc/%d/ns/%s" % (inside, name))
            if not plan.network_only:
                self._namespaces["pid"] = _namespace("/proc/%d/ns/pid" % inside)
                self._own_pids = _namespace("/proc/self/ns/pid")
        except TimeoutError:
            raise
        except (OSError, ValueError, KeyError) as err:
            raise NoRoom("the room cannot be entered: %s" % err) from err
        finally:
            for each in (answer, told, words):
                os.close(each)

    @property
    def counts_pids(self) -> bool:
        """Whether pids count anew inside."""
        return "pid" in self._namespaces

    def fork(self) -> int:
        """As `os.fork`, from the main thread; the child's pid counts inside the room. The other
        namespaces it enters by `enter`, once it needs nothing from outside any more."""
        if not self.counts_pids:
            return os.fork()
        self._system.enter(self._namespaces["pid"], kernel.NEW_PIDS)
        try:
            pid, trouble = os.fork(), 0
        except OSError as err:
            pid, trouble = -1, err.errno or errno.EAGAIN
        if pid == 0:
            return 0
        # A thread that forks elsewhere can start no thread: back before anything else.
        self._system.enter(self._own_pids, kernel.NEW_PIDS)
        if pid < 0:
            raise OSError(trouble, "the machine has no process left for a rank")
        return pid

    def enter(self) -> None:
        """In a child alone. The file system last: what it hides is needed until then."""
        for name, kind in self._kinds:
            self._system.enter(self._namespaces[name], kind)

    def enter_network(self) -> None:
        """In a child alone, to make a socket there."""
        for name, kind in self._kinds:
            if name in ("user", "net"):
                self._system.enter(self._namespaces[name], kind)


def _namespace(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _start(command: List[str], stdin: int, stdout: int, stderr: int, told: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number, opened in enumerate((stdin, stdout, stderr)):
            os.dup2(opened, number)
        os.set_inheritable(told, True)
        # The folders it makes on the way to a mount are to be passed by the job's user.
        os.umask(0o022)
        os.chdir("/")
        os.execve(command[0], command, {"PATH": layout.PATH})
    finally:
        os._exit(127)


def _wait_for(answer: int, words: int) -> None:
    """Until the keeper inside has answered. Raises NoRoom with bubblewrap's last words."""
    ready, _, _ = select.select([answer], [], [], READY_SECONDS)
    if not ready:
        raise TimeoutError("bubblewrap did not answer within %g s" % READY_SECONDS)
    if not os.read(answer, 1):
        raise NoRoom(_last_line(words) or "bubblewrap ended without a word")


def _read_all(opened: int) -> bytes:
    text = b""
    while not text.rstrip().endswith(b"}"):
        piece = os.read(opened, 4096)
        if not piece:
            break
        text += piece
    return text


def _last_line(opened: int) -> Optional[str]:
    ready, _, _ = select.select([opened], [], [], 1.0)
    text = os.read(opened, 65536).decode("utf-8", "replace") if ready else ""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else None
