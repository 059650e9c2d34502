"""What was heard and what was decided, as the auditor remembers it: the state the core should be
in, derived from the words alone.

    pending ──Start──► held ──Release──► gone
       ▲ nominated: others were told to end for it; it is charged for from then on
    held: leaving (told to end: holds nodes, no quota), losing (seats to give up until Resized)
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from windlass.scheduler.audit.ground import Ground
from windlass.scheduler.audit.tenants import Amounts, Tenants, add, asked, smallest
from windlass.scheduler.events import (
    NEVER,
    Event,
    Need,
    NodeDown,
    NodeUp,
    Queue,
    Release,
    Remember,
    Resized,
    Restore,
    Rules,
    Seat,
    Submit,
    Withdraw,
)


@dataclass(slots=True)
class Held:
    """A job that holds seats."""

    job: Submit
    seats: tuple[Seat, ...]
    started_ms: int
    needs: dict[str, Need]
    charged: Amounts
    leaving_for: str | None = None
    """Told to end for this job. None: not told."""
    losing: tuple[Seat, ...] = ()
    losing_for: str = ""
    resized_ms: int | None = None

    @property
    def leaving(self) -> bool:
        return self.leaving_for is not None

    @property
    def ends_ms(self) -> int:
        expected = self.job.expected_ms
        return NEVER if expected is None else self.started_ms + expected

    def everything(self) -> list[tuple[Need, Seat]]:
        return [(self.needs[seat.role], seat) for seat in (*self.seats, *self.losing)]

    def members(self) -> dict[str, int]:
        """How many seats of each role it holds."""
        many: dict[str, int] = {}
        for seat in (*self.seats, *self.losing) if self.losing else self.seats:
            many[seat.role] = many.get(seat.role, 0) + 1
        return many

    def surplus(self) -> int:
        many: dict[str, int] = {}
        for seat in self.seats:
            many[seat.role] = many.get(seat.role, 0) + 1
        return sum(
            max(0, many.get(role, 0) - need.minimum)
            for role, need in self.needs.items()
            if need.minimum
        )


@dataclass(slots=True)
class Nomination:
    """A pending job that others were told to make room for."""

    since_ms: int
    charged: Amounts
    waits_for: set[str] = field(default_factory=set)
    """Who has not made room yet."""
    soft: bool = False
    """Something happened that may have spoilt the plan: the core may have dropped it."""


@dataclass(slots=True)
class Promised:
    start_ms: int
    nodes: tuple[str, ...]
    made_ms: int
    excuses: set[str] = field(default_factory=set)
    """What happened since that is allowed to delay it."""


Shape = tuple[object, ...]
Class = tuple[str, str, str]


class Line:
    """The oldest pending job of each class (tenant, kind, user) within each shape of job."""

    def __init__(self) -> None:
        self._heaps: dict[Shape, dict[Class, list[tuple[int, int, str, int]]]] = {}
        self._entry: dict[str, int] = {}
        self._entries = 0
        self._new: dict[str, Submit] = {}
        """Not in a heap yet: whoever never asks does not pay for them."""

    def enter(self, job: Submit) -> None:
        self._entries += 1
        self._entry[job.job_id] = self._entries
        self._new[job.job_id] = job

    def leave(self, job_id: str) -> None:
        self._entry.pop(job_id, None)
        self._new.pop(job_id, None)

    def _place(self, job: Submit) -> None:
        classes = self._heaps.setdefault(shape(job), {})
        heap = classes.setdefault((job.tenant, job.kind, job.user), [])
        heapq.heappush(heap, (job.order_ms, job.number, job.job_id, self._entry[job.job_id]))

    def first(self, job: Submit) -> list[tuple[Class, str]]:
        """The oldest of every class with the job's shape."""
        for one in self._new.values():
            self._place(one)
        self._new.clear()
        found = []
        classes = self._heaps.get(shape(job), {})
        for key in list(classes):
            heap = classes[key]
            while heap and self._entry.get(heap[0][2]) != heap[0][3]:
                heapq.heappop(heap)
            if heap:
                found.append((key, heap[0][2]))
            else:
                del classes[key]
        return found


def shape(job: Submit) -> Shape:
    """Jobs of one shape are told apart by whose they are and when they came, by nothing else."""
    return (job.needs, job.level, job.required, job.queue, job.priority, job.expected_ms)


class Books:
    def __init__(self) -> None:
        self.ground = Ground()
        self.tenants = Tenants()
        self.line = Line()
        self.rules = Rules()
        self.queues: dict[str, Queue] = {queue.name: queue for queue in self.rules.queues}
        self.pending: dict[str, Submit] = {}
        self.told_ms: dict[str, int] = {}
        """When each pending job was last told."""
        self.held: dict[str, Held] = {}
        self.nominated: dict[str, Nomination] = {}
        self.promised: dict[str, Promised] = {}
        self.told_to_end: dict[str, set[str]] = {}
        """Whom each job was told to end for, since anything else happened."""
        self.known: set[str] = set()
        self.grown_ms = -1
        """When last a node came, or the rules changed: some could not have started before."""
        self.late_ms = -1
        """When last somebody gave up what it should have given up before."""
        self._restored_for: dict[str, set[str]] = {}
        self.now_ms = 0

    # What was heard

    def hear(self, events: Sequence[Event], now_ms: int) -> None:
        self.now_ms = now_ms
        for event in events:
            match event:
                case Submit():
                    self._submit(event)
                case Release():
                    self.forget(event.job_id)
                    self._release(event.job_id)
                case Withdraw():
                    self.forget(event.job_id)
                case Resized():
                    self._resized(event.job_id)
                case NodeUp():
                    self.told_to_end.clear()
                    self.grown_ms = now_ms
                    if self.ground.node_up(event.offer):
                        self._disturbed(f"node {event.offer.name} shrank", event.offer.name)
                case NodeDown():
                    self.told_to_end.clear()
                    self.ground.node_down(event.name)
                    self._disturbed(f"node {event.name} went down", event.name)
                case Restore():
                    self._restore(event)
                case Rules():
                    self._rules(event)

    def _submit(self, job: Submit) -> None:
        if job.job_id not in self.known:
            self.told_to_end.clear()
            self.known.add(job.job_id)
        if job.job_id in self.held:
            return
        old = self.pending.get(job.job_id)
        self.pending[job.job_id] = job
        self.told_ms[job.job_id] = self.now_ms
        self.line.enter(job)
        if old is not None and old != job:
            # The core may keep the turn or take it away: what was planned is no claim any more.
            self._drop_nomination(job.job_id, old)
            self.promised.pop(job.job_id, None)
        for victim in sorted(self._restored_for.pop(job.job_id, ())):
            if victim in self.held:
                self.nominate(job).waits_for.add(victim)

    def forget(self, job_id: str) -> None:
        """The job is pending no more."""
        job = self.pending.pop(job_id, None)
        if job is not None:
            self._drop_nomination(job_id, job)
            self.line.leave(job_id)
            self.promised.pop(job_id, None)
            self.told_ms.pop(job_id, None)

    def _release(self, job_id: str) -> None:
        held = self.held.pop(job_id, None)
        if held is None:
            return
        for need, seat in held.everything():
            self.ground.give(job_id, need, seat)
        if held.leaving or held.losing or held.ends_ms < self.now_ms:
            self.late_ms = self.now_ms
        if held.leaving:
            self._made_room(job_id, held.leaving_for or "")
        else:
            self.told_to_end.clear()
            self.tenants.charge(held.job, held.charged, -1)
        if held.losing:
            self._made_room(job_id, held.losing_for)

    def _resized(self, job_id: str) -> None:
        held = self.held.get(job_id)
        if held is None or not held.losing:
            return
        for seat in held.losing:
            self.ground.give(job_id, held.needs[seat.role], seat)
        held.losing = ()
        self.late_ms = self.now_ms
        self._made_room(job_id, held.losing_for)
        held.losing_for = ""

    def _restore(self, event: Restore) -> None:
        self.told_to_end.clear()
        job = event.job
        self.known.add(job.job_id)
        if job.job_id in self.held:
            self._release(job.job_id)
        self.forget(job.job_id)
        leaving_for = event.leaving_for if event.leaving else None
        held = self.hold(job, event.seats, event.started_ms)
        held.resized_ms = event.resized_ms
        if event.leaving:
            self.tenants.charge(job, held.charged, -1)
            held.leaving_for = leaving_for
            if event.leaving_for in self.pending:
                self.nominate(self.pending[event.leaving_for]).waits_for.add(job.job_id)
            else:
                self._restored_for.setdefault(event.leaving_for, set()).add(job.job_id)

    def _rules(self, rules: Rules) -> None:
        if rules == self.rules:
            return
        self.rules = rules
        self.grown_ms = self.now_ms
        self.queues = {queue.name: queue for queue in rules.queues}
        self.tenants.rules(rules)
        self.told_to_end.clear()
        self._disturbed("the rules changed")

    def _disturbed(self, what: str, node: str = "") -> None:
        """On one node, or everywhere. Nobody was told where what was freed for a job is: a claim
        may have been spoilt by anything."""
        for promised in self.promised.values():
            if not node or node in promised.nodes:
                promised.excuses.add(what)
        for job_id, nomination in self.nominated.items():
            if not nomination.soft:
                nomination.soft = True
                self.tenants.charge(self.pending[job_id], nomination.charged, -1)

    def excused(self, promised: Promised) -> set[str]:
        """What has happened since the promise that is allowed to delay it."""
        excuses = set(promised.excuses)
        if self.late_ms >= promised.made_ms:
            excuses.add("somebody ended late")
        for held in self.held.values():
            if held.leaving or held.losing or held.ends_ms < self.now_ms:
                excuses.add(f"{held.job.job_id} should have made room")
        return excuses

    def restarted(self) -> None:
        """The core was built anew from `retold`: for whom others were told to end may be planned
        otherwise, which may be in the way of what was promised."""
        if self.nominated or any(held.leaving for held in self.held.values()):
            self._disturbed("a restart")
        self.told_to_end.clear()

    def _made_room(self, job_id: str, beneficiary: str) -> None:
        nomination = self.nominated.get(beneficiary)
        if nomination is not None:
            nomination.waits_for.discard(job_id)

    def exchange(self, job: Submit) -> None:
        """The job is about to start though not all have made room for it: it takes what was made
        for another that came after it and differs in nothing else, and leaves it its own."""
        mine = self.nominated.get(job.job_id)
        if mine is None or not mine.waits_for:
            return
        for job_id, other in self.nominated.items():
            like = self.pending[job_id]
            if (
                not other.waits_for
                and shape(like) == shape(job)
                and (like.tenant, like.kind, like.user) == (job.tenant, job.kind, job.user)
                and (like.order_ms, like.number) > (job.order_ms, job.number)
            ):
                mine.waits_for, other.waits_for = other.waits_for, mine.waits_for
                for held in self.held.values():
                    if held.leaving_for == job.job_id:
                        held.leaving_for = job_id
                    if held.losing_for == job.job_id:
                        held.losing_for = job_id
                return

    def _drop_nomination(self, job_id: str, job: Submit) -> None:
        nomination = self.nominated.pop(job_id, None)
        if nomination is not None and not nomination.soft:
            self.tenants.charge(job, nomination.charged, -1)

    # What was decided

    def hold(self, job: Submit, seats: Sequence[Seat], started_ms: int) -> Held:
        """The job takes these seats and is charged for them."""
        needs = {need.role: need for need in job.needs}
        held = Held(job, tuple(seats), started_ms, needs, self.charges(needs, seats))
        self.held[job.job_id] = held
        for seat in held.seats:
            self.ground.take(job.job_id, needs[seat.role], seat)
        self.tenants.charge(job, held.charged)
        return held

    def charges(self, needs: dict[str, Need], seats: Iterable[Seat]) -> Amounts:
        offers, index = self.ground.offers, self.ground.index
        many: dict[tuple[str, str], int] = {}
        for seat in seats:
            key = (seat.role, offers[index[seat.node]].gpu_model)
            many[key] = many.get(key, 0) + 1
        total: Amounts = {}
        for (role, model), members in many.items():
            add(total, asked(needs[role], members, model))
        return total

    def promise_charges(self, job: Submit, promised: Promised) -> Amounts:
        """What is kept of its quota for it, by GPU model too."""
        total = smallest(job)
        offers = [self.ground.offers[self.ground.index[name]] for name in promised.nodes]
        for model in sorted({offer.gpu_model for offer in offers if offer.gpus}):
            if total.get("gpus"):
                total[f"gpus:{model}"] = total["gpus"]
        return total

    def nominate(self, job: Submit) -> Nomination:
        """From now on the job is charged for, as if it ran."""
        nomination = self.nominated.get(job.job_id)
        if nomination is None:
            nomination = Nomination(self.now_ms, smallest(job))
            self.nominated[job.job_id] = nomination
            self.tenants.charge(job, nomination.charged)
        elif nomination.soft:
            nomination.soft = False
            self.tenants.charge(job, nomination.charged)
        return nomination

    def tell_to_end(self, held: Held, beneficiary: Submit) -> None:
        self.tenants.charge(held.job, held.charged, -1)
        held.leaving_for = beneficiary.job_id
        self.nominate(beneficiary).waits_for.add(held.job.job_id)
        self.told_to_end.setdefault(held.job.job_id, set()).add(beneficiary.job_id)

    def resize(
        self, held: Held, seats: Sequence[Seat], beneficiary: str
    ) -> tuple[list[Seat], int]:
        """What it gained, and how many seats it is to give up."""
        before, after = set(held.seats), set(seats)
        gained = [seat for seat in seats if seat not in before]
        lost = tuple(seat for seat in held.seats if seat not in after)
        for seat in gained:
            self.ground.take(held.job.job_id, held.needs[seat.role], seat)
        held.losing = (*held.losing, *lost)
        held.seats = tuple(seats)
        if not held.leaving:
            self.tenants.charge(held.job, held.charged, -1)
        held.charged = self.charges(held.needs, seats)
        if not held.leaving:
            self.tenants.charge(held.job, held.charged)
        held.resized_ms = self.now_ms
        if lost and beneficiary in self.pending:
            held.losing_for = beneficiary
            self.nominate(self.pending[beneficiary]).waits_for.add(held.job.job_id)
        return gained, len(lost)

    # What follows from it

    def queue(self, name: str) -> Queue:
        """A queue that no rule names is like any other."""
        return self.queues.get(name) or Queue(name)

    def starving(self, besides: str) -> bool:
        """Whether anybody else waited so long that things may be kept for it without a word."""
        limit = self.now_ms - self.rules.starving_ms
        return any(job.order_ms <= limit for job in self.pending.values() if job.job_id != besides)

    def claimed(self, besides: str) -> bool:
        """Whether anybody else may have a claim on what is free."""
        others = (name != besides for name in (*self.nominated, *self.promised))
        return any(others) or self.starving(besides)

    def models(self, job: Submit, *, down_too: bool = False) -> set[str]:
        """The GPU models it might get, where that matters for quota."""
        if not any(need.gpus or need.gpu_milli for need in job.needs):
            return set()
        if not any(name.startswith("gpus:") for name in self.tenants.metered(job.tenant)):
            return set()
        models = {
            offer.gpu_model
            for node, offer in enumerate(self.ground.offers)
            if (down_too or self.ground.up[node]) and offer.gpus
        }
        for need in job.needs:
            if need.gpu_models and (need.gpus or need.gpu_milli):
                models &= set(need.gpu_models)
        return models

    def variants(self, job: Submit, *, down_too: bool = False) -> list[tuple[Submit, set[str]]]:
        """Where its quota is kept by GPU model: the job as it would be on each one model. Else
        the job itself."""
        models = self.models(job, down_too=down_too)
        if not models:
            return [(job, models)]
        return [
            (
                replace(
                    job,
                    needs=tuple(
                        replace(need, gpu_models=(model,)) if need.gpus or need.gpu_milli else need
                        for need in job.needs
                    ),
                ),
                {model},
            )
            for model in sorted(models)
        ]

    def retold(self) -> list[Event]:
        """The events that tell a new core all of this: what a restarted server would say."""
        events: list[Event] = [self.rules]
        for node, offer in enumerate(self.ground.offers):
            events.append(NodeUp(offer))
            if not self.ground.up[node]:
                events.append(NodeDown(offer.name))
        for held in self.held.values():
            seats = (*held.seats, *held.losing)
            leaving = held.leaving
            told = (held.job, seats, held.started_ms, leaving, held.leaving_for or "")
            events.append(Restore(*told, held.resized_ms))
        events.extend(self.pending.values())
        for job_id, promised in self.promised.items():
            events.append(Remember(job_id, promised.start_ms, promised.nodes, promised.made_ms))
        return events
