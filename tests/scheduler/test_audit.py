"""The auditor itself: for each invariant one lawful history, at which it is silent, and an
unlawful one, which it must flag. A checker that cannot fail proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audit_histories import (
    COHORT,
    ELASTIC,
    GRASPING,
    MINE,
    NARROW,
    PROMISED,
    RUNNING_U,
    TWO,
    Tick,
    audit,
    job,
    labels,
    node,
    rules,
    seat,
    start,
)

from windlass.scheduler.events import (
    Cap,
    Need,
    NodeDown,
    Preempt,
    Promise,
    Queue,
    Release,
    Resize,
    Resized,
    Withdraw,
)

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
        [*PROMISED, (1, [NodeDown("n"), node()], [Promise("big", 1100, ("n",), "it was lost")])],
        [*PROMISED, (1, [], [Promise("big", 1100, ("n",), "just so")])],
    ),
    (
        "S-I9", "the loss of another node is no excuse",
        [*PROMISED, (1, [NodeDown("o")], [])],
        [*PROMISED, (1, [NodeDown("o")], [Promise("big", 1100, ("n",), "node o was lost")])],
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
