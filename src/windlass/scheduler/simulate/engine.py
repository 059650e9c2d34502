"""The engine of a simulation: it runs what the core starts, in no time at all.

A job is `duration x workers` of work, done at the speed of its members; so an elastic job that
gets twice as many ends in half the time. Preempted, it saves its state within the grace and goes
on later from there (or loses a share of what it did, if asked). The faults are off in a replay.

    Start ─► [limits] ─► [start delay] ─► runs ─► ends: done, failed, killed at its time limit
                             └ dispatch fails      ├ Preempt ─► grace ─► submitted again
                                                   └ node lost ────────► submitted again

What the core hears passes a fence: a report about an attempt that is over is dropped, as the
server does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    Start,
    Submit,
    Withdraw,
)
from windlass.scheduler.simulate.faults import Faults
from windlass.scheduler.simulate.limits import Gate, Limits
from windlass.scheduler.simulate.live import HOLDING, LEAVING, OVER, PENDING, SPEED, Live
from windlass.scheduler.simulate.loop import FINISH, NODE, SUBMIT, Due, Timeline
from windlass.scheduler.simulate.metrics import CANCELLED, DONE, FAILED, KILLED, Ledger

NO_LIMITS = Limits()


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
        limits: Limits = NO_LIMITS,
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
        self.gate = Gate(limits) if limits else None
        self._direct = not (limits or faults.start_delay_ms or faults.dispatch_failed)
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
        if self._direct:
            self._run(live, now)
            return
        live.rate = 0
        live.token += 1
        if self.gate is None:
            self._launch(live, now)
        else:
            self.gate.queue(live)
            self._let_in(self.gate, now)

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
        told = self._told(now, live.inside)
        self._timeline.put(told + self._grace_ms, FINISH, "gone", live, live.token)

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
            told = self._told(now, live.inside - len(new))
            self._timeline.put(told + self._grace_ms, FINISH, "given", given)
        if live.rate:
            live.rate = self._speed(live)
            self._plan(live, now)
        if self.gate is not None and self.gate.wanted(live) > 0:
            self.gate.queue(live)
            self._let_in(self.gate, now)

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
                if self.gate is not None:
                    self._leave(self.gate, live, len(live.seats), now)
        elif what == "cancel":
            self._cancel(live, now, out)
        elif what == "running":
            if due.token == live.token and live.state == HOLDING:
                live.since_ms = now
                self._run(live, now)
        elif what == "joined":
            live, attempt, members = due.who
            self._join(live, attempt, members, now)
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

    def _launch(self, live: Live, passed: int) -> None:
        """Its calls have passed: it runs, if that goes well, after a delay."""
        delay = self._random.randint(0, self._faults.start_delay_ms)
        what = "unlaunched" if self._drawn(self._faults.dispatch_failed) else "running"
        self._timeline.put(passed + delay, FINISH, what, live, live.token)

    def _let_in(self, gate: Gate, now: int) -> None:
        """Those of the engine's line that there is room for, in turn."""
        while gate.line:
            live, attempt = gate.line[0]
            stale = live.state != HOLDING or live.restarts != attempt or live.cancelled
            wanted = gate.wanted(live)
            if not stale and wanted > 0:
                first = live.inside == 0
                passed = gate.enter(live, now)
                if passed is None:
                    return
                if first:
                    live.working = wanted
                    self._launch(live, passed)
                else:
                    joins = (live, attempt, wanted)
                    self._timeline.put(passed, FINISH, "joined", joins)
            gate.line.popleft()

    def _join(self, live: Live, attempt: int, members: int, now: int) -> None:
        """Members that an elastic gang got later begin to work."""
        if live.state != HOLDING or live.restarts != attempt:
            return
        live.working += members
        if live.rate:
            self._count(live, now)
            live.rate = self._speed(live)
            self._plan(live, now)

    def _leave(self, gate: Gate, live: Live, stay: int, now: int) -> None:
        """All but so many of its members have left the engine."""
        gate.leave(live, max(0, live.inside - stay))
        live.working = min(live.working, live.inside)
        self._let_in(gate, now)

    def _told(self, now: int, members: int) -> int:
        """When so many members hear that they are to stop."""
        return now if self.gate is None else self.gate.calls(now, max(0, members))

    def _run(self, live: Live, now: int) -> None:
        live.began_ms = now
        live.rate = self._speed(live)
        self._plan(live, now)

    def _speed(self, live: Live) -> int:
        members = len(live.seats)
        if self.gate is not None:
            members = min(members, live.working)
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
            limit = live.began_ms + max(0, job.walltime_ms - live.used_ms)
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
        if self.gate is not None:
            self._leave(self.gate, live, 0, now)

    def _again(self, live: Live, now: int, out: list[Event], lost: int) -> None:
        """It holds nothing any more, and waits again in its old turn."""
        live.work_left += lost
        live.used_ms += now - live.began_ms if live.began_ms >= 0 else 0
        live.began_ms = -1
        self.holding -= 1
        live.token += 1
        self._ledger.stopped(live, now, lost=lost)
        out.append(Release(live.job.name))
        live.seats = ()
        live.held = live.rate = 0
        live.restarts += 1  # what is on its way to this attempt no longer counts
        if self.gate is not None:
            self._leave(self.gate, live, 0, now)
        if live.cancelled or (live.done and not live.work_left):
            live.state = OVER
            self._ledger.over(live, now, CANCELLED if live.cancelled else live.ending)
            del self.live[live.job.name]
            return
        live.state = PENDING
        live.since_ms = now
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
            told = self._told(now, live.inside)
            self._timeline.put(told + self._grace_ms, FINISH, "reported", live, live.token)

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
