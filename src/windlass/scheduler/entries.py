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
        "elastic", "shares",
    )  # fmt: skip

    def __init__(self, told: Submit, form: Form, tree: Tree, heard: int) -> None:
        self.told = told
        self.form = form
        self.amounts = amounts_of(told.needs, tree)
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
        self.elastic = next((need for need in told.needs if need.minimum), None)
        self.shares = any(need.gpu_milli for need in told.needs)

    def __repr__(self) -> str:
        return f"<{self.told.job_id} {self.stage.name.lower()}>"

    @property
    def surplus(self) -> int:
        """Members above the fewest that will do."""
        if self.elastic is None or self.losing:
            return 0
        return sum(seat.role == self.elastic.role for seat in self.seats) - self.elastic.minimum

    def end_if_started(self, now_ms: int) -> int:
        expected = self.told.expected_ms
        return NEVER if expected is None else now_ms + expected


def members_of(need: Need) -> int:
    """How many of this need a gang starts with."""
    return need.minimum or need.count


def amounts_of(needs: tuple[Need, ...], tree: Tree) -> Amounts:
    """What a gang at the size it starts with is charged, model quotas aside."""
    gpus = cpus = memory = 0
    for need in needs:
        members = need.minimum or need.count
        gpus += members * (need.gpus * 1000 + need.gpu_milli)
        cpus += members * need.cpus_milli
        memory += members * need.memory_bytes
    return tree.amounts({"gpus": gpus, "cpus": cpus, "memory": memory})


def member_amounts(need: Need, tree: Tree) -> Amounts:
    return tree.amounts(
        {
            "gpus": need.gpus * 1000 + need.gpu_milli,
            "cpus": need.cpus_milli,
            "memory": need.memory_bytes,
        }
    )
