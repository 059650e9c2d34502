"""Members that are forked off one process which has imported torch once.

An import of torch takes two seconds of CPU, and each member of a group would take them anew. So
a group starts one process, the nursery, which imports what members need and then forks them. It
has no threads of Python's, touches no device and loads nothing of the user's: a fork of it is a
member that has just begun. Linux only; elsewhere forks are not safe and each member is a process
of its own from the start (`group.py`).

A member's exit comes back over a pipe of its own: `pid N`, then `exit CODE`. The nursery ends with
whoever started it; the members see to that for themselves (`member.py`).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

_ALWAYS = ("torch", "torch._dynamo", "windlass.train.comm.meeting", "windlass.train.seat")
"""The second is what any optimiser of torch's imports when it is made: 800 modules."""
_WISH_BYTES = 65536


def forks_are_safe() -> bool:
    return sys.platform == "linux"


class Child:
    """A forked member, with what `group.py` uses of a `Popen`."""

    def __init__(self, status: int, output: int) -> None:
        self.stdout: IO[bytes] = open(output, "rb")
        self._status = status
        self._told = b""
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        while b"\n" not in self._told:
            if not self._read(None):
                raise ProcessLookupError("it was never started")
        return int(self._told.split(b"\n")[0].split()[1])

    def poll(self) -> int | None:
        while self.returncode is None and self._read(0):
            pass
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        ends = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            if not self._read(None if ends is None else max(0.0, ends - time.monotonic())):
                assert timeout is not None
                raise subprocess.TimeoutExpired("a member", timeout)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # the nursery has just seen its end
                os.kill(self.pid, signal.SIGKILL)

    def _read(self, seconds: float | None) -> bool:
        """False: nothing came within this time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._status, selectors.EVENT_READ)
            if not selector.select(seconds):
                return False
        more = os.read(self._status, 64)
        self._told += more
        lines = self._told.split(b"\n")
        if len(lines) > 2:
            self.returncode = int(lines[1].split()[1])
        elif not more:  # the nursery is dead: who would tell how the member ends
            if len(lines) > 1:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self.returncode = -signal.SIGKILL
        if self.returncode is not None:
            os.close(self._status)
        return True


class Nursery:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = there.fileno()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "windlass.train.nursery", str(number)],
            env=environment, pass_fds=[number], stdin=subprocess.DEVNULL,
        )  # fmt: skip
        there.close()
        known = [name for name in sys.modules if name.startswith("windlass.train.")]
        self._control.send(json.dumps(known).encode())

    def start(self, connection: socket.socket, environment: Mapping[str, str]) -> Child:
        """A member that takes its calls over `connection`, with these variables besides."""
        told, status = os.pipe()
        read, output = os.pipe()
        child = Child(told, read)
        try:
            wish = json.dumps(dict(environment)).encode()
            socket.send_fds(self._control, [wish], [connection.fileno(), status, output])
        except OSError:
            pass  # it is dead, which `child` and `connection` will tell
        finally:
            os.close(status)
            os.close(output)
        return child

    def close(self) -> None:
        self._control.close()
        self._popen.wait()


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in (*_ALWAYS, *json.loads(control.recv(_WISH_BYTES) or b"[]")):
        try:
            importlib.import_module(name)
        except Exception:
            pass  # the member meets it too, and tells it where it is heard
    # What is loaded by now stays as it is: no member's collector looks at it again, which would
    # copy its pages, nor does its end, which took longer than many a call.
    gc.collect()
    gc.freeze()
    connection = _fork_on_demand(control)
    from windlass.train import member

    member.main(connection)


def _fork_on_demand(control: socket.socket) -> int:
    """Comes back in members alone, with the number of the file over which one is called."""
    awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the members are told
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    children: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(awake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    os.read(awake, 4096)
                    _reap(children)
                    continue
                wish, numbers, _, _ = socket.recv_fds(control, _WISH_BYTES, 3)
                if not numbers:
                    os._exit(0)  # whoever started this is gone
                connection, status, output = numbers
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for number in (awake, wake, status, *children.values()):
                        os.close(number)
                    control.close()
                    _become_member(output, json.loads(wish))
                    return connection
                children[pid] = status
                os.write(status, f"pid {pid}\n".encode())
                os.close(connection)
                os.close(output)


def _reap(children: dict[int, int]) -> None:
    for pid in list(children):
        found, state = os.waitpid(pid, os.WNOHANG)
        if found:
            status = children.pop(pid)
            try:
                os.write(status, f"exit {os.waitstatus_to_exitcode(state)}\n".encode())
            except OSError:
                pass  # nobody asks any more
            os.close(status)


def _become_member(output: int, environment: dict[str, str]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.update(environment)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python's own draws anew by itself


if __name__ == "__main__":
    from windlass.train.nursery import main as run  # so that members are no `__main__`'s

    run()
