"""The engine of a simulation: it runs what the core starts, in no time at all.

A job is `duration x workers` of work, done at the speed of its members; so an elastic job that
gets twice as many ends in half the time. Preempted, it saves its state within the grace and goes
on later from there (or loses a share of what it did, if asked). The faults are off in a replay.

    Start ─► [start delay] ─► runs ─► ends: done, failed, killed at its time limit
                 └ dispatch fails      ├ Preempt ─► grace ─► submitted again
                                       └ node lost ────────► submitted again

What the core hears passes a fence: a report about an attempt that is over is dropped, as the
server does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from windlass.scheduler.events import (
    Event,
    NodeDown,
    NodeUp,
    Offer,
    Preempt,
    Release,
    Resize,
    Resized,
    Restore,
    Seat,
    Start,
    Submit,
    Withdraw,
)
from windlass.scheduler.simulate.loop import FINISH, NODE, SUBMIT, Due, Timeline
from windlass.scheduler.simulate.metrics import CANCELLED, DONE, FAILED, KILLED, Ledger
from windlass.scheduler.simulate.workload import Job

PENDING, HOLDING, LEAVING, OVER = range(4)
SPEED = 1000
"""Work is counted in worker-milliseconds times this, so that speeds can be per mille."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, and how often. Per mille of what could."""

    start_delay_ms: int = 0
    """Each start takes up to so long (drawn evenly)."""
    dispatch_failed: int = 0
    duplicate: int = 0
    """The report of an end comes twice."""
    late: int = 0
    """The report of an end comes up to a minute late, and so after reports of later events."""
    lost: int = 0
    """The report of an end never comes: the lease runs out instead."""
    lease_ms: int = 60_000
    node_days: int = 0
    """Mean days between two losses of one node; 0: never."""
    repair_ms: int = 3_600_000
    spread_cost: int = 0
    """How much slower a gang over several racks is."""


CHAOS = Faults(
    start_delay_ms=20_000,
    dispatch_failed=10,
    duplicate=20,
    late=20,
    lost=5,
    node_days=30,
    spread_cost=100,
)


class Live:
    """A job from its submit to its end."""

    __slots__ = (
        "job", "number", "state", "work_left", "seats", "held", "rate", "since_ms", "started_ms",
        "used_ms", "waited_ms", "first_ms", "ran_ms", "preemptions", "token", "ending",
        "beneficiary", "promised_ms", "cancelled", "submit", "restarts", "done",
    )  # fmt: skip

    def __init__(self, job: Job, number: int, now: int) -> None:
        self.job = job
        self.number = number
        self.state = PENDING
        self.work_left = job.duration_ms * job.workers * SPEED
        self.seats: Sequence[Seat] = ()
        self.held = 0
        """Members whose seats it holds, those it is about to give up included."""
        self.rate = 0
        self.since_ms = now
        """When it began to wait, or when its work was last counted."""
        self.started_ms = 0
        self.used_ms = 0
        """Of its time limit, in earlier attempts."""
        self.waited_ms = 0
        self.first_ms = -1
        self.ran_ms = 0
        self.preemptions = 0
        self.restarts = 0
        self.token = 0
        self.ending = DONE
        self.beneficiary = ""
        self.promised_ms = -1
        self.cancelled = False
        self.submit: Submit | None = None
        self.done = 0
        """Work of this attempt."""


class Engine:
    """Runs jobs on a timeline, and tells what the core should hear."""

    def __init__(
        self,
        timeline: Timeline,
        ledger: Ledger,
        offers: Sequence[Offer],
        *,
        faults: Faults,
        grace_ms: int,
        lost_work: float,
        soft_walltime: bool,
        seed: int,
        ended: Callable[[Live], None] | None = None,
    ) -> None:
        self.live: dict[str, Live] = {}
        self.down: dict[str, Offer] = {}
        self._timeline = timeline
        self._ledger = ledger
        self._offers = list(offers)
        self._racks = {offer.name: offer.rack for offer in offers}
        self._faults = faults
        self._grace_ms = max(1, grace_ms)
        self._lost_permille = round(lost_work * 1000)
        self._soft = soft_walltime
        self._ended = ended
        self._random = Random(seed)
        self._names = [offer.name for offer in self._offers]
        self.holding = 0
        """How many jobs hold seats."""
        if faults.node_days:
            self._next_loss(0)

    # What the core decided

    def start(self, decision: Start, now: int) -> None:
        live = self.live[decision.job_id]
        assert live.state == PENDING, f"{decision.job_id} was started twice"
        live.state = HOLDING
        live.seats = decision.seats
        live.held = len(decision.seats)
        live.waited_ms += now - live.since_ms
        if live.first_ms < 0:
            live.first_ms = now
        live.started_ms = live.since_ms = now
        live.done = 0
        self.holding += 1
        self._ledger.started(live, now)
        if not self._faults.start_delay_ms and not self._faults.dispatch_failed:
            live.rate = self._speed(live)
            self._plan(live, now)
            return
        delay = self._random.randint(0, self._faults.start_delay_ms)
        live.rate = 0
        live.token += 1
        what = "unlaunched" if self._drawn(self._faults.dispatch_failed) else "running"
        self._timeline.put(now + delay, FINISH, what, live, live.token)

    def preempt(self, decision: Preempt, now: int) -> None:
        live = self.live[decision.job_id]
        assert live.state == HOLDING, f"{decision.job_id} was preempted and does not hold"
        self._count(live, now)
        live.rate = 0
        live.state = LEAVING
        live.beneficiary = decision.beneficiary
        live.preemptions += 1
        live.token += 1
        self._ledger.preempted(live)
        self._timeline.put(now + self._grace_ms, FINISH, "gone", live, live.token)

    def resize(self, decision: Resize, now: int) -> None:
        live = self.live[decision.job_id]
        assert live.state == HOLDING, f"{decision.job_id} was resized and does not hold"
        self._count(live, now)
        old, new = set(live.seats), set(decision.seats)
        before = live.held
        live.seats = decision.seats
        live.held = before + len(new - old)
        self._ledger.resized(live, live.held - before, now)
        if old - new:
            given = (live, live.restarts, len(old - new))
            self._timeline.put(now + self._grace_ms, FINISH, "given", given)
        if live.rate:
            live.rate = self._speed(live)
            self._plan(live, now)

    # What happens

    def arrive(self, live: Live, now: int) -> Submit:
        self.live[live.job.name] = live
        if live.job.cancel_ms is not None:
            self._timeline.put(
                live.job.submit_ms + live.job.cancel_ms, SUBMIT, "cancel", live, live.token
            )
        self._ledger.waiting(live, now)
        assert live.submit is not None
        return live.submit

    def happen(self, due: Due, now: int, out: list[Event]) -> None:
        """Something is due: what the core hears of it goes to `out`."""
        what, live = due.what, due.who
        if what == "end":
            if due.token == live.token and live.state == HOLDING:
                self._end(live, now, out)
        elif what == "gone":
            if due.token == live.token and live.state == LEAVING:
                self._again(live, now, out, live.done * self._lost_permille // 1000)
        elif what == "given":
            live, attempt, members = due.who
            if live.state in (HOLDING, LEAVING) and live.restarts == attempt:
                self._ledger.resized(live, -members, now)
                live.held -= members
                out.append(Resized(live.job.name))
        elif what == "cancel":
            self._cancel(live, now, out)
        elif what == "running":
            if due.token == live.token and live.state == HOLDING:
                live.since_ms = now
                live.rate = self._speed(live)
                self._plan(live, now)
        elif what == "unlaunched":
            if due.token == live.token and live.state == HOLDING:
                self._again(live, now, out, 0)
        elif what == "reported":
            if due.token == live.token and live.state == HOLDING:
                self._close(live, now, out)
        elif what == "loss":
            self._lose(now, out)
        else:
            assert what == "repair"
            offer = self.down.pop(due.who)
            self._ledger.node(offer, up=True)
            out.append(NodeUp(offer))

    def restore(self) -> list[Event]:
        """All that a core must be told that knows nothing."""
        events: list[Event] = [NodeUp(offer) for offer in self._offers]
        events += [NodeDown(name) for name in self.down]
        for live in sorted(self.live.values(), key=lambda each: each.number):
            assert live.submit is not None
            if live.state == PENDING:
                events.append(live.submit)
            else:
                leaving = live.state == LEAVING
                events.append(
                    Restore(
                        live.submit,
                        tuple(live.seats),
                        live.started_ms,
                        leaving,
                        live.beneficiary if leaving else "",
                    )
                )
        return events

    # How

    def _speed(self, live: Live) -> int:
        members = len(live.seats)
        if self._faults.spread_cost and len({self._racks[s.node] for s in live.seats}) > 1:
            return members * (SPEED - self._faults.spread_cost)
        return members * SPEED

    def _count(self, live: Live, now: int) -> None:
        """Note the work that was done since it was last noted."""
        if live.rate:
            done = min(live.work_left, (now - live.since_ms) * live.rate)
            live.work_left -= done
            live.done += done
            live.ran_ms += now - live.since_ms
        live.since_ms = now

    def _plan(self, live: Live, now: int) -> None:
        """Say when it ends at its present speed."""
        job = live.job
        end = now - (-live.work_left // live.rate) if live.rate else now
        live.ending = FAILED if job.fails else DONE
        if job.walltime_ms is not None and not self._soft:
            limit = live.started_ms + max(0, job.walltime_ms - live.used_ms)
            if end > limit:
                end, live.ending = max(now, limit), KILLED
        live.token += 1
        self._timeline.put(end, FINISH, "end", live, live.token)

    def _end(self, live: Live, now: int, out: list[Event]) -> None:
        self._count(live, now)
        faults = self._faults
        if faults.late or faults.lost:
            live.rate = 0
            if self._drawn(faults.lost):
                self._timeline.put(now + faults.lease_ms, FINISH, "reported", live, live.token)
                return
            if self._drawn(faults.late):
                delay = self._random.randint(1, 60_000)
                self._timeline.put(now + delay, FINISH, "reported", live, live.token)
                return
        self._close(live, now, out)

    def _close(self, live: Live, now: int, out: list[Event]) -> None:
        name = live.job.name
        out.append(Release(name))
        if self._faults.duplicate and self._drawn(self._faults.duplicate):
            out.append(Release(name))
        self.holding -= 1
        live.state = OVER
        live.token += 1
        self._ledger.stopped(live, now, lost=0)
        self._ledger.over(live, now, live.ending)
        if self._ended is not None:
            self._ended(live)
        del self.live[name]

    def _again(self, live: Live, now: int, out: list[Event], lost: int) -> None:
        """It holds nothing any more, and waits again in its old turn."""
        live.work_left += lost
        live.used_ms += now - live.started_ms
        self.holding -= 1
        live.token += 1
        self._ledger.stopped(live, now, lost=lost)
        out.append(Release(live.job.name))
        live.seats = ()
        live.held = live.rate = 0
        if live.cancelled or (live.done and not live.work_left):
            live.state = OVER
            self._ledger.over(live, now, CANCELLED if live.cancelled else live.ending)
            del self.live[live.job.name]
            return
        live.state = PENDING
        live.since_ms = now
        live.restarts += 1
        live.promised_ms = -1
        old = live.submit
        assert old is not None
        expected = old.expected_ms
        if live.job.walltime_ms is not None:
            expected = max(1, live.job.walltime_ms - live.used_ms)
        live.submit = Submit(
            old.job_id,
            old.tenant,
            old.needs,
            old.order_ms,
            old.number,
            old.priority,
            old.queue,
            old.kind,
            old.user,
            expected,
            old.preemptible,
            old.level,
            old.required,
            live.preemptions,
        )
        self._ledger.waiting(live, now)
        out.append(live.submit)

    def _cancel(self, live: Live, now: int, out: list[Event]) -> None:
        if live.state == OVER:
            return
        live.cancelled = True
        if live.state == PENDING:
            live.state = OVER
            live.waited_ms += now - live.since_ms
            self._ledger.withdrawn(live, now)
            self._ledger.over(live, now, CANCELLED)
            del self.live[live.job.name]
            out.append(Withdraw(live.job.name))
        elif live.state == HOLDING:
            self._count(live, now)
            live.rate = 0
            live.token += 1
            live.ending = CANCELLED
            self._timeline.put(now + self._grace_ms, FINISH, "reported", live, live.token)

    def _lose(self, now: int, out: list[Event]) -> None:
        """A node is gone, and what ran on it with it: its gangs wait again, whole."""
        self._next_loss(now)
        name = self._names[self._random.randrange(len(self._names))]
        if name in self.down:
            return
        offer = self._offers[self._names.index(name)]
        self.down[name] = offer
        self._ledger.node(offer, up=False)
        out.append(NodeDown(name))
        struck = [
            live
            for live in self.live.values()
            if live.state in (HOLDING, LEAVING) and any(seat.node == name for seat in live.seats)
        ]
        for live in sorted(struck, key=lambda each: each.number):
            self._count(live, now)
            self._again(live, now, out, live.done)
        self._timeline.put(now + self._faults.repair_ms, NODE, "repair", name)

    def _next_loss(self, now: int) -> None:
        mean = self._faults.node_days * 86_400_000 / len(self._names)
        wait = max(1, round(self._random.expovariate(1 / mean)))
        self._timeline.put(now + wait, NODE, "loss", None)

    def _drawn(self, permille: int) -> bool:
        return permille > 0 and self._random.randrange(1000) < permille
