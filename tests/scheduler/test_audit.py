"""The auditor itself: for each invariant one lawful history, at which it is silent, and an
unlawful one, which it must flag. A checker that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import pytest

from windlass.scheduler.audit import Auditor
from windlass.scheduler.audit.books import Books, Held
from windlass.scheduler.audit.tenants import Tenants
from windlass.scheduler.events import (
    Cap,
    Decision,
    Event,
    Need,
    NodeDown,
    NodeUp,
    Offer,
    Preempt,
    Promise,
    Queue,
    Quota,
    Reason,
    Release,
    Resize,
    Resized,
    Restore,
    Rules,
    Seat,
    Start,
    Submit,
    Withdraw,
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


HISTORIES: list[tuple[str, str, list[Tick], list[Tick]]] = [
    (
        "S-I1", "a node that is down takes nothing",
        [(0, [node(), job("a")], [start("a")])],
        [(0, [node(), NodeDown("n"), job("a")], [start("a")])],
    ),
    (
        "S-I1", "a member has as many devices as it wants",
        [(0, [node(), job("a", gpus=2)], [start("a", seat(0, many=2))])],
        [(0, [node(), job("a", gpus=2)], [start("a", seat(0, many=1))])],
    ),
    (
        "S-I1", "a member is on a model that will do",
        [(0, [node(), job("a")], [start("a")])],
        [(0, [node(), replace(job("a"), needs=(Need("w", 1, 1000, 1, 1, gpu_models=("x",)),))],
          [start("a")])],
    ),
    (
        "S-I2", "all of a gang starts",
        [(0, [node(), job("a", members=2)], [start("a", seat(0), seat(1, index=1))])],
        [(0, [node(), job("a", members=2)], [start("a", seat(0))])],
    ),
    (
        "S-I2", "a member sits once",
        [(0, [node(), job("a", members=2)], [start("a", seat(0), seat(1, index=1))])],
        [(0, [node(), job("a", members=2)], [start("a", seat(0), seat(1))])],
    ),
    (
        "S-I3", "no device is held twice",
        [*TWO, (1, [], [start("b", seat(1))])],
        [*TWO, (1, [], [start("b", seat(0))])],
    ),
    (
        "S-I3", "shares of a device sum to one at most",
        [(0, [node(), job("a", share=500), job("b", share=500)], [start("a"), start("b")])],
        [(0, [node(), job("a", share=500), job("b", share=600)], [start("a"), start("b")])],
    ),
    (
        "S-I3", "CPUs are not given twice",
        [(0, [node(cpus=2000), job("a"), job("b")], [start("a"), start("b", seat(1))])],
        [(0, [node(cpus=1000), job("a"), job("b")], [start("a"), start("b", seat(1))])],
    ),
    (
        "S-I4", "nobody borrows what nobody lends",
        [(0, [rules(*COHORT), node("n", 8), job("a", 4)], [start("a", seat(0, many=4))])],
        [(0, [rules(*COHORT), node("n", 8), job("a", 5)], [start("a", seat(0, many=5))])],
    ),
    (
        "S-I4", "what stays home is not lent (S-I5)",
        [(0, [rules(*GRASPING), node(), job("a", 1, "u")], [start("a")])],
        [(0, [rules(*GRASPING), node(), job("a", 2, "u")], [start("a", seat(0, many=2))])],
    ),
    (
        "S-I4", "a borrowing limit holds",
        [(0, [rules(COHORT[0], COHORT[1], replace(COHORT[2], borrow={"gpus": 1000})), node(),
              job("a", 3, "u")], [start("a", seat(0, many=3))])],
        [(0, [rules(COHORT[0], COHORT[1], replace(COHORT[2], borrow={"gpus": 1000})), node(),
              job("a", 4, "u")], [start("a", seat(0, many=4))])],
    ),
    (
        "S-I4", "a cap on one kind of work holds",
        [(0, [rules(caps=(Cap("t", {"gpus": 1000}, kind="notebook"),)), node(),
              job("a", 2)], [start("a", seat(0, many=2))])],
        [(0, [rules(caps=(Cap("t", {"gpus": 1000}, kind="notebook"),)), node(),
              job("a", 2, kind="notebook")], [start("a", seat(0, many=2))])],
    ),
    (
        "S-I7a", "a victim in the same tenant has a lower priority",
        [*MINE, (200, [job("high")], [Preempt("low", "high", "")])],
        [*MINE, (200, [job("high", priority=10)], [Preempt("low", "high", "")])],
    ),
    (
        "S-I7b", "a victim in another tenant borrows",
        [*RUNNING_U, (200, [job("mine")], [Preempt("u", "mine", "")])],
        [*RUNNING_U, (1, [Release("v"), Release("w")], []),
         (200, [job("mine", 3)], [Preempt("u", "mine", "")])],
    ),
    (
        "S-I7b", "who would borrow itself reclaims nothing",
        [*RUNNING_U, (200, [job("mine", 2)], [Preempt(name, "mine", "") for name in "uv"])],
        [*RUNNING_U, (200, [job("mine", 3)], [Preempt(name, "mine", "") for name in "uvw"])],
    ),
    (
        "S-I7b", "one that straddles nominal goes only when nobody else will do",
        [(0, [rules(*COHORT), node(), job("s", 3, "u"), job("o", 1, "u")],
          [start("s", seat(0, many=3)), start("o", seat(3))]),
         (200, [job("mine")], [Preempt("o", "mine", "")])],
        [(0, [rules(*COHORT), node(), job("s", 3, "u"), job("o", 1, "u")],
          [start("s", seat(0, many=3)), start("o", seat(3))]),
         (200, [job("mine")], [Preempt("s", "mine", "")])],
    ),
    (
        "S-I7c", "a victim has no higher priority, even when reclaiming",
        [*RUNNING_U, (200, [job("mine", priority=50)], [Preempt("u", "mine", "")])],
        [*RUNNING_U, (200, [job("mine", priority=40)], [Preempt("u", "mine", "")])],
    ),
    (
        "S-I7d", "surplus goes before anybody's whole gang",
        [*ELASTIC, (1, [], [Resize("e", (seat(0), seat(1, index=1), seat(2, index=2)))]),
         (200, [job("low", priority=10)], [start("low", seat(3))]),
         (400, [job("high", 1, priority=90)],
          [Resize("e", (seat(0), seat(1, index=1)), "high")])],
        [*ELASTIC, (1, [], [Resize("e", (seat(0), seat(1, index=1), seat(2, index=2)))]),
         (200, [job("low", priority=10)], [start("low", seat(3))]),
         (400, [job("high", 1, priority=90)], [Preempt("low", "high", "")])],
    ),
    (
        "S-I7e", "no victim is one too many",
        [*RUNNING_U, (200, [job("mine")], [Preempt("u", "mine", "")])],
        [*RUNNING_U, (200, [job("mine")], [Preempt("u", "mine", ""), Preempt("v", "mine", "")])],
    ),
    (
        "S-I7f", "what was freed is held for whom it was freed",
        [*MINE, (200, [job("high"), job("next")], [Preempt("low", "high", "")]),
         (300, [Release("low")], [start("high")])],
        [*MINE, (200, [job("high"), job("next")], [Preempt("low", "high", "")]),
         (300, [Release("low")], [start("next")])],
    ),
    (
        "S-I7f", "it starts when all have made room",
        [*MINE, (200, [job("high")], [Preempt("low", "high", "")]),
         (300, [Release("low")], [start("high")])],
        [*MINE, (200, [job("high")], [Preempt("low", "high", "")]), (300, [Release("low")], [])],
    ),
    (
        "S-I7f", "victims are enough",
        [*RUNNING_U, (200, [job("mine", 2)], [Preempt(name, "mine", "") for name in "uv"])],
        [*RUNNING_U, (200, [job("mine", 2)], [Preempt("u", "mine", "")])],
    ),
    (
        "S-I7g", "nobody is told to end before it ran a while",
        [*MINE, (100, [job("high")], [Preempt("low", "high", "")])],
        [*MINE, (99, [job("high")], [Preempt("low", "high", "")])],
    ),
    (
        "S-I7", "who is not preemptible stays",
        [*MINE, (100, [job("high")], [Preempt("low", "high", "")])],
        [(0, [rules(), node(gpus=1), job("low", priority=10, preemptible=False)], [start("low")]),
         (100, [job("high")], [Preempt("low", "high", "")])],
    ),
    (
        "S-I8", "who was preempted often enough stays",
        [*MINE, (100, [job("high")], [Preempt("low", "high", "")])],
        [(0, [rules(), node(gpus=1), job("low", priority=10, preemptions=3)], [start("low")]),
         (100, [job("high")], [Preempt("low", "high", "")])],
    ),
    (
        "S-I8", "two jobs do not take turns in preempting each other",
        [*MINE, (100, [job("high")], [Preempt("low", "high", "")]),
         (200, [Release("low"), job("low", priority=10)], [start("high")])],
        [*MINE, (100, [job("high")], [Preempt("low", "high", "")]),
         (200, [Release("low"), job("low", priority=90)], [start("high")]),
         (300, [], [Preempt("high", "low", "")])],
    ),
    (
        "S-I9", "a promise gets no later without a word",
        [*PROMISED, (1, [Release("r")], [Promise("big", 900, ("n",))])],
        [*PROMISED, (1, [], [Promise("big", 1100, ("n",))])],
    ),
    (
        "S-I9", "a promise slips only for what may delay it",
        [*PROMISED, (1, [NodeDown("o")], [Promise("big", 1100, ("n",), "node o was lost")])],
        [*PROMISED, (1, [], [Promise("big", 1100, ("n",), "just so")])],
    ),
    (
        "S-I9", "a promised job starts in time",
        [*PROMISED, (1000, [Release("r")], [start("big", seat(0, many=2))])],
        [*PROMISED, (1000, [Release("r")], []), (1001, [], [start("big", seat(0, many=2))])],
    ),
    (
        "S-I9", "nobody is let past who is in the way",
        [*PROMISED, (1, [job("short", expected=900)], [start("short", seat(1))])],
        [*PROMISED, (1, [job("long", expected=1100)], [start("long", seat(1))])],
    ),
    (
        "S-I10", "a job without end does not starve out who waited long",
        [(0, [rules(starving_ms=10), node(gpus=2), job("r"), job("big", 2)],
          [start("r", seat(0))]),
         (5, [job("z", order_ms=5)], [start("z", seat(1))])],
        [(0, [rules(starving_ms=10), node(gpus=2), job("r", expected=9), job("big", 2)],
          [start("r", seat(0))]),
         (20, [job("z", order_ms=20)], [start("z", seat(1))])],
    ),
    (
        "S-I11", "of two alike the older goes first",
        [(0, [node(), job("a"), job("b", order_ms=1)], [start("a"), start("b", seat(1))])],
        [(0, [node(), job("a"), job("b", order_ms=1)], [start("b"), start("a", seat(1))])],
    ),
    (
        "S-I11", "who comes back keeps its turn",
        [(0, [node(gpus=1), job("a")], [start("a")]), (1, [job("b", order_ms=1)], []),
         (2, [Release("a"), job("a")], [start("a")])],
        [(0, [node(gpus=1), job("a")], [start("a")]), (1, [job("b", order_ms=1)], []),
         (2, [Release("a"), job("a")], [start("b")])],
    ),
    (
        "S-I11", "nobody passes the first of a strict queue",
        [(0, [rules(queues=(Queue("default"),)), node(gpus=1), job("r"), job("a"),
              job("b", gpus=0)], [start("r"), start("b", seat(0, many=0))])],
        [(0, [rules(queues=(Queue("default", "strict"),), order="fifo"), node(gpus=1), job("r"),
              job("a"), job("b", gpus=0, order_ms=1)], [start("r"), start("b", seat(0, many=0))])],
    ),
    (
        "S-I11", "a paused queue starts nobody",
        [(0, [node(), job("a")], [start("a")])],
        [(0, [rules(queues=(Queue("default", paused=True),)), node(), job("a")], [start("a")])],
    ),
    (
        "S-I13", "who stays within what it owns goes before who borrows",
        [(0, [rules(*COHORT), node("n", 8), job("a", 2, "u")], [start("a", seat(0, many=2))]),
         (1, [job("x", 1, "u"), job("y", order_ms=1)],
          [start("y", seat(2)), start("x", seat(3))])],
        [(0, [rules(*COHORT), node("n", 8), job("a", 2, "u")], [start("a", seat(0, many=2))]),
         (1, [job("x", 1, "u"), job("y", order_ms=1)],
          [start("x", seat(2)), start("y", seat(3))])],
    ),
    (
        "S-I16", "nobody starts twice",
        [(0, [node(), job("a")], [start("a")])],
        [(0, [node(), job("a")], [start("a"), start("a", seat(1))])],
    ),
    (
        "S-I16", "nobody starts who does not wait",
        [(0, [node(), job("a")], [start("a")])],
        [(0, [node(), job("a")], []), (1, [Withdraw("a")], [start("a")])],
    ),
    (
        "S-I17", "an elastic gang stays within its bounds",
        [(0, [node(), job("e", members=3, minimum=2)], [start("e", seat(0), seat(1, index=1))])],
        [(0, [node(), job("e", members=3, minimum=2)], [start("e", seat(0))])],
    ),
    (
        "S-I17", "an elastic gang is not resized again at once",
        [*ELASTIC, (1, [], [Resize("e", (seat(0), seat(1, index=1)))]),
         (101, [], [Resize("e", (seat(0), seat(1, index=1), seat(2, index=2)))])],
        [*ELASTIC, (1, [], [Resize("e", (seat(0), seat(1, index=1)))]),
         (100, [], [Resize("e", (seat(0), seat(1, index=1), seat(2, index=2)))])],
    ),
    (
        "S-I3", "what a resize takes is held until it is given up",
        [*NARROW, (1, [], [Resize("e", (seat(0), seat(1, index=1)))]),
         (200, [job("b")], [Resize("e", (seat(0),), "b")]),
         (201, [Resized("e")], [start("b", seat(1))])],
        [*NARROW, (1, [], [Resize("e", (seat(0), seat(1, index=1)))]),
         (200, [job("b")], [Resize("e", (seat(0),), "b"), start("b", seat(1))])],
    ),
    (
        "S-I18", "a required level is kept",
        [(0, [node("n", rack="1"), node("o", rack="1"),
              job("a", 3, members=2, level="rack", required=True)],
          [start("a", seat(0, many=3), seat(0, "o", 1, many=3))])],
        [(0, [node("n", rack="1"), node("o", rack="2"),
              job("a", 3, members=2, level="rack", required=True)],
          [start("a", seat(0, many=3), seat(0, "o", 1, many=3))])],
    ),
    (
        "S-I18", "a preferred level is kept where it can be",
        [(0, [node("n"), node("o"), job("a", 3, members=2, level="host")],
          [start("a", seat(0, many=3), seat(0, "o", 1, many=3))])],
        [(0, [node("n"), node("o"), job("a", 2, members=2, level="host")],
          [start("a", seat(0, many=2), seat(0, "o", 1, many=2))])],
    ),
    (
        "S-I18", "a gang never spans two pools",
        [(0, [node("n"), node("o"), job("a", 3, members=2)],
          [start("a", seat(0, many=3), seat(0, "o", 1, many=3))])],
        [(0, [node("n"), node("o", pool="p"), job("a", 3, members=2)],
          [start("a", seat(0, many=3), seat(0, "o", 1, many=3))])],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "lawful", "unlawful"),
    [(label, lawful, unlawful) for label, _, lawful, unlawful in HISTORIES],
    ids=[f"{label}: {name}" for label, name, _, _ in HISTORIES],
)
def test_the_lawful_history_passes_and_the_unlawful_one_is_flagged(
    label: str, lawful: list[Tick], unlawful: list[Tick]
) -> None:
    assert audit(lawful)[1] == []
    assert label in labels(audit(unlawful)[1])


def quietly(ticks: Sequence[Tick], reasons: dict[str, str] | None = None) -> list[str]:
    auditor, found = audit(ticks)
    assert found == []
    said = Said(auditor.books, reasons or {})
    return auditor.quiet(said, ticks[-1][0])  # type: ignore[arg-type]


def test_a_job_that_passes_everything_and_waits_is_idle_room() -> None:
    assert quietly([(0, [node(gpus=1), job("a"), job("b")], [start("a")])]) == []
    assert "S-I12" in labels(quietly([(0, [node(gpus=2), job("a"), job("b")], [start("a")])]))


def test_what_is_promised_to_another_is_no_idle_room() -> None:
    assert (
        quietly([*PROMISED, (1, [job("s", expected=5000)], [])], {"s": "waiting-reservation"})
        == []
    )
    short = [(0, [*PROMISED[0][1], job("short", expected=900)], PROMISED[0][2])]
    assert labels(quietly(short)) == {"S-I12", "S-I19"}


def test_who_owns_it_does_not_wait_for_who_borrows() -> None:
    auditor, _ = audit([*RUNNING_U, (200, [job("mine")], [])])
    said = Said(auditor.books)
    assert auditor.quiet(said, 200) == []  # type: ignore[arg-type]
    auditor.heard([], 1201)
    assert labels(auditor.quiet(said, 1201)) == {"S-I6"}  # type: ignore[arg-type]


def test_a_promise_that_has_passed_is_broken() -> None:
    late = [*PROMISED, (1000, [Release("r")], [])]
    auditor, _ = audit(late)
    assert "S-I9" in labels(auditor.quiet(Said(auditor.books), 1001))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("right", "wrong", "ticks"),
    [
        ("waiting-nodes", "waiting-quota",
         [(0, [node(gpus=1), job("r"), job("j")], [start("r")])]),
        ("exceeds-max", "waiting-nodes", [(0, [node(gpus=1), job("j", 2)], [])]),
        ("waiting-nodes", "exceeds-max", [(0, [node(gpus=1), job("r"), job("j")], [start("r")])]),
        ("paused", "waiting-nodes",
         [(0, [rules(queues=(Queue("default", paused=True),)), node(), job("j")], [])]),
        ("waiting-quota", "waiting-nodes",
         [(0, [rules(*COHORT), node("n", 8), job("r", 4), job("j")],
           [start("r", seat(0, many=4))])]),
        ("waiting-nodes-fragmented", "dispatching",
         [(0, [node("n", 3), node("o", 3), job("r", 2), job("s", 2), job("j", 2)],
           [start("r", seat(0, many=2)), start("s", seat(0, "o", many=2))])]),
        ("waiting-nodes", "waiting-nodes-fragmented",
         [(0, [node(gpus=1), job("r"), job("j")], [start("r")])]),
        ("preempting", "waiting-reservation",
         [*MINE, (200, [job("j")], [Preempt("low", "j", "")])]),
        ("waiting-nodes", "preempting", [(0, [node(gpus=1), job("r"), job("j")], [start("r")])]),
        ("waiting-nodes", "waiting-queue",
         [(0, [node(gpus=1), job("r"), job("j")], [start("r")])]),
        ("waiting-nodes", "no such reason",
         [(0, [node(gpus=1), job("r"), job("j")], [start("r")])]),
    ],
)  # fmt: skip
def test_a_reason_holds_when_it_is_looked_at_again(
    right: str, wrong: str, ticks: list[Tick]
) -> None:
    assert quietly(ticks, {"j": right}) == []
    assert labels(quietly(ticks, {"j": wrong})) == {"S-I19"}


def test_the_index_of_the_core_is_compared_with_the_books() -> None:
    auditor, _ = audit(TWO)
    said = Said(auditor.books)
    for column in ("cpus", "memory", "slots", "whole"):
        nodes = said.nodes
        getattr(nodes.now, column)[0] += 1
        assert labels(auditor._compare_nodes(_Lying(nodes))) == {"S-I1"}, column  # type: ignore[arg-type]
    nodes = said.nodes
    nodes.now.gpu[0, 0] += 500
    assert labels(auditor._compare_nodes(_Lying(nodes))) == {"S-I1"}  # type: ignore[arg-type]


@dataclass
class _Lying:
    nodes: Nodes


def test_jobs_of_the_core_are_compared_with_the_books() -> None:
    auditor, _ = audit(TWO)
    held = dict(auditor.books.held)

    class Forgetful(Said):
        def holdings(self) -> Mapping[str, Held]:
            return {}

    class Early(Said):
        def holdings(self) -> Mapping[str, Held]:
            return {"a": replace(held["a"], started_ms=-1)}

    for lie in (Forgetful, Early):
        found = auditor.check(lie(auditor.books), 1)  # type: ignore[arg-type]
        assert labels(found) == {"S-I16"}


def test_use_over_time_is_counted_twice_and_agrees() -> None:
    """S-I14: by the clock over the nodes, and by the job over its spans."""
    ticks: list[Tick] = [
        *NARROW,
        (100, [], [Resize("e", (seat(0), seat(1, index=1)))]),
        (300, [job("b")], [Resize("e", (seat(0),), "b")]),
        (400, [Resized("e")], [start("b", seat(1))]),
        (1000, [Release("e")], []),
    ]
    auditor, found = audit(ticks)
    assert found == []
    assert auditor.ledger["gpus"] == 1000 * (1000 + 300)
    auditor.ledger["gpus"] += 1
    assert labels(auditor.check(Said(auditor.books), 1000)) == {"S-I14"}  # type: ignore[arg-type]


def test_a_restarted_server_tells_the_same_books_again() -> None:
    auditor, _ = audit([*MINE, (200, [job("high"), job("next")], [Preempt("low", "high", "")])])
    fresh = Auditor()
    fresh.heard(auditor.retold(), 200)
    fresh.decided([], 200)
    assert fresh.check(Said(auditor.books), 200) == []  # type: ignore[arg-type]
    assert fresh.books.pending == auditor.books.pending
    assert list(fresh.books.nominated) == ["high"]


def test_quotas_add_up_by_hand() -> None:
    """c owns 1 itself; t owns 4 and lends 1; u owns 2, lends all, and borrows 1 at most."""
    tenants = Tenants()
    tenants.rules(
        Rules((
            Quota("c", nominal={"gpus": 1000}),
            Quota("t", "c", {"gpus": 4000}, lend={"gpus": 1000}),
            Quota("u", "c", {"gpus": 2000}, borrow={"gpus": 1000}),
        ))
    )  # fmt: skip
    assert tenants.passes(job("a", 6), set())  # 4 own, 2 of u's, not yet c's: 4 + 2 + 1
    assert tenants.passes(job("a", 7), set())
    assert not tenants.passes(job("a", 8), set())
    assert tenants.passes(job("a", 3, "u"), set())
    assert not tenants.passes(job("a", 4, "u"), set())
    tenants.charge(job("x", 3, "u"), {"gpus": 3000})
    assert tenants.passes(job("a", 4), set())
    assert not tenants.passes(job("a", 5), set())
    tenants.charge(job("y", 9, "free"), {"gpus": 9000})
    assert tenants.excess() == {}


def test_the_cheap_level_still_counts() -> None:
    bad: list[Tick] = [*TWO, (1, [], [start("b", seat(0))])]
    assert "S-I3" in labels(audit(bad, level="cheap")[1])
    with pytest.raises(ValueError, match="level"):
        Auditor("some")


def test_a_restored_job_holds_its_seats() -> None:
    told = Restore(job("a"), (seat(0),), started_ms=-500)
    lawful: list[Tick] = [(0, [node(), told, job("b")], [start("b", seat(1))])]
    assert audit(lawful)[1] == []
    unlawful: list[Tick] = [(0, [node(), told, job("b")], [start("b", seat(0))])]
    assert "S-I3" in labels(audit(unlawful)[1])
