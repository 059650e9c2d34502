"""Short histories for the auditor, and a core that says what the books say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from windlass.scheduler.audit import Auditor
from windlass.scheduler.audit.books import Books, Held
from windlass.scheduler.events import (
    Decision,
    Event,
    Need,
    NodeUp,
    Offer,
    Promise,
    Quota,
    Reason,
    Rules,
    Seat,
    Start,
    Submit,
)

Tick = tuple[int, Sequence[Event], Sequence[Decision]]
NUMBERS = count()


def node(
    name: str = "n", gpus: int = 4, cpus: int = 8000, rack: str = "", pool: str = ""
) -> NodeUp:
    return NodeUp(Offer(name, cpus, 64, gpus, gpu_model="m", rack=rack, pool=pool))


def job(
    name: str,
    gpus: int = 1,
    tenant: str = "t",
    members: int = 1,
    minimum: int = 0,
    expected: int | None = None,
    share: int = 0,
    **more: object,
) -> Submit:
    need = Need("w", members, 1000, 1, 0 if share else gpus, share, minimum=minimum)
    told = Submit(name, tenant, (need,), order_ms=0, number=next(NUMBERS), expected_ms=expected)
    return replace(told, **more)  # type: ignore[arg-type]


def seat(device: int = 0, where: str = "n", index: int = 0, many: int = 1) -> Seat:
    return Seat("w", index, where, tuple(range(device, device + many)))


def start(name: str, *seats: Seat) -> Start:
    return Start(name, seats or (seat(),))


def rules(*quotas: Quota, **more: object) -> Rules:
    told = Rules(quotas, min_run_ms=100, cool_down_ms=100, starving_ms=1 << 50)
    return replace(told, **more)  # type: ignore[arg-type]


@dataclass
class Columns:
    cpus: np.ndarray
    memory: np.ndarray
    slots: np.ndarray
    gpu: np.ndarray
    whole: np.ndarray


@dataclass
class Nodes:
    index: dict[str, int]
    now: Columns
    up: np.ndarray


@dataclass
class Said:
    """A core that says what the books say, or what a test puts in its mouth."""

    books: Books
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> Nodes:
        ground = self.books.ground
        have, used = ground.capacity(), ground.used()
        gpu = np.where(have[3] < 0, 0, have[3] - used[3])
        whole = (gpu == 1000).sum(axis=1)
        now = Columns(have[0] - used[0], have[1] - used[1], have[2] - used[2], gpu, whole)
        return Nodes(dict(ground.index), now, ground.up.copy())

    def holdings(self) -> Mapping[str, Held]:
        return self.books.held

    def why(self, job_id: str) -> Reason | None:
        return Reason(self.reasons.get(job_id, "waiting-nodes"), "")

    def line(self, queue: str = "") -> list[str]:
        return list(self.books.pending)

    def promise(self, job_id: str) -> Promise | None:
        return None


def audit(ticks: Sequence[Tick], *, level: str = "all") -> tuple[Auditor, list[str]]:
    auditor = Auditor(level)
    found: list[str] = []
    for now_ms, events, decisions in ticks:
        auditor.heard(events, now_ms)
        auditor.decided(decisions, now_ms)
        found += auditor.check(Said(auditor.books), now_ms)  # type: ignore[arg-type]
    return auditor, found


def labels(found: Sequence[str]) -> set[str]:
    return {what.split(":")[0] for what in found}


COHORT = (
    Quota("c"), Quota("t", "c", {"gpus": 2000}), Quota("u", "c", {"gpus": 2000}),
)  # fmt: skip
GRASPING = (Quota("c"), Quota("t", "c", {"gpus": 2000}, lend={"gpus": 1000}), Quota("u", "c", {}))
TWO = [(0, [rules(), node(), job("a"), job("b")], [start("a", seat(0))])]
RUNNING_U = [
    (
        0,
        [
            rules(*COHORT),
            node(),
            *(job(name, tenant="u", order_ms=i) for i, name in enumerate("uvwx")),
        ],
        [start(name, seat(device)) for device, name in enumerate("uvwx")],
    )
]
"""u borrows two of t's; all four devices are taken."""
MINE = [(0, [rules(), node(gpus=1), job("low", priority=10)], [start("low")])]
NARROW = [(0, [rules(), node(gpus=2), job("e", members=3, minimum=1)], [start("e", seat(0))])]
ELASTIC = [(0, [rules(), node(), job("e", members=3, minimum=1)], [start("e", seat(0))])]
PROMISED = [
    (
        0,
        [
            rules(),
            node(gpus=2),
            job("r", expected=1000),
            job("big", gpus=2),
            job("s", expected=5000),
        ],
        [start("r", seat(0)), Promise("big", 1000, ("n",))],
    )
]
