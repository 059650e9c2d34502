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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from windlass.scheduler.columns import Columns, Ints
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import NEVER, Rules, Seat
from windlass.scheduler.nearby import Nearby
from windlass.scheduler.nodes import Form, Nodes
from windlass.scheduler.plans import spare_on
from windlass.scheduler.quota import Amounts, Tree
from windlass.scheduler.running import Running, shift_seats

_FIRST_LOOK = 16
_FEW_NODES = 64
_FEW = 500
"""With more victims than that, columns of all nodes are quicker."""


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
    spare: Columns
    """What those nodes have to spare then."""
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
        limit: Callable[[], Ints | None],
        most_on: Callable[[int], int],
        ways: Sequence[tuple[list[str] | None, Amounts]],
        wanted: Amounts,
        charge_of: Callable[[Entry, Sequence[Seat]], Amounts],
    ) -> None:
        """`ways`: the GPU models it may start on, and what it is charged then. `wanted`: what it
        takes from those who borrow it. `charge_of`: what some seats of a job are charged. `limit`:
        the most members on each node, asked for when somebody may go at all; `most_on`: on one."""
        self._entry = entry
        self._nodes = nodes
        self._running = running
        self._tree = tree
        self._rules = rules
        self._now_ms = now_ms
        self._limit_now = limit
        self._limit_known: Ints | None = None
        self._limit_asked = False
        self._most_on = most_on
        self._ways = ways
        self._wanted = wanted
        self._charge_of = charge_of
        self._plain = len(entry.form.needs) == 1 and all(models is None for models, _ in ways)
        self._on: Everywhere | Near | None = None
        self._shed: dict[str, list[Victim]] = {}
        """Surplus members among the candidates, by job: the rest of such a gang is less."""
        self.later_ms = NEVER
        """When the next of those may go that have not run, or rested, for long enough yet."""

    def plan(self, quotas_any: bool, borrowers: Sequence[str]) -> Plan | None:
        """`borrowers`: tenants of the cohort that use more than they own, most first.
        `quotas_any`: this tenant takes back what it lent whatever the priority."""
        if self._in_vain(borrowers):
            return None
        chosen: list[Victim] = []
        step, changes = _FIRST_LOOK, self._tree.changes
        found = False
        block: list[Victim] = []
        for victim in self._candidates(quotas_any, borrowers):
            self._discharge(victim)
            block.append(victim)
            if len(block) >= step:
                self._add(chosen, block)
                block, step = [], step * 2
                if self._fits():
                    found = True
                    break
        if block:
            self._add(chosen, block)
            found = self._fits()
        if found:
            chosen = self._put_back(chosen)
            found = self._fits()
            assert found, "it fitted with these"
        for victim in chosen:
            self._charge(victim)
        self._tree.changes = changes
        if not found or not chosen:
            return None
        return Plan(*self._ground.seats(), chosen)

    def _in_vain(self, borrowers: Sequence[str]) -> bool:
        """It could only have surplus members gone, or those of its own tenant, and would not fit
        without all of them: one sum over the few nodes that count."""
        nodes, mine = self._nodes, self._entry.told
        if borrowers or not self._plain or not self._entry.form.parts[0][0].gpus:
            return False
        shape, members = self._entry.form.parts[0]
        some = nodes.with_room(self._entry.form)
        if len(some) > _FEW_NODES:
            return self._surplus_in_vain()
        devices: dict[int, int] = dict.fromkeys(some.tolist(), 0)
        index = nodes.index
        for entry, spots in self._running.parting():
            if self._rested(entry):
                for node, count in spots:
                    devices[node] = devices.get(node, 0) + count
        for entry in self._running.cheapest(mine.tenant):
            if entry.told.priority >= mine.priority:
                break
            if self._may_go(entry):
                for seat in entry.seats + entry.losing:
                    node = index[seat[2]]
                    devices[node] = devices.get(node, 0) + len(seat[3])
        whole, most_on, gpus = nodes.now.whole.item, self._most_on, shape.gpus
        for node, more in devices.items():
            room = (whole(node) + more) // gpus
            if room > 0:
                members -= min(room, most_on(node))
                if members <= 0:
                    return False
        return True

    def _surplus_in_vain(self) -> bool:
        """The same over all nodes, where it could only have surplus members gone."""
        mine, running = self._entry.told, self._running
        if running.lowest_priority(mine.tenant) < mine.priority:
            return False
        shape, members = self._entry.form.parts[0]
        room = self._nodes.room_with(shape, running.surplus_devices())
        limit = self._limit()
        if limit is not None:
            np.minimum(room, limit, out=room)
        if int(room.sum()) >= members:
            return False
        for entry in running.with_surplus():
            self._rested(entry)
        return True

    @property
    def _ground(self) -> Everywhere | Near:
        """The what-if; made when somebody is gone in it."""
        if self._on is None:
            form = self._entry.form
            near = self._plain
            self._on = Near(form, self._nodes, self._limit()) if near else self._everywhere()
        return self._on

    def _limit(self) -> Ints | None:
        if not self._limit_asked:
            self._limit_asked, self._limit_known = True, self._limit_now()
        return self._limit_known

    def _everywhere(self) -> Everywhere:
        return Everywhere(self._entry, self._nodes, self._running, self._limit())

    def _candidates(self, quotas_any: bool, borrowers: Sequence[str]) -> Iterator[Victim]:
        for entry in self._running.with_surplus():
            if self._rested(entry):
                yield from self._surplus(entry)
        mine = self._entry.told
        wanted = self._wanted
        if borrowers:
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
                    victim = self._whole(entry)  # its surplus may be given back already
                    if self._tree.stays_at_nominal(tenant, victim.amounts, wanted):
                        yield victim
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
        for seat in entry.surplus_seats():
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
        return self._is_time(
            max(
                entry.resized_ms + self._rules.cool_down_ms,
                entry.started_ms + self._rules.min_run_ms,
            )
        )

    def _may_go(self, entry: Entry) -> bool:
        told = entry.told
        return (
            told.preemptible
            and told.preemptions < self._rules.preemption_cap
            and self._is_time(entry.started_ms + self._rules.min_run_ms)
        )

    def _is_time(self, when_ms: int) -> bool:
        if when_ms > self._now_ms:
            self.later_ms = min(self.later_ms, when_ms)
            return False
        return True

    def _fits(self) -> bool:
        told = self._entry.told
        for models, amounts in self._ways:
            if self._tree.fits(told.tenant, told.kind, told.user, amounts):
                if self._ground.fits(models):
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

    def _add(self, chosen: list[Victim], block: list[Victim]) -> None:
        if isinstance(self._on, Near) and len(chosen) > _FEW:
            self._on = self._everywhere()
            self._shift(chosen, 1)
        chosen += block
        self._shift(block, 1)

    def _shift(self, victims: Sequence[Victim], sign: int) -> None:
        plain = [v.entry for v in victims if v.whole and v.entry.told.job_id not in self._shed]
        self._ground.shift(plain, sign)
        for victim in victims:
            if not victim.whole or victim.entry.told.job_id in self._shed:
                self._ground.shift_seats(victim.entry, victim.seats, sign)

    def _charge(self, victim: Victim) -> None:
        told = victim.entry.told
        self._tree.charge(told.tenant, told.kind, told.user, victim.amounts)

    def _discharge(self, victim: Victim) -> None:
        told = victim.entry.told
        self._tree.discharge(told.tenant, told.kind, told.user, victim.amounts)


class Near:
    """The what-if for a gang of equal members: the nodes of the victims are looked at."""

    def __init__(self, form: Form, nodes: Nodes, limit: Ints | None) -> None:
        self._nearby = Nearby(form, nodes, limit)

    def shift(self, entries: Iterable[Entry], sign: int) -> None:
        for entry in entries:
            self._nearby.move(entry.told.needs, entry.seats + entry.losing, sign)

    def shift_seats(self, entry: Entry, seats: Sequence[Seat], sign: int) -> None:
        self._nearby.move(entry.told.needs, seats, sign)

    def fits(self, models: list[str] | None) -> bool:
        return self._nearby.fits()

    def seats(self) -> tuple[tuple[Seat, ...], Columns]:
        return self._nearby.seats()


class Everywhere:
    """The same for any gang, with the columns of all nodes."""

    def __init__(self, entry: Entry, nodes: Nodes, running: Running, limit: Ints | None) -> None:
        self._entry = entry
        self._nodes = nodes
        self._held = running.held
        self._limit = limit
        self._columns = nodes.now.copy()
        self._seats: tuple[Seat, ...] | None = None

    def shift(self, entries: Iterable[Entry], sign: int) -> None:
        self._held.shift(self._columns, entries, sign)

    def shift_seats(self, entry: Entry, seats: Sequence[Seat], sign: int) -> None:
        shift_seats(self._columns, entry, seats, sign)

    def fits(self, models: list[str] | None) -> bool:
        self._seats = self._nodes.place(
            self._entry.form, columns=self._columns, limit=self._limit, models=models
        )
        return self._seats is not None

    def seats(self) -> tuple[tuple[Seat, ...], Columns]:
        """Where it was last found to fit."""
        assert self._seats is not None
        self._columns.take(self._entry.told.needs, self._seats)
        return self._seats, spare_on(self._seats, self._columns, self._nodes)
