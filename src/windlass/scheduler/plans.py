"""When and where could a gang start that cannot start now? On concrete nodes, with what they will
have to spare, if everybody ends when it is thought to.

The first few ends are walked node by node (`outlook`); what is farther off is found by columns, in
doubling steps and then by halves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from windlass.scheduler.columns import PLENTY, Columns, Ints
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import Seat
from windlass.scheduler.nodes import Form, Nodes
from windlass.scheduler.outlook import Outlook
from windlass.scheduler.reserve import Reservation, Reservations
from windlass.scheduler.running import Running

_FIRST_LOOK = 8
_FEW_ENDS = 512


def spare_on(seats: Iterable[Seat], at_start: Columns, nodes: Nodes) -> Columns:
    """Of what will be free, the nodes of these seats."""
    names = dict.fromkeys(seat.node for seat in seats)
    return at_start.subset(np.array([nodes.index[name] for name in names], dtype=np.int64))


Found = tuple[int, tuple[Seat, ...], Columns]
"""When, where, and what is to spare then."""


def plan(
    entry: Entry,
    nodes: Nodes,
    running: Running,
    ahead: Reservations,
    now_ms: int,
    models: Sequence[str] | None = None,
) -> Found | None:
    """The earliest time at which the gang fits (on these GPU models), if everybody ends when it is
    thought to and those `ahead` have what they were promised. None: never, as far as is known."""
    if len(entry.form.needs) == 1 and not entry.form.required and models is None:
        found = _plan_soon(entry, nodes, running, ahead, now_ms)
        if found is not None:
            return found
    found = _plan_by_columns(entry, nodes, running, ahead, now_ms, models)
    return found and (found[0], found[1], spare_on(found[1], found[2], nodes))


def _plan_soon(
    entry: Entry, nodes: Nodes, running: Running, ahead: Reservations, now_ms: int
) -> Found | None:
    """The same, if it fits after the first few ends; None: not found."""
    outlook = Outlook(entry.form, nodes, ahead)
    if outlook.fits():
        return None
    last = outlook.walk(running.first_to_end(_FEW_ENDS))
    if last is None:
        return None
    when = max(now_ms + 1, last.ends_ms)  # somebody has to leave first
    only = outlook.only_node(last) if entry.form.members == 1 else None
    return (when, *outlook.seats(only))


def _plan_by_columns(
    entry: Entry,
    nodes: Nodes,
    running: Running,
    ahead: Reservations,
    now_ms: int,
    models: Sequence[str] | None,
) -> Found | None:
    """The same, however far off it is; tells what is free then on all nodes."""
    columns = nodes.now.copy()
    for other in ahead.all.values():
        columns.take(other.entry.told.needs, other.seats)
    form = entry.form
    seats = _fits(form, nodes, columns, models)
    if seats is not None:
        columns.take(entry.told.needs, seats)
        return now_ms, seats, columns
    ending = running.by_end()
    step, held = _FIRST_LOOK, running.held
    while chunk := list(islice(ending, step)):
        before = columns.copy()
        held.shift(columns, chunk, 1)
        if _fits(form, nodes, columns, models) is not None:
            low, high = 0, len(chunk)  # not enough after `low` of them, enough after `high`
            while high - low > 1:
                middle = (low + high) // 2
                trial = before.copy()
                held.shift(trial, chunk[low:middle], 1)
                if _fits(form, nodes, trial, models) is None:
                    low, before = middle, trial
                else:
                    high, columns = middle, trial
            seats = _fits(form, nodes, columns, models)
            assert seats is not None
            columns.take(entry.told.needs, seats)
            return max(now_ms + 1, chunk[high - 1].ends_ms), seats, columns
        step *= 2
    return None


def only_on(names: Iterable[str], nodes: Nodes) -> Ints:
    """A limit of members on each node: none on all but these."""
    limit = np.zeros(len(nodes.names), dtype=np.int64)
    limit[[nodes.index[name] for name in names if name in nodes.index]] = PLENTY
    return limit


def columns_at(when_ms: int, nodes: Nodes, running: Running, ahead: Reservations) -> Columns:
    """What is free then, if everybody ends when it is thought to and those `ahead` have what they
    were promised."""
    columns = nodes.now.copy()
    running.held.shift(columns, [e for e in running.by_end() if e.ends_ms <= when_ms], 1)
    for other in ahead.all.values():
        columns.take(other.entry.told.needs, other.seats)
    return columns


def drain(
    entry: Entry,
    nodes: Nodes,
    ahead: Iterable[Reservation] = (),
    models: Sequence[str] | None = None,
) -> tuple[Seat, ...] | None:
    """Where the gang would go if nobody else ran (but those `ahead`): nodes to keep new work away
    from, when nothing is known of the ends of those who run there."""
    columns = nodes.capacity.copy()
    for other in ahead:
        columns.take(other.entry.told.needs, other.seats)
    return nodes.place(entry.form, columns=columns, models=models)


def _fits(
    form: Form, nodes: Nodes, columns: Columns, models: Sequence[str] | None
) -> tuple[Seat, ...] | None:
    if len(form.needs) == 1:
        need = form.needs[0]
        room = nodes.room(need, columns=columns)
        if int(room.sum()) < form.members:
            return None
    return nodes.place(form, columns=columns, models=models)
