"""The workers as one group of torch's collectives, formed and given up at will.

    group = form(seat)                          all workers meet (forming.py)
    pending = group.all_reduce(tensor)          begun; the sum stands there after
    pending.wait()                              MemberLost names who is missing, within seconds
    group.close()                               never waits for a peer

The raw back ends are used, not `init_process_group`: nothing global is touched, several groups
may live in one process, and a group that lost a member is simply left and formed again. Gloo has
no way to break off a collective with a peer that merely stopped (its `abort` does nothing then),
so every wait is cut into short ones between which the meeting is asked who is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from windlass.core.errors import MemberLost, TrainingFailed, WindlassError
from windlass.train.comm.meeting import Meeting
from windlass.train.comm.torchdist import background
from windlass.train.counters import Counters
from windlass.train.failures import lost

_POLL = timedelta(milliseconds=200)
_GRACE_SECONDS = 8.0
"""A broken connection is seen before the meeting knows whose: how long its word is waited for."""
_ASK_SECONDS = 2.0
_PART_SECONDS = 0.5


class Work(Protocol):
    def wait(self, timeout: timedelta = ...) -> bool: ...
    def is_completed(self) -> bool: ...


class WorkerGroup:
    """Some workers, in the order of `names`. One thread calls, in the same order on all."""

    def __init__(
        self,
        backend: Any,
        device: torch.device,
        key: str,
        names: Sequence[str],
        meeting: Meeting,
        counters: Counters,
        deadline_seconds: float,
        store: Any = None,
    ) -> None:
        self.names = tuple(names)
        self.rank = self.names.index(meeting.name)
        self.size = len(self.names)
        self.device = device
        self.step: int | None = None
        """The step that errors name: whoever steps sets it."""
        self.is_nccl = backend is not None and "nccl" in type(backend).__name__.lower()
        self._backend = backend
        self._key = key
        self._meeting = meeting
        self._counters = counters
        self.deadline_seconds = deadline_seconds
        self._store = store
        self._waits = 0

    # -- collectives ------------------------------------------------------------------------

    def all_reduce(
        self, tensor: Tensor, *, kind: str = "gradient", operation: str = "all-reduce"
    ) -> Pending:
        """The sum over the group, in place. Counts what a ring moves: 2(p-1)/p of the bytes."""
        if self.size == 1:
            return Pending(self, None, operation)
        moved = 2 * (self.size - 1) * _bytes(tensor) // self.size
        self._count(kind, moved, moved)
        return self._begin(lambda: self._backend.allreduce([tensor]), operation, [tensor])

    def broadcast(
        self, tensor: Tensor, root: int = 0, *, kind: str = "parameters",
        operation: str = "broadcast",
    ) -> Pending:  # fmt: skip
        if self.size == 1:
            return Pending(self, None, operation)
        if self.rank == root:
            self._count(kind, _bytes(tensor) * (self.size - 1), 0)
        else:
            self._count(kind, 0, _bytes(tensor))
        options = dist.BroadcastOptions()
        options.rootRank = root
        return self._begin(lambda: self._backend.broadcast([tensor], options), operation, [tensor])

    def all_gather(
        self, tensor: Tensor, *, kind: str = "gradient", operation: str = "all-gather"
    ) -> tuple[list[Tensor], Pending]:
        """Everybody's tensor (of one shape), in the order of the names."""
        if self.size == 1:
            return [tensor.clone()], Pending(self, None, operation)
        moved = (self.size - 1) * _bytes(tensor)
        self._count(kind, moved, moved)
        here = self._outgoing(tensor)
        found = [torch.empty_like(here) for _ in self.names]
        pending = self._begin(
            lambda: self._backend.allgather([found], [here]), operation, [here, *found]
        )
        return self._incoming(found, tensor, pending), pending

    def all_to_all(
        self, outgoing: Sequence[Tensor], sizes: Sequence[int], *,
        kind: str = "gradient", operation: str = "all-to-all",
    ) -> tuple[list[Tensor], Pending]:  # fmt: skip
        """`outgoing[i]`, a vector, goes to worker i; one of `sizes[i]` elements comes from it. All
        of one type; there after the wait."""
        given = self._outgoing(torch.cat(list(outgoing)))
        taken = torch.empty(sum(sizes), dtype=given.dtype, device=given.device)
        for i, (sent, received) in enumerate(zip(outgoing, sizes, strict=True)):
            if i != self.rank:
                self._count(kind, _bytes(sent), received * given.element_size())
        splits = [each.numel() for each in outgoing]
        pending = self._begin(
            lambda: self._backend.alltoall_base(taken, given, list(sizes), splits),
            operation, [given, taken],
        )  # fmt: skip
        arrived = self._incoming([taken], outgoing[0], pending)[0]
        return list(torch.split(arrived, list(sizes))), pending

    def send(
        self, tensor: Tensor, to: int, *, kind: str = "gradient", operation: str = "send"
    ) -> Pending:
        self._count(kind, _bytes(tensor), 0)
        there = self._outgoing(tensor)
        return self._begin(
            lambda: self._watched(self._backend.send([there], to, 1)), operation, [there]
        )

    def receive(
        self, tensor: Tensor, source: int, *, kind: str = "gradient", operation: str = "receive"
    ) -> Pending:
        self._count(kind, 0, _bytes(tensor))
        arrivals: list[tuple[Tensor, Tensor]] = []
        here = tensor if self.is_nccl else self._landing(tensor, arrivals)
        work = self._call(lambda: self._watched(self._backend.recv([here], source, 1)))
        return Pending(self, [work], operation, [here], arrivals)

    def store(self, name: str) -> Any:
        """A place of torch's for small values, of this group alone; of more than one worker."""
        return dist.PrefixStore(f"{self._key}/{name}", self._store)  # type: ignore[attr-defined]

    def missing(self, operation: str, err: RuntimeError) -> MemberLost | None:
        """Whose loss or silence an error of torch's outside of this group came from, if any's."""
        found = self._broken(err, operation)
        if isinstance(found, MemberLost):
            return found
        silent = self._absent()
        if not silent:
            return None
        return lost(silent, operation, self.step, waited=self.deadline_seconds)

    def part(self) -> None:
        """Until all have what they were sent, at the end of the work: a back end that is closed
        takes with it what is still on its way. Whoever is lost is not waited for."""
        if self.size == 1:
            return
        mark = f"{self._key}/parted"
        self._meeting.put(f"{mark}/{self._meeting.name}", b"1")
        ends = time.monotonic() + self.deadline_seconds
        for name in self.names:
            while name != self._meeting.name and not self._has(f"{mark}/{name}", _PART_SECONDS):
                roster = self._meeting.roster
                if name in roster.lost or name in roster.left or time.monotonic() > ends:
                    break

    def close(self) -> None:
        """Says farewell and lets go. What is in flight with a stopped peer ends by itself."""
        backend, self._backend = self._backend, None
        store, self._store = self._store, None
        if backend is None:
            return
        try:
            self._meeting.put(f"{self._key}/closed/{self._meeting.name}", b"1")
        except MemberLost:
            pass  # whoever keeps the meeting is gone: nobody would read it
        if self.is_nccl:
            backend.abort()
        # The destructor of a gloo group waits for its unfinished collectives.
        held = [backend, store]
        del backend, store
        background.begin(_release, held).join(0.2)

    # -- waiting ----------------------------------------------------------------------------

    def wait(self, works: Sequence[Work], operation: str) -> None:
        """Until all are done. Raises MemberLost with those that are lost, or that did not come to
        this wait within the deadline."""
        self._waits += 1
        began = time.monotonic()
        for work in works:
            if self.is_nccl:
                work.wait()
            else:
                self._wait_one(work, operation, began)
        if self.is_nccl:
            self._wait_for_device(operation, began)

    def _wait_one(self, work: Work, operation: str, began: float) -> None:
        while True:
            try:
                work.wait(_POLL)
                return
            except RuntimeError:
                if work.is_completed():
                    break
                self._look(operation, began)
        try:
            work.wait(_POLL)  # at once: it broke, or it was done just after the short wait
        except RuntimeError as err:
            raise self._broken(err, operation) from err

    def _wait_for_device(self, operation: str, began: float) -> None:
        """Nccl's `wait` is the stream's. The host waits too: a step must not be applied with the
        half-summed gradient of a group that broke."""
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types here
        done.record()
        looked = time.monotonic()
        while not done.query():  # type: ignore[no-untyped-call]
            if time.monotonic() - looked > _POLL.total_seconds():
                looked = time.monotonic()
                try:
                    self._look(operation, began)
                except MemberLost:
                    self._backend.abort()
                    raise
            time.sleep(0.00002)

    def _look(self, operation: str, began: float) -> None:
        missing = self._lost(operation)
        if missing is not None:
            raise missing
        if time.monotonic() > began + self.deadline_seconds:
            raise lost(self._absent(), operation, self.step, waited=self.deadline_seconds)

    def _lost(self, operation: str) -> MemberLost | None:
        """Who is gone, as the meeting knows it now."""
        roster = self._meeting.roster
        gone = {name: roster.lost[name] for name in self.names if name in roster.lost}
        gone = gone or {name: "it left" for name in self.names if name in roster.left}
        if not gone:
            return None
        return lost(list(gone), operation, self.step, why="; ".join(sorted(set(gone.values()))))

    def _absent(self) -> list[str]:
        """Who is alive but did not come to this wait: the others all say that they wait too."""
        mark = f"{self._key}/waiting/{self._waits}"
        self._meeting.put(f"{mark}/{self._meeting.name}", b"1")
        return self._silent_under(mark)

    def _silent_under(self, mark: str) -> list[str]:
        found = []
        for name in self.names:
            if name != self._meeting.name and not self._has(f"{mark}/{name}", _ASK_SECONDS):
                found.append(name)
        return found

    def _has(self, key: str, seconds: float) -> bool:
        try:
            self._meeting.get(key, operation="asking", deadline_seconds=seconds)
        except MemberLost:
            return False
        return True

    def _broken(self, err: RuntimeError, operation: str) -> WindlassError:
        """A connection broke: whose, the meeting knows soon; or a peer gave up by itself."""
        ends = time.monotonic() + min(self.deadline_seconds, _GRACE_SECONDS)
        others = [name for name in self.names if name != self._meeting.name]
        while time.monotonic() < ends:
            missing = self._lost(operation)
            if missing is not None:
                return missing
            closed = [name for name in others if self._has(f"{self._key}/closed/{name}", 0.05)]
            if closed:
                # Mostly because of another's loss, of which it has heard before us.
                self._has(f"{self._key}/closed/nobody", _ASK_SECONDS)
                return self._lost(operation) or lost(
                    closed, operation, self.step, why="it gave up before the others"
                )
        at = "" if self.step is None else f" at step {self.step}"
        return TrainingFailed(f"{operation}{at} failed: {err}")

    # -- below ------------------------------------------------------------------------------

    def _begin(self, make: Callable[[], Work], operation: str, held: list[Tensor]) -> Pending:
        return Pending(self, [self._call(make)], operation, held)

    def _call(self, make: Callable[[], Work]) -> Work:
        if self._backend is None:
            raise TrainingFailed("the group of workers was closed")
        return make()

    def _count(self, kind: str, sent: int, received: int) -> None:
        if sent:
            self._counters.sent(kind, sent)
        if received:
            self._counters.received(kind, received)

    def _watched(self, work: Work) -> Work:
        return work if self.is_nccl else _Watched(work)

    def _outgoing(self, tensor: Tensor) -> Tensor:
        """Gloo sends from the host's memory."""
        found = tensor.detach().contiguous()
        return found if self.is_nccl else found.cpu()

    @staticmethod
    def _landing(tensor: Tensor, arrivals: list[tuple[Tensor, Tensor]]) -> Tensor:
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            return tensor
        here = torch.empty(tensor.shape, dtype=tensor.dtype)
        arrivals.append((tensor, here))
        return here

    @staticmethod
    def _incoming(found: list[Tensor], like: Tensor, pending: Pending) -> list[Tensor]:
        if found[0].device == like.device:
            return found
        there = [each.to(like.device, copy=True) for each in found]
        pending.arrivals.extend(zip(there, found, strict=True))
        return there


class _Watched:
    """A send or receive of gloo. A short wait for one breaks its connection when it is not done in
    time, unlike one for a collective: so a thread waits to the end, and we for the thread."""

    def __init__(self, work: Work) -> None:
        self._done = threading.Event()
        self._failed: RuntimeError | None = None
        background.begin(self._watch, work)

    def wait(self, timeout: timedelta = _POLL) -> bool:
        if not self._done.wait(timeout.total_seconds()):
            raise RuntimeError("not yet")
        if self._failed is not None:
            raise self._failed
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()

    def _watch(self, work: Work) -> None:
        try:
            work.wait()
        except RuntimeError as err:
            self._failed = err
        self._done.set()


class Pending:
    """Something begun. Holds its tensors for as long as it is in flight."""

    __slots__ = ("arrivals", "group", "held", "operation", "works")

    def __init__(
        self,
        group: WorkerGroup,
        works: Sequence[Work] | None,
        operation: str,
        held: list[Tensor] | None = None,
        arrivals: list[tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        self.group = group
        self.works = works
        self.operation = operation
        self.held = held
        self.arrivals = arrivals if arrivals is not None else []

    def wait(self) -> None:
        if self.works:
            self.group.wait(self.works, self.operation)
        for there, here in self.arrivals:
            there.copy_(here)
        self.works, self.held, self.arrivals = None, None, []


def _release(held: list[Any]) -> None:
    held.clear()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
