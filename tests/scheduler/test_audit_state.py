"""The auditor itself: what it says of a state, and of the core beside its books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from audit_histories import (
    COHORT,
    MINE,
    NARROW,
    PROMISED,
    RUNNING_U,
    TWO,
    Nodes,
    Said,
    Tick,
    audit,
    job,
    labels,
    node,
    rules,
    seat,
    start,
)

from windlass.scheduler.audit import Auditor
from windlass.scheduler.audit.books import Held
from windlass.scheduler.audit.tenants import Tenants
from windlass.scheduler.events import (
    Preempt,
    Queue,
    Quota,
    Release,
    Resize,
    Resized,
    Restore,
    Rules,
)


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
