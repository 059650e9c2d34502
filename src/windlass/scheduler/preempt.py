"""Who has to go so that a job can start: the fewest, the cheapest, and only those who may.

Candidates in the order in which they are parted with:

    1. surplus members of elastic jobs, anybody's: they were given what was left over
    2. if the job stays within what its tenant owns: jobs of tenants that borrow in its cohort,
       from the tenant that borrowed most; wholly borrowed ones before one that straddles what
       is owned
    3. jobs of its own tenant with a strictly lower priority

They are taken in doubling steps until the job fits, then put back one block after the other, the
dearest first, as long as it still fits. Whether it fits only ever gets better with more victims,
so what is left is minimal: with any one of them back, it would not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from windlass.scheduler.columns import Columns, Ints
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import Rules, Seat
from windlass.scheduler.nodes import Nodes
from windlass.scheduler.quota import Amounts, Tree
from windlass.scheduler.running import Running, shift_seats

_FIRST_LOOK = 16


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """A whole gang, or surplus seats of an elastic one."""

    entry: Entry
    seats: tuple[Seat, ...]
    amounts: Amounts
    whole: bool


@dataclass(slots=True)
class Plan:
    seats: tuple[Seat, ...]
    """Where the job goes when they are gone."""
    at_start: Columns
    """What is free then, with those seats taken."""
    victims: list[Victim] = field(default_factory=list)


class Planner:
    """One question: who has to go for `entry`? Changes the quota tree only while it thinks."""

    def __init__(
        self,
        entry: Entry,
        nodes: Nodes,
        running: Running,
        tree: Tree,
        rules: Rules,
        now_ms: int,
        limit: Ints | None,
        ways: Sequence[tuple[list[str] | None, Amounts]],
        charge_of: Callable[[Entry, Sequence[Seat]], Amounts],
    ) -> None:
        """`ways`: the GPU models it may start on, and what it is charged then. `charge_of`: what
        some seats of a job are charged."""
        self._entry = entry
        self._nodes = nodes
        self._running = running
        self._tree = tree
        self._rules = rules
        self._now_ms = now_ms
        self._limit = limit
        self._ways = ways
        self._charge_of = charge_of
        self._columns = nodes.now.copy()
        self._shed: dict[str, list[Victim]] = {}
        """Surplus members among the candidates, by job: the rest of such a gang is less."""
        self._seats: tuple[Seat, ...] | None = None

    def plan(self, quotas_any: bool, borrowers: Sequence[str]) -> Plan | None:
        """`borrowers`: tenants of the cohort that use more than they own, most first.
        `quotas_any`: this tenant takes back what it lent whatever the priority."""
        chosen: list[Victim] = []
        step = _FIRST_LOOK
        found = False
        block: list[Victim] = []
        for victim in self._candidates(quotas_any, borrowers):
            self._discharge(victim)
            block.append(victim)
            if len(block) >= step:
                chosen += block
                self._shift(block, 1)
                block, step = [], step * 2
                if self._fits():
                    found = True
                    break
        if block:
            chosen += block
            self._shift(block, 1)
            found = self._fits()
        if found:
            chosen = self._put_back(chosen)
            found = self._fits()
            assert found, "it fitted with these"
        seats = self._seats
        for victim in chosen:
            self._charge(victim)
        if not found or seats is None or not chosen:
            return None
        columns = self._columns
        columns.take(self._entry.told.needs, seats)
        return Plan(seats, columns, chosen)

    def _candidates(self, quotas_any: bool, borrowers: Sequence[str]) -> Iterator[Victim]:
        for entry in sorted(self._running.elastic.values(), key=_parting):
            if entry.stage is Stage.RUNNING and self._rested(entry):
                yield from self._surplus(entry)
        mine = self._entry.told
        wanted = self._tree.of_any_model(self._entry.amounts)
        if self._tree.owns(mine.tenant, self._entry.amounts):
            straddling: list[Entry] = []
            for tenant in borrowers:
                if tenant == mine.tenant:
                    continue
                for entry in self._running.cheapest(tenant):
                    if entry.told.priority > mine.priority and not quotas_any:
                        break
                    if not self._may_go(entry):
                        continue
                    if not self._tree.borrows(tenant, wanted, entry.charged):
                        continue
                    if self._tree.stays_at_nominal(tenant, entry.charged, wanted):
                        yield self._whole(entry)
                    else:
                        straddling.append(entry)
            for entry in straddling:
                if self._tree.borrows(entry.told.tenant, wanted, entry.charged):
                    yield self._whole(entry)
        for entry in self._running.cheapest(mine.tenant):
            if entry.told.priority >= mine.priority:
                break
            if self._may_go(entry):
                yield self._whole(entry)

    def _surplus(self, entry: Entry) -> Iterator[Victim]:
        need = entry.elastic
        assert need is not None
        own = [seat for seat in entry.seats if seat.role == need.role]
        for seat in sorted(own, key=lambda seat: -seat.index)[: entry.surplus]:
            victim = Victim(entry, (seat,), self._charge_of(entry, (seat,)), whole=False)
            self._shed.setdefault(entry.told.job_id, []).append(victim)
            yield victim

    def _whole(self, entry: Entry) -> Victim:
        shed = self._shed.get(entry.told.job_id, ())
        gone = {victim.seats[0] for victim in shed}
        left = entry.charged
        for victim in shed:
            left = tuple(a - b for a, b in zip(left, victim.amounts, strict=True))
        seats = tuple(seat for seat in entry.seats if seat not in gone)
        return Victim(entry, seats, left, whole=True)

    def _rested(self, entry: Entry) -> bool:
        return (
            entry.resized_ms + self._rules.cool_down_ms <= self._now_ms
            and entry.started_ms + self._rules.min_run_ms <= self._now_ms
        )

    def _may_go(self, entry: Entry) -> bool:
        told = entry.told
        return (
            told.preemptible
            and told.preemptions < self._rules.preemption_cap
            and entry.started_ms + self._rules.min_run_ms <= self._now_ms
        )

    def _fits(self) -> bool:
        told = self._entry.told
        for models, amounts in self._ways:
            if self._tree.fits(told.tenant, told.kind, told.user, amounts):
                self._seats = self._nodes.place(
                    self._entry.form, columns=self._columns, limit=self._limit, models=models
                )
                if self._seats is not None:
                    return True
        return False

    def _put_back(self, chosen: list[Victim]) -> list[Victim]:
        """The dearest first: those that were chosen last."""
        kept: list[Victim] = []
        blocks = [chosen]
        while blocks:
            block = blocks.pop()
            for victim in block:
                self._charge(victim)
            self._shift(block, -1)
            if self._fits():
                continue
            for victim in block:
                self._discharge(victim)
            self._shift(block, 1)
            if len(block) == 1:
                kept += block
            else:
                middle = len(block) // 2
                blocks += [block[:middle], block[middle:]]
        return kept

    def _shift(self, victims: Sequence[Victim], sign: int) -> None:
        plain = [v.entry for v in victims if v.whole and v.entry.told.job_id not in self._shed]
        self._running.held.shift(self._columns, plain, sign)
        for victim in victims:
            if not victim.whole or victim.entry.told.job_id in self._shed:
                shift_seats(self._columns, victim.entry, victim.seats, sign)

    def _charge(self, victim: Victim) -> None:
        told = victim.entry.told
        self._tree.charge(told.tenant, told.kind, told.user, victim.amounts)

    def _discharge(self, victim: Victim) -> None:
        told = victim.entry.told
        self._tree.discharge(told.tenant, told.kind, told.user, victim.amounts)


def _parting(entry: Entry) -> tuple[int, int, int]:
    return (entry.told.priority, -entry.started_ms, -entry.told.number)
