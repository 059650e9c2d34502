"""Members as threads of one process, with the real gathering and real sockets.

For tests that need hundreds of trainings, or an end at an exact message: a process of its own for
each member costs seconds. `Town.fell` ends a member as a kill would: all its connections break,
nothing is said. Nobody who still runs outlives the town: it is felled, and the town says so.
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

from windlass.train.comm.gathering import Gathering
from windlass.train.comm.meeting import Meeting
from windlass.train.failures import first_cause
from windlass.train.seat import Seat

_GRACE_SECONDS = 30.0
"""For those whose answer is there already and who are about to return."""
_FELLED_SECONDS = 30.0
_AFTER_SECONDS = 10.0
"""Past the deadline after which a member gives up on one that failed."""


class Town:
    def __init__(
        self,
        workers: int,
        servers: int,
        *,
        silent_seconds: float = 30.0,
        deadline_seconds: float = 20.0,
    ) -> None:
        self.secret = secrets.token_bytes(32)
        self.gathering = Gathering(self.secret, silent_seconds=silent_seconds)
        self._sizes = (workers, servers, deadline_seconds)
        self.seats: dict[str, Seat] = {}
        self._threads: list[tuple[str, threading.Thread]] = []
        for n in range(workers):
            self.sit("worker", n)
        for n in range(servers):
            self.sit("server", n)

    def sit(self, role: Any, rank: int) -> Seat:
        """A new member; again, for one that was felled."""
        workers, servers, deadline = self._sizes
        meeting = Meeting(self.gathering.address, f"{role} {rank}", self.secret)
        seat = Seat(role, rank, workers, servers, meeting, deadline_seconds=deadline)
        self.seats[seat.name] = seat
        return seat

    def start(self, name: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """`function(seat, *arguments)` in a thread."""
        future: Future[Any] = Future()
        seat = self.seats[name]

        def run() -> None:
            try:
                future.set_result(function(seat, *arguments))
            except BaseException as err:
                future.set_exception(err)

        thread = threading.Thread(target=run, name=f"town {name}", daemon=True)
        self._threads.append((name, thread))
        thread.start()
        return future

    def call(
        self, function: Callable[..., Any], *arguments: Any, timeout_seconds: float = 120.0
    ) -> dict[str, Any]:
        """The same for all, and what came of it. When one fails the others learn of it and end
        too, and only then is the cause raised: not whoever happens to be asked first, who may
        merely miss the one that failed."""
        futures = {name: self.start(name, function, *arguments) for name in self.seats}
        done, late = wait(futures.values(), timeout_seconds, FIRST_EXCEPTION)
        if any(each.exception() is not None for each in done):
            wait(late, self._sizes[2] + _AFTER_SECONDS)
        ended = [each for each in futures.values() if each.done()]
        failures = [err for each in ended if (err := each.exception()) is not None]
        if failures:
            raise first_cause(failures)
        silent = [name for name, each in futures.items() if not each.done()]
        if silent:
            raise TimeoutError(f"{', '.join(silent)}: no answer for {timeout_seconds} s")
        return {name: each.result() for name, each in futures.items()}

    def fell(self, name: str) -> None:
        """Its connection to the gathering ends without a farewell."""
        try:
            self.seats[name].meeting._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is felled already, or left

    def close(self) -> list[str]:
        """Who was still at work, and where."""
        found = self._end()
        for seat in self.seats.values():
            seat.meeting.leave()
        self.gathering.close()
        return found

    def _end(self) -> list[str]:
        """Whoever still runs is felled: nothing of it is left behind for the next test."""
        ends = time.monotonic() + _GRACE_SECONDS
        for _, thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))
        left = [(name, thread) for name, thread in self._threads if thread.is_alive()]
        frames = sys._current_frames()
        found = []
        for name, thread in left:
            frame = frames.get(thread.ident or 0)
            where = "".join(traceback.format_stack(frame)[-4:]) if frame is not None else "?"
            found.append(f"{name} was still at work when its town closed:\n{where}")
        for name, _ in left:
            self.fell(name)
        ends = time.monotonic() + _FELLED_SECONDS
        for _, thread in left:
            thread.join(max(0.0, ends - time.monotonic()))
        return found

    def __enter__(self) -> Town:
        return self

    def __exit__(self, kind: object, err: BaseException | None, *_: object) -> None:
        found = self.close()
        if err is not None:
            for each in found:
                err.add_note(each)
        elif found:
            raise AssertionError("\n".join(found))
