"""A job as the core keeps it, from its first word to its release."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from windlass.scheduler.events import NEVER, Need, Seat, Submit
from windlass.scheduler.nodes import Form
from windlass.scheduler.quota import Amounts, Tree

if TYPE_CHECKING:
    from windlass.scheduler.pending import Lane


class Stage(IntEnum):
    WAITING = 0
    """In a lane, like all others."""
    PROMISED = 1
    """Out of its lane, with a reservation."""
    RUNNING = 2
    LEAVING = 3
    """Told to end; its quota is another's, its seats are its own until released."""


class Entry:
    __slots__ = (
        "told", "form", "amounts", "rank", "stage", "lane", "heard", "paused",
        "seats", "charged", "started_ms", "ends_ms", "beneficiary", "resized_ms", "losing",
        "elastic", "shares", "promised_ms", "why_later", "asked_ms", "hopes", "turn",
        "asked_again_ms", "refused",
    )  # fmt: skip

    def __init__(self, told: Submit, form: Form, tree: Tree, heard: int) -> None:
        self.told = told
        self.form = form
        self.amounts = form.charged(tree)
        """What its quota is charged when it starts."""
        self.rank = (-told.priority, told.order_ms, told.number)
        self.stage = Stage.WAITING
        self.lane: Lane | None = None
        self.heard = heard
        """The tick that first heard of it."""
        self.paused = False
        self.seats: tuple[Seat, ...] = ()
        self.charged: Amounts = ()
        self.started_ms = 0
        self.ends_ms = NEVER
        self.beneficiary = ""
        self.resized_ms = -NEVER
        self.losing: tuple[Seat, ...] = ()
        """Seats that a resize takes from it, held until it has let go of them."""
        self.elastic = told.needs[form.elastic] if form.elastic >= 0 else None
        self.shares = form.shares
        self.promised_ms = NEVER
        """What it was told last of its start,"""
        self.why_later = ""
        """and why that is no longer kept."""
        self.asked_ms = 0
        """When it may next be asked what could be kept for it, having waited for too long."""
        self.turn = 0
        """Among those that have something kept for them; 0: it has not."""
        self.hopes = 0
        """When what is kept for it was planned: how much had ended by then that had no end."""
        self.asked_again_ms = -1
        """Nobody thinks again before then of whom to tell to end for it."""
        self.refused: object = None
        """How things stood when nobody could be told to end for it."""

    def __repr__(self) -> str:
        return f"<{self.told.job_id} {self.stage.name.lower()}>"

    @property
    def surplus(self) -> int:
        """Members above the fewest that will do."""
        if self.elastic is None or self.losing:
            return 0
        return sum(seat.role == self.elastic.role for seat in self.seats) - self.elastic.minimum

    def surplus_seats(self) -> list[Seat]:
        """Of these members, in the order in which they are given up."""
        surplus = self.surplus
        if surplus <= 0 or self.elastic is None:
            return []
        own = [seat for seat in self.seats if seat.role == self.elastic.role]
        return sorted(own, key=lambda seat: -seat.index)[:surplus]

    def end_if_started(self, now_ms: int) -> int:
        expected = self.told.expected_ms
        return NEVER if expected is None else now_ms + expected


def alike(one: Entry, other: Entry) -> bool:
    """They differ in nothing but when they came."""
    return one.form is other.form and _class_of(one.told) == _class_of(other.told)


def _class_of(told: Submit) -> tuple[object, ...]:
    return (told.tenant, told.queue, told.kind, told.user, told.priority, told.expected_ms)


def members_of(need: Need) -> int:
    """How many of this need a gang starts with."""
    return need.minimum or need.count


def member_amounts(need: Need, tree: Tree) -> Amounts:
    return tree.amounts(
        {
            "gpus": need.gpus * 1000 + need.gpu_milli,
            "cpus": need.cpus_milli,
            "memory": need.memory_bytes,
        }
    )
