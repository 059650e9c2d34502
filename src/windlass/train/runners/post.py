"""Messages between the stages of a pipeline, which may come before anybody waits for them.

    post.give("worker 2", Key("forward", stage=2, step=7, batch=0), values, kind="activation")
    parcel = post.take(Key("forward", stage=2, step=7, batch=0), source="worker 1")

A message carries its own shapes, so they may change from one to the next. Receiving never needs
the receiver's thread, so sends that cross cannot hang. A wait that comes to nothing names whom the
whole pipeline waits for: the one that does nothing although it waits for nobody.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from windlass.core.errors import MemberLost
from windlass.train.comm.meeting import Roster
from windlass.train.comm.transport import Answer, Endpoint, Peer, Request
from windlass.train.failures import lost
from windlass.train.seat import Seat

_HANDLERS = 2
_GAVE_UP = "gave up on"
_ASK_SECONDS = 0.5
_SILENT, _TOLD = -1, -2
_ANSWER_SECONDS = 5.0
"""Until one is taken for silent that is asked what it does: it need not wait for its own work."""
_LONGEST_WORK_SECONDS = 3600.0
WHAT = ("forward", "backward", "gathering")


class Key(NamedTuple):
    """`what` is one of WHAT; `stage` is whom it is for."""

    what: str
    stage: int
    step: int
    batch: int

    @property
    def words(self) -> str:
        return f"{self.what} of batch {self.batch} at stage {self.stage}"


@dataclass
class Parcel:
    values: tuple[Any, ...]
    header: dict[str, Any] = field(default_factory=dict)


class Post:
    """One of each member of a pipeline. Called from one thread."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.done = 0
        """Actions that this member has carried out: how others see that it is at work."""
        self.members = frozenset(f"worker {n}" for n in range(seat.workers))
        self._changed = threading.Condition()
        self._inbox: dict[Key, Parcel] = {}
        self._sent: deque[tuple[str, Future[Answer]]] = deque()
        self._peers: dict[str, Peer] = {}
        self._roster = Roster()
        self._waits_for = ""
        self._works_since: float | None = None
        self.endpoint = Endpoint(
            seat.name, seat.meeting.secret, host=seat.host, counters=seat.counters,
            threads=_HANDLERS,
        )  # fmt: skip
        for what in WHAT:
            self.endpoint.on(what, self._arrive, at_once=True)
        self.endpoint.on("progress", self._tell, at_once=True)
        # One seat may carry several pipelines, one after another or at once.
        count = f"{seat.meeting.scope}post of {seat.workers}"
        seat.formed[count] += 1
        self._key = f"post {seat.formed[count]} of {seat.workers}"
        self.endpoint.publish(seat.meeting, self._key)
        seat.meeting.on_change(self._see)

    def give(
        self,
        to: str,
        key: Key,
        values: Sequence[Any],
        header: dict[str, Any] | None = None,
        *,
        kind: str,
    ) -> None:
        """Returns at once. Values are tensors, or what JSON knows but for dicts. The tensors are
        not to be written to any more."""
        self.reap()
        if to == self.seat.name:
            self.put(key, Parcel(tuple(_cut_off(each) for each in values), header or {}))
            return
        tensors: list[Tensor] = []
        told = [_packed(each, tensors) for each in values]
        sent = self.peer(to, key.step).send(
            key.what, {"key": list(key), "values": told, "more": header or {}},
            _staged(tensors), kind=kind, step=key.step, lazily=True,
        )  # fmt: skip
        self._sent.append((to, sent))

    def take(self, key: Key, source: str, *, device: torch.device | None = None) -> Parcel:
        """What `source` gives or has given, on this member's device or another. Raises
        MemberLost."""
        self._waits_for = source
        before: tuple[str, int] | None = None
        while (found := self._await(key, source)) is None:
            now = self._idler(source)
            if now == before or now[1] == _TOLD:
                # Whoever waits for this member now learns whom it gave up on.
                self.seat.meeting.put(f"{_GAVE_UP}/{self.seat.name}", now[0].encode())
                raise lost([now[0]], key.words, key.step, waited=self.seat.deadline_seconds)
            before = now
        self._waits_for = ""
        values = tuple(_placed(each, device or self.seat.device) for each in found.values)
        return Parcel(values, found.header)

    def _await(self, key: Key, source: str) -> Parcel | None:
        """None: not for half the deadline."""
        began = time.monotonic()
        with self._changed:
            while key not in self._inbox:
                self._look(source, key.words, key.step)
                left = began + max(0.5, self.seat.deadline_seconds / 2) - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return self._inbox.pop(key)

    def _look(self, source: str, operation: str, step: int | None) -> None:
        """One that is lost ends the whole pipeline, whomever this member waits for: the others
        let go of their endpoints when they see it."""
        gone = {n: why for n, why in self._roster.lost.items() if n in self.members}
        if not gone and source in self._roster.left:
            gone = {source: "it left"}
        if gone:
            why = "; ".join(sorted(set(gone.values())))
            raise lost(sorted(gone), operation, step, why=why)

    def _idler(self, name: str) -> tuple[str, int]:
        """Whom the waits end at, and how many actions it has carried out; or that it does not
        answer, or that one who is gone had given up on it."""
        seen: list[str] = []
        while True:
            try:
                answer = self.peer(name, None).call(
                    "progress", kind="control", step=None, deadline_seconds=_ANSWER_SECONDS
                )
            except MemberLost:
                told = self._given_up_by(name)
                return (name, _SILENT) if told is None else (told, _TOLD)
            seen.append(name)
            further = str(answer.header["waits_for"])
            if not further or further in seen or further == self.seat.name:
                return name, int(answer.header["done"])
            name = further

    def _given_up_by(self, name: str) -> str | None:
        key = f"{_GAVE_UP}/{name}"
        try:
            told = self.seat.meeting.get(key, operation="asking", deadline_seconds=_ASK_SECONDS)
        except MemberLost:
            return None
        return told.decode()

    @contextmanager
    def awaiting(self, name: str, operation: str, step: int | None) -> Iterator[None]:
        """Around a wait that is not the post's: for this member ("": for several). When it raises
        MemberLost, of one that merely waits for another, or gave up on it, it is the other that is
        named."""
        self._waits_for = name
        try:
            yield
        except MemberLost as err:
            self._look("", operation, step)  # whom all have lost, in this very group or not
            told = [str(each) for each in err.details.get("missing", ())]
            found = list(dict.fromkeys(self._idler(each)[0] for each in told))
            if found:
                self._waits_for = found[0]  # until it is gone itself
                with suppress(MemberLost):  # whoever keeps the meeting is gone
                    self.seat.meeting.put(f"{_GAVE_UP}/{self.seat.name}", found[0].encode())
            if found == told:
                raise
            why = f"{', '.join(told)} waited for it"
            raise lost(found, operation, step, why=why) from err
        self._waits_for = ""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Something long that is no action: meanwhile this member is waited for."""
        self._works_since = time.monotonic()
        try:
            yield
        finally:
            self._works_since = None

    def reap(self) -> None:
        """Raises what a send ran into."""
        while self._sent and self._sent[0][1].done():
            self._sent.popleft()[1].result()

    def settle(self, operation: str, step: int | None, *, at_least_seconds: float = 0.0) -> None:
        """Until all that was given is where it should be. Raises MemberLost."""
        seconds = max(self.seat.deadline_seconds, at_least_seconds)
        ends = time.monotonic() + seconds
        for name in {name for name, sent in self._sent if not sent.done()}:
            # What was taken is told of in its own time, or with the next answer.
            self.peer(name, step).send("progress", kind="control", step=step)
        while self._sent:
            name, sent = self._sent.popleft()
            self.delivered(name, sent, operation, step, ends=ends, seconds=seconds)

    def delivered(
        self,
        name: str,
        sent: Future[Answer],
        operation: str,
        step: int | None,
        *,
        ends: float,
        seconds: float,
    ) -> None:
        """Until what was sent is where it should be, or its receiver has left: that one has
        what it wanted, and its word for it may come later than the news that it left. Raises
        MemberLost, at once when a member of the pipeline is lost."""
        sent.add_done_callback(lambda _: self._wake())
        with self._changed:
            while not sent.done():
                self._look("", operation, step)
                if name in self._roster.left:
                    return
                left = ends - time.monotonic()
                if left <= 0:
                    raise lost([name], operation, step, waited=seconds)
                self._changed.wait(left)
        try:
            sent.result()
        except MemberLost:
            # Cut off because it left: the endpoint may hear of that before the post does.
            if name not in self.seat.meeting.roster.left:
                raise

    def close(self) -> None:
        self.endpoint.close()

    # -- other threads ----------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        key = Key(*request.header["key"])
        values = _unpacked(request.header["values"], request.tensors)
        request.reply()
        # Last: whoever waits for it wakes up, and this thread would be in its way.
        self.put(key, Parcel(values, request.header["more"]))

    def _tell(self, request: Request) -> None:
        done, since = self.done, self._works_since
        if since is not None:  # a number that is never the one before
            done += int(1000 * min(_LONGEST_WORK_SECONDS, time.monotonic() - since))
        request.reply({"done": done, "waits_for": self._waits_for})

    def put(self, key: Key, parcel: Parcel) -> None:
        with self._changed:
            self._inbox[key] = parcel
            self._changed.notify_all()

    def _see(self, roster: Roster) -> None:
        with self._changed:
            self._roster = roster
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def peer(self, name: str, step: int | None) -> Peer:
        found = self._peers.get(name)
        if found is None:
            found = self._peers[name] = self.endpoint.find(
                name, self.seat.meeting, deadline_seconds=self.seat.deadline_seconds, step=step,
                key=self._key,
            )  # fmt: skip
        return found


# -- values -------------------------------------------------------------------------------------


def _packed(value: Any, tensors: list[Tensor]) -> Any:
    """As JSON: of a tensor, which goes by itself, whether it takes a gradient."""
    if isinstance(value, Tensor):
        tensors.append(value.detach())
        return {"grad": value.requires_grad}
    return value


def _cut_off(value: Any) -> Any:
    """Without its graph: what stays on this member is the same memory, not the same graph."""
    return (
        value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value
    )


def _unpacked(told: Sequence[Any], tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    left = iter(tensors)
    return tuple(
        next(left).requires_grad_(each["grad"]) if isinstance(each, dict) else each
        for each in told
    )


def _placed(value: Any, device: torch.device) -> Any:
    if not isinstance(value, Tensor) or value.device == device:
        return value
    wants = value.requires_grad
    return value.detach().to(device, non_blocking=True).requires_grad_(wants)


def _staged(tensors: list[Tensor]) -> list[Tensor]:
    """In this machine's memory, pinned: all copies first, then one wait for them."""
    found, streams = [], set()
    for each in tensors:
        if each.is_cuda:
            here = torch.empty(each.shape, dtype=each.dtype, pin_memory=True)
            here.copy_(each, non_blocking=True)
            streams.add(torch.cuda.current_stream(each.device))
            each = here
        found.append(each)
    for stream in streams:
        stream.synchronize()
    return found
