"""What the driver tells goes into the books: jobs come and go, nodes come and go, rules change.
Every event may be told again."""

from __future__ import annotations

from windlass.scheduler.allowance import Allowance
from windlass.scheduler.aside import Aside
from windlass.scheduler.books import Books
from windlass.scheduler.elastic import Elastic
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import (
    NEVER,
    Event,
    NodeDown,
    NodeUp,
    Offer,
    Release,
    Remember,
    Resized,
    Restore,
    Rules,
    Submit,
    Used,
    Withdraw,
)
from windlass.scheduler.giving_way import GivingWay
from windlass.scheduler.promises import Promises
from windlass.scheduler.reserve import Reservation


class Hearing:
    def __init__(
        self,
        books: Books,
        allowance: Allowance,
        aside: Aside,
        promises: Promises,
        giving_way: GivingWay,
        elastic: Elastic,
    ) -> None:
        self._books = books
        self._allowance = allowance
        self._aside = aside
        self._promises = promises
        self._giving_way = giving_way
        self._elastic = elastic
        self._capacity_changed = False
        self.came: list[Entry] = []
        """Those that have just come; whoever asks for others on their behalf clears it."""

    def hear(self, event: Event) -> None:
        kind = type(event)
        if kind is Submit:  # nearly all of what is heard is these two
            self._submit(event)  # type: ignore[arg-type]
        elif kind is Release:
            job_id = event.job_id  # type: ignore[union-attr]
            if job_id in self._books.waiting:
                self._withdraw(job_id)
            self._release(job_id)
        else:
            self._hear_other(event)

    def _hear_other(self, event: Event) -> None:
        match event:
            case Withdraw(job_id):
                self._withdraw(job_id)
            case Restore():
                self._restore(event)
            case Remember():
                self._promises.remember(event)
            case Used():
                self._books.used_before(event)
            case Resized(job_id):
                self._resized(job_id)
            case NodeUp(offer):
                self._node_up(offer)
            case NodeDown(name):
                self._books.nodes.node_down(name)
                self._capacity_changed = True
                self._lose_node(name, f"node {name} was lost")
            case Rules():
                self._set_rules(event)

    # Jobs

    def _submit(self, job: Submit) -> None:
        books = self._books
        if job.job_id in books.running.entries:
            return
        known = books.waiting.get(job.job_id)
        if known is not None:
            if known.told == job:
                return
            self._withdraw(job.job_id)
        entry = books.entry(job)
        books.waiting[job.job_id] = entry
        books.nodes.wanted(entry.form, 1)
        books.queue_up(entry)
        self.came.append(entry)

    def _withdraw(self, job_id: str) -> None:
        books = self._books
        entry = books.waiting.get(job_id)
        if entry is None:
            return
        books.no_longer_waits(entry)
        if entry.stage is Stage.PROMISED:
            self._promises.drop(job_id)
        elif entry.lane is not None:
            books.pending.remove(entry)
        else:
            self._aside.remove(entry)
        # Who ranked behind it in a strict queue may be next.
        books.freed = True

    def _release(self, job_id: str) -> None:
        books = self._books
        entry = books.running.entries.get(job_id)
        if entry is None:
            return
        books.running.remove(entry)
        books.hopes += entry.ends_ms >= NEVER
        self._elastic.forget(entry)
        books.nodes.give(entry.told.needs, entry.seats + entry.losing)
        if entry.stage is not Stage.LEAVING:
            books.discharge(entry, entry.charged)
        books.use_lately(entry, books.now_ms - entry.started_ms)
        books.freed = True

    def _restore(self, event: Restore) -> None:
        books, job = self._books, event.job
        self._withdraw(job.job_id)
        if job.job_id in books.running.entries:
            return
        entry = books.entry(job)
        entry.seats = event.seats
        entry.started_ms = event.started_ms
        entry.ends_ms = entry.end_if_started(event.started_ms)
        if event.resized_ms is not None:
            self._elastic.was_resized(entry, event.resized_ms)
        entry.stage = Stage.LEAVING if event.leaving else Stage.RUNNING
        entry.charged = books.charge_of(entry, entry.seats)
        books.nodes.take(job.needs, event.seats)
        if event.leaving:
            entry.beneficiary = event.leaving_for
            entry.ends_ms = books.now_ms
            if event.leaving_for:
                self._giving_way.restored(entry, event.leaving_for)
        else:
            books.charge(entry, entry.charged)
        books.running.add(entry)
        self._elastic.note(entry)

    def _resized(self, job_id: str) -> None:
        books = self._books
        entry = books.running.entries.get(job_id)
        if entry is not None and entry.losing:
            books.nodes.give(entry.told.needs, entry.losing)
            entry.losing = ()
            books.running.changed(entry)
            books.freed = True
            self._elastic.note(entry)

    # Nodes

    def _node_up(self, offer: Offer) -> None:
        nodes = self._books.nodes
        at = nodes.index.get(offer.name)
        before = None if at is None else nodes.offers[at]
        nodes.node_up(offer)
        self._books.hopes += 1
        self._capacity_changed = self._books.freed = True
        if before is not None and not _no_less(offer, before):
            self._aside.nodes_changed()
            self._lose_node(offer.name, f"node {offer.name} shrank")

    def _lose_node(self, name: str, why_later: str) -> None:
        """What was promised on this node is promised anew."""
        for kept in list(self._books.reservations.on.get(name, ())):
            self._promises.make_again(kept, why_later)

    def settle(self) -> None:
        """All is heard. If the nodes are others, shares are of something else, some may have a
        place now, and some none any more."""
        if not self._capacity_changed:
            return
        books = self._books
        self._count_capacity()
        for kept in [k for k in books.reservations.all.values() if not k.seats]:
            if self._aside.nowhere(kept.entry):
                self._promises.drop(kept.entry.told.job_id)
                books.queue_up(kept.entry)
        self._aside.look_again()

    def _count_capacity(self) -> None:
        self._books.count_capacity()
        self._aside.nodes_changed()
        self._capacity_changed = False

    # Rules

    def _set_rules(self, rules: Rules) -> None:
        """All that was charged is charged anew, and everybody queues up again. The same rules
        told again change nothing."""
        books = self._books
        if rules == books.rules:
            return
        books.follow(rules)
        self._count_capacity()
        for entry in books.running.entries.values():
            entry.amounts = entry.form.charged(books.tree)
            entry.charged = books.charge_of(entry, entry.seats)
            if entry.stage is not Stage.LEAVING:
                books.charge(entry, entry.charged)
        self._aside.clear()
        for entry in books.waiting.values():
            entry.amounts = entry.form.charged(books.tree)
            entry.lane = None
            kept = books.reservations.all.get(entry.told.job_id)
            if kept is not None and not self._lost_its_claim(kept):
                entry.charged = books.charge_of(entry, kept.seats)
                books.charge(entry, entry.charged)
            else:
                books.reservations.remove(entry.told.job_id)
                books.queue_up(entry)
            if entry.promised_ms < NEVER:
                entry.why_later = "the rules changed"
        books.bars.clear()
        self._elastic.follow_rules()
        books.freed = True

    def _lost_its_claim(self, kept: Reservation) -> bool:
        """What others leave for a job is kept for it, unless its queue is paused or it has no
        quota; promises and drains are made anew, in order."""
        entry = kept.entry
        return (
            not kept.claim
            or kept.start_ms >= NEVER
            or self._books.queue(entry.told.queue).paused
            or self._aside.never(entry)
            or not self._allowance.fits(entry)
        )


def _no_less(offer: Offer, before: Offer) -> bool:
    """Whatever had a place on the node has it still."""
    return (
        offer.cpus_milli >= before.cpus_milli
        and offer.memory_bytes >= before.memory_bytes
        and offer.gpus >= before.gpus
        and offer.slots >= before.slots
        and set(offer.labels) >= set(before.labels)
        and (offer.gpu_model, offer.rack, offer.block, offer.pool)
        == (before.gpu_model, before.rack, before.block, before.pool)
    )
