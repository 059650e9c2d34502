"""Starting one rank: fork, make the child a prisoner of this worker, exec.

Why not `subprocess`: it costs 13 ms to import, and its `preexec_fn` does no more than this. The
fork happens in the main thread, since the death signal follows the thread that forked.
"""

from __future__ import annotations

import os
import resource
import signal

from windlass.worker import mark, needs
from windlass.worker.confinement import Confinement
from windlass.worker.kernel import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

MAX_OPEN_FILES = 1 << 16


class Spawner:
    """Loads what the child needs before the fork: after it, only plain calls are safe."""

    def __init__(self) -> None:
        self.system: Optional[Kernel] = None
        self.mark = mark.new()
        try:
            self.system = Kernel()
            # Every orphan of the ranks becomes our child, so none can be lost from sight.
            self.system.become_subreaper()
        except OSError:
            pass

    def start(
        self,
        command: List[str],
        environment: Dict[str, str],
        directory: str,
        cgroup_files: List[str],
        confinement: Optional[Confinement] = None,
        max_file_bytes: int = 0,
    ) -> Tuple[int, int, int, int]:
        """(pid, stdout, stderr, trouble): our ends of the pipes. `trouble` ends empty once the
        command runs; else it holds the reason why not (see `trouble_of`)."""
        parent = os.getpid()
        confinement = confinement or Confinement(self.system)
        pipes: List[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe()
            pid = confinement.fork()
        except OSError:
            for each in pipes:
                os.close(each)
            raise
        out_read, out_write, err_read, err_write, trouble_read, trouble_write = pipes
        if pid == 0:
            try:
                _become_rank(cgroup_files, out_write, err_write)
                mark.take(self.mark)
                if max_file_bytes:
                    _bound_files(max_file_bytes)
                confinement.confine(parent)
                os.chdir(directory)
                os.execvpe(command[0], command, environment)
            except BaseException as err:
                number = getattr(err, "errno", None) or 0
                os.write(trouble_write, ("%d:%s" % (number, err)).encode("utf-8", "replace"))
            finally:
                os._exit(127)
        for each in (out_write, err_write, trouble_write):
            os.close(each)
        return pid, out_read, err_read, trouble_read


def _become_rank(cgroup_files: List[str], out: int, err: int) -> None:
    os.setsid()
    for path in cgroup_files:
        opened = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(opened, b"0")
        os.close(opened)
    _prefer_to_be_killed()
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _bound_open_files()
    os.umask(0o077)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(err, 2)


def trouble_of(command: List[str], trouble: int) -> str:
    """Wait until the command runs ("") or could not be started (the reason, for people). Raises
    OSError when it was the node that had too little left for it."""
    text = b""
    while True:
        piece = os.read(trouble, 4096)
        if not piece:
            break
        text += piece
    os.close(trouble)
    if not text:
        return ""
    number, _, words = text.decode("utf-8", "replace").partition(":")
    if number.isdigit() and int(number) in needs.OF:
        raise OSError(int(number), "%s: %s" % (command[0], words))
    if number == "2":
        return "command not found: %s" % command[0]
    if number in ("8", "13"):
        return "command cannot be executed: %s (%s)" % (command[0], words)
    return "command could not be started: %s (%s)" % (command[0], words)


def _prefer_to_be_killed() -> None:
    """When the machine runs out of memory, a rank goes before the worker and the server."""
    try:
        opened = os.open("/proc/self/oom_score_adj", os.O_RDWR)
    except OSError:
        return
    try:
        now = int(os.read(opened, 16))
        os.write(opened, str(min(1000, max(now, 0) + 500)).encode())
    except (OSError, ValueError):
        pass
    finally:
        os.close(opened)


def _bound_files(most: int) -> None:
    """No file grows over this: who tries gets `File too large`, or the signal SIGXFSZ."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _bound_open_files() -> None:
    """A job that opens without end runs out by itself, long before the machine does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bound = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft > bound:
        soft = bound
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, bound))
