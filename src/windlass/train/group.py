"""Members as processes of this machine: started, called, watched, ended.

    with Group(workers=3, servers=1) as group:
        answers = group.call(function, argument)      function(seat, argument) in each of them
        answers["worker 0"]

A call ends when all have answered; when one fails or dies the others are told through the
gathering, and the call raises with the first cause.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.core.errors import MemberLost, TrainingFailed, WindlassError
from windlass.train import calls
from windlass.train.comm.gathering import Gathering
from windlass.train.failures import first_cause, lost
from windlass.train.member import Place
from windlass.train.nursery import Child, Nursery, forks_are_safe

if TYPE_CHECKING:
    from windlass.train.comm.gathering import Told

Line = Callable[[str, str], None]
Died = Callable[[str], dict[str, int]]


@dataclass
class Process:
    name: str
    popen: subprocess.Popen[bytes] | Child
    connection: socket.socket
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=40))
    pump: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self.popen.pid


class Group:
    def __init__(
        self,
        workers: int,
        servers: int = 0,
        *,
        device: str = "cpu",
        threads: int | None = None,
        seed: int = 0,
        deadline_seconds: float = 30.0,
        silent_seconds: float = 10.0,
        environment: dict[str, str] | None = None,
        told: Told | None = None,
        line: Line | None = None,
    ) -> None:
        """`told` hears what members tell (progress); `line` gets each line they print."""
        count = workers + servers
        self._threads = threads or max(1, (os.cpu_count() or 1) // max(1, count))
        self._secret = secrets.token_bytes(32)
        self._environment = environment or {}
        self._line = line
        self._settings = (workers, servers, device, seed, deadline_seconds)
        self.gathering = Gathering(self._secret, silent_seconds=silent_seconds, told=told)
        self.processes: dict[str, Process] = {}
        self._nursery: Nursery | None = None
        self._number = 0
        names = [("worker", n) for n in range(workers)] + [("server", n) for n in range(servers)]
        try:
            for role, rank in names:
                self._spawn(role, rank)
            for process in self.processes.values():
                self._ready(process)
        except BaseException:
            self.close(patience_seconds=0)
            raise

    # -- calls ------------------------------------------------------------------------------

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        only: Sequence[str] | None = None,
        timeout_seconds: float | None = None,
        tolerate: bool = False,
    ) -> dict[str, Any]:
        """`function(seat, *arguments)` in each member (or in `only` those), and what it gave, by
        name. Raises the member's own error, or MemberLost when its process ended. With
        `tolerate`, a dead member is left out instead."""
        number = self.begin(function, *arguments, only=only)
        return self.finish(number, only=only, timeout_seconds=timeout_seconds, tolerate=tolerate)

    def begin(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        only: Sequence[str] | None = None,
        scope: int | None = None,
    ) -> int:
        """The call's number. `scope` is the number of the call that it joins, of a member that
        was started again."""
        self._number += 1
        message = (self._number, scope or self._number, function, arguments)
        for name in only or list(self.processes):
            calls.send(self.processes[name].connection, message)
        return self._number

    def finish(
        self,
        number: int,
        *,
        only: Sequence[str] | None = None,
        timeout_seconds: float | None = None,
        tolerate: bool = False,
        died: Died | None = None,
    ) -> dict[str, Any]:
        """The answers of a call that has begun. `died` hears of a process that ended instead of
        answering, and gives the numbers of calls to wait for instead, by name: of those that it
        has started again."""
        waiting = dict.fromkeys(only or self.processes, number)
        ends = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        answers: dict[str, Any] = {}
        failures: list[WindlassError] = []
        while waiting:
            try:
                readable = self._readable(list(waiting), ends)
            except MemberLost:
                if not failures:
                    raise
                break  # why they do not answer is that another failed
            started: dict[str, int] = {}
            for name in readable:
                if name in started:
                    continue  # it was about the process before
                kind, said, *rest = self._read(name)
                if kind != "died" and said not in (waiting[name], 0):
                    continue  # of a call that was given up
                del waiting[name]
                if kind == "done":
                    answers[name] = rest[0]
                elif kind == "died" and died is not None:
                    started.update(died(name))
                    waiting.update(started)
                    for who in started:
                        answers.pop(who, None)
                elif kind != "died" or not tolerate:
                    failures.append(self._failure(self.processes[name], kind, rest))
                    # The others learn of it through the gathering; we do not wait for ever.
                    late = time.monotonic() + self._settings[4] + 5
                    ends = late if ends is None else min(ends, late)
        if failures:
            raise first_cause(failures)
        return answers

    def _readable(self, names: Sequence[str], ends: float | None) -> list[str]:
        """Those who have something to say. Raises MemberLost past the time."""
        left = None if ends is None else ends - time.monotonic()
        with selectors.DefaultSelector() as selector:
            for name in names:
                selector.register(self.processes[name].connection, selectors.EVENT_READ, name)
            found = selector.select(left) if left is None or left > 0 else []
        if not found:
            raise lost(sorted(names), "a call", None, why="it did not answer in time")
        return [key.data for key, _ in found]

    def _read(self, name: str) -> tuple[Any, ...]:
        try:
            found: tuple[Any, ...] = calls.receive(self.processes[name].connection)
            return found
        except (EOFError, OSError):
            return ("died", 0)

    # -- processes --------------------------------------------------------------------------

    def pid(self, name: str) -> int:
        return self.processes[name].pid

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):  # it is dead already
            os.kill(self.pid(name), how)

    def start_again(self, *names: str) -> None:
        """New processes in the places of these, which end if they have not: not forks, which would
        be there before the others have seen that they were gone."""
        for name in names:
            self._end(self.processes.pop(name), 0)
        for name in names:
            role, _, rank = name.partition(" ")
            self._spawn(role, int(rank), forked=False)
        for name in names:
            self._ready(self.processes[name])

    def close(self, patience_seconds: float = 5.0) -> None:
        for process in self.processes.values():
            try:
                calls.send(process.connection, (None, None, None, None))
            except OSError:
                pass
        ends = time.monotonic() + patience_seconds
        lost = self.gathering.lost
        for process in self.processes.values():
            left = 0.0 if process.name in lost else ends - time.monotonic()
            self._end(process, max(0.0, left))
        self.processes.clear()
        if self._nursery is not None:
            self._nursery.close()
        self.gathering.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self, role: str, rank: int, *, forked: bool = True) -> None:
        workers, servers, device, seed, deadline = self._settings
        here, there = socket.socketpair()
        process = Process(f"{role} {rank}", self._start(there, rank, forked), here)
        there.close()
        process.pump = threading.Thread(target=self._pump, args=(process,), daemon=True)
        process.pump.start()
        self.processes[process.name] = process
        place = Place(
            role, rank, workers, servers, self.gathering.address, self._secret, device,  # type: ignore[arg-type]
            self._threads, seed, deadline, calls.describe_main(),
        )  # fmt: skip
        calls.send(here, place)

    def _start(
        self, connection: socket.socket, rank: int, forked: bool
    ) -> subprocess.Popen[bytes] | Child:
        environment = {
            **os.environ, "OMP_NUM_THREADS": str(self._threads), "PYTHONUNBUFFERED": "1",
            **self._environment, "WORLD_SIZE": str(self._settings[0]),
        }  # fmt: skip
        own = {"RANK": str(rank)}
        if forked and forks_are_safe():
            self._nursery = self._nursery or Nursery(environment)
            return self._nursery.start(connection, own)
        number = connection.fileno()
        return subprocess.Popen(
            [sys.executable, "-m", "windlass.train.member", str(number)],
            env={**environment, **own}, pass_fds=[number], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def _ready(self, process: Process) -> None:
        try:
            calls.receive(process.connection)
        except (EOFError, OSError):
            raise self._failure(process, "died", []) from None

    def _pump(self, process: Process) -> None:
        assert process.popen.stdout is not None
        for raw in process.popen.stdout:
            text = raw.decode("utf-8", "replace").rstrip("\n")
            process.lines.append(text)
            if self._line is not None:
                self._line(process.name, text)

    def _failure(self, process: Process, kind: str, rest: list[Any]) -> WindlassError:
        if kind == "died":
            code = process.popen.wait(60)
            if process.pump is not None:
                process.pump.join(10)
            why = (
                f"killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with {code}"
            )
            tail = "".join(f"\n  {line}" for line in list(process.lines)[-12:])
            return lost([process.name], "training", None, why=why + tail)
        told, trace = rest
        if isinstance(told, WindlassError):
            return told
        return TrainingFailed(f"{process.name}: {told}\n{trace}", who=process.name)

    def _end(self, process: Process, patience_seconds: float) -> None:
        try:
            process.popen.wait(patience_seconds) if patience_seconds else process.popen.kill()
        except subprocess.TimeoutExpired:
            process.popen.kill()
        process.popen.wait()
        process.connection.close()
        if process.pump is not None:
            process.pump.join(5)
        if process.popen.stdout is not None:
            process.popen.stdout.close()
