"""Whose turn it is when a promise slips, is exchanged, or is told to a core after a restart; and
when those are asked again for whom others may have to go."""

from __future__ import annotations

from dataclasses import replace

from test_core import MINUTE, core_of, job, node, preempted, started

from windlass.scheduler.events import (
    Decision,
    Need,
    NodeUp,
    Offer,
    Promise,
    Queue,
    Quota,
    Release,
    Remember,
    Resize,
    Restore,
    Rules,
    Seat,
    Submit,
    Withdraw,
)


def promised(decisions: list[Decision]) -> dict[str, tuple[int, bool]]:
    """The start of each that was promised one, and whether it says that it is later."""
    return {d.job_id: (d.start_ms, bool(d.slipped)) for d in decisions if isinstance(d, Promise)}


def test_a_tick_that_decided_enough_leaves_the_others_to_the_next_in_order() -> None:
    core = core_of(*(node(number, gpus=8) for number in range(1, 14)))
    found = started(core.apply([job(f"j{at}", at) for at in range(100)], 1))
    assert 0 < len(found) < 50 and core.next_ms() == 1
    found += started(core.apply([job("urgent", 100, priority=90)], 1))
    assert "urgent" in found[:51]  # it is heard before the others start
    while core.next_ms() == 1:
        found += started(core.apply([], 1))
    found.remove("urgent")
    assert found == [f"j{at}" for at in range(100)]


# Among those that differ in nothing


def test_who_starts_on_what_another_was_promised_leaves_it_its_own_and_says_so() -> None:
    core = core_of(node(1, gpus=2), node(2, gpus=2), node(3, gpus=1))
    core.apply([job("early", 1, gpus=2, expected_ms=100)], 0)
    core.apply([job("late", 2, gpus=2, expected_ms=200)], 0)
    waiting = [job("one", 3, gpus=2, expected_ms=500), job("two", 4, gpus=2, expected_ms=500)]
    found = core.apply([*waiting, job("small", 5, expected_ms=10)], 1)
    assert promised(found) == {"one": (100, False), "two": (200, False)}
    found = core.apply([Release("late")], 20)
    assert started(found) == ["one"]  # it came first
    assert promised(found) == {"two": (100, False)}


def test_who_comes_back_does_not_delay_what_was_promised_to_its_like() -> None:
    core = core_of(node(1, gpus=2), node(2, gpus=2), node(3, gpus=1))
    core.apply([job("early", 1, gpus=2, expected_ms=100)], 0)
    core.apply([job("late", 2, gpus=2, expected_ms=200)], 0)
    found = core.apply([job("two", 4, gpus=2, expected_ms=50), job("s", 5, expected_ms=10)], 1)
    assert promised(found) == {"two": (100, False)}
    found = core.apply([Release("s"), job("one", 3, gpus=2, expected_ms=50)], 2)
    found += core.apply([job("t", 6, expected_ms=10)], 3)
    assert promised(found) == {"one": (200, False)}
    assert started(core.apply([Release("early")], 100)) == ["two"]


def test_when_a_promise_slips_its_like_that_came_back_meanwhile_is_first() -> None:
    core = core_of(node(1, gpus=2), node(3, gpus=1))
    core.apply([job("over", 1, gpus=2, expected_ms=100)], 0)
    found = core.apply([job("two", 4, gpus=2, expected_ms=50), job("s", 5, expected_ms=99)], 1)
    assert promised(found) == {"two": (100, False)}
    core.apply([job("one", 3, gpus=2, expected_ms=50)], 2)
    found = core.apply([], 101)
    assert "one" in promised(found)
    assert started(core.apply([Release("over")], 110)) == ["one"]


# Others


def test_who_was_promised_something_first_is_still_first_when_that_slips() -> None:
    core = core_of(node(1, gpus=2), node(2, gpus=2), node(3, gpus=1))
    core.apply([job("over", 1, gpus=2, expected_ms=100)], 0)
    core.apply([job("long", 2, gpus=2, expected_ms=1000)], 0)
    waiting = [job("first", 3, gpus=2), job("second", 4, gpus=2, expected_ms=5000)]
    found = core.apply([*waiting, job("small", 5, expected_ms=10)], 1)
    assert promised(found) == {"first": (100, False), "second": (1000, False)}
    assert promised(core.apply([], 101)) == {"first": (202, True)}
    assert started(core.apply([node(4, gpus=2)], 150)) == ["first"]


STRICT = Rules(queues=(Queue("default"), Queue("strict", "strict")), min_run_ms=0)


def test_who_comes_to_be_first_in_a_strict_queue_starts_in_the_same_tick() -> None:
    core = core_of(node(1, gpus=4), rules=STRICT)
    core.apply([job("other", 1, tenant="nlp")], 0)
    big = job("big", 2, gpus=4, tenant="vision", queue="strict")
    found = core.apply([big, job("little", 3, tenant="audio", queue="strict")], 1)
    assert started(found) == []
    found = core.apply([job("more", 4, tenant="vision")], 2)
    assert started(found) == ["more", "little"]  # vision has more than audio now


def test_who_comes_to_be_first_in_a_strict_queue_by_growth_starts_at_once() -> None:
    core = core_of(node(1, gpus=8), rules=STRICT)
    core.apply([job("other", 1, gpus=2, tenant="audio")], 0)
    big = job("big", 2, gpus=8, tenant="vision", queue="strict")
    found = core.apply([big, job("little", 3, tenant="audio", queue="strict")], 1)
    assert started(found) == []
    found = core.apply([job("grows", 4, workers=4, minimum=1, tenant="vision")], 2)
    assert started(found) == ["grows"] and len(core.holdings()["grows"].seats) == 4
    assert core.next_ms() == 2
    assert started(core.apply([], 2)) == ["little"]  # vision has more than audio now


def test_who_came_while_its_tenant_had_more_is_first_when_it_has_less_again() -> None:
    core = core_of(node(1, gpus=4), rules=STRICT)
    core.apply([job("fills", 1, tenant="nlp")], 0)
    big = [job("big", 2, gpus=4, tenant="audio", queue="strict")]
    core.apply([*big, job("wide", 3, gpus=4, tenant="vision", queue="strict")], 1)
    assert started(core.apply([job("brief", 4, tenant="vision")], 2)) == ["brief"]
    urgent = job("urgent", 5, tenant="vision", queue="strict", priority=90)
    assert started(core.apply([urgent], 3)) == []
    assert started(core.apply([Release("brief")], 4)) == ["urgent"]


def test_a_node_that_loses_a_label_is_lost_to_who_was_promised_it_for_that() -> None:
    def labelled(name: str, *labels: str) -> NodeUp:
        return NodeUp(Offer(name, cpus_milli=8000, gpus=2, labels=labels))

    core = core_of(labelled("n1", "apart"), labelled("n2", "apart"), node(3, gpus=1))
    need = Need("worker", 1, gpus=2, labels=("apart",))
    core.apply([job("a", 1, gpus=2, expected_ms=100), job("b", 2, gpus=2, expected_ms=200)], 0)
    picky = Submit("picky", "vision", (need,), 3, 3, expected_ms=1000)
    found = core.apply([picky, job("small", 4, expected_ms=10)], 1)
    assert promised(found) == {"picky": (100, False)}
    lost = core.promise("picky")
    assert lost is not None
    found = core.apply([labelled(lost.nodes[0])], 2)
    assert promised(found) == {"picky": (200, True)}


# After a restart


def running(name: str, number: int, on: str, gpus: int, ends_ms: int) -> Restore:
    seat = Seat("worker", 0, on, tuple(range(gpus)))
    return Restore(job(name, number, gpus=gpus, expected_ms=ends_ms), (seat,), 0)


def test_what_was_promised_before_a_restart_is_kept_after_it() -> None:
    core = core_of(node(1, gpus=2))
    gang = job("gang", 2, gpus=2, expected_ms=1000)
    urgent = replace(job("urgent", 3, gpus=2, expected_ms=1000), priority=90)
    told = [running("over", 1, "n1", 2, 100), urgent, gang, Remember("gang", 100, ("n1",), 5)]
    found = core.apply(told, 50)
    assert promised(found).get("gang") is None  # it knows already
    promise = core.promise("gang")
    assert promise is not None and (promise.start_ms, promise.nodes) == (100, ("n1",))
    assert started(core.apply([Release("over")], 99)) == ["gang"]


def test_what_can_be_kept_no_more_after_a_restart_is_promised_anew_and_says_so() -> None:
    core = core_of(node(1, gpus=2), node(2, gpus=2), node(3, gpus=1))
    told = [running("over", 1, "n1", 2, 100), running("also", 2, "n2", 2, 500)]
    gang = job("gang", 3, workers=2, gpus=2, expected_ms=1000)
    late = Remember("gang", 100, ("n1", "n2"), 5)
    found = core.apply([*told, gang, late, job("small", 4, expected_ms=10)], 50)
    assert promised(found) == {"gang": (500, True)}


def test_a_core_goes_on_from_what_the_one_before_counted_as_used_lately() -> None:
    """Between tenants that hold alike, who used less lately comes first."""
    days, patient = 86_400_000, Rules(starving_ms=1 << 60)
    old = core_of(node(1, gpus=1), rules=patient)
    old.apply([job("a", 1, tenant="audio")], 20_000 * days)
    old.apply([Release("a"), job("v", 2, tenant="vision")], 20_000 * days + 1000)
    old.apply([Release("v")], 20_010 * days)
    told = old.used()
    assert [used.tenant for used in told] == ["audio", "vision"] and old.used() == []
    waiting = [job("v2", 3, tenant="vision"), job("a2", 4, tenant="audio")]
    for events, first in (([], "v2"), (told, "a2")):
        core = core_of(node(1, gpus=1), rules=patient)
        assert started(core.apply([*events, *waiting], 20_011 * days)) == [first]


def test_a_gang_that_was_resized_before_a_restart_rests_after_it() -> None:
    grows = job("grows", 1, workers=2, minimum=1)
    seats = (Seat("worker", 0, "n1", (0,)),)
    for resized_ms, rests in ((None, False), (1000, True)):
        core = core_of(node(1, gpus=2), rules=Rules(cool_down_ms=5000))
        found = core.apply([Restore(grows, seats, 0, resized_ms=resized_ms)], 2000)
        assert [d.job_id for d in found if isinstance(d, Resize)] == ["grows"] * (not rests)
        if rests:
            assert core.next_ms() == 6000
            found = core.apply([], 6000)
            assert [d.job_id for d in found if isinstance(d, Resize)] == ["grows"]


def test_nobody_is_told_a_time_that_nobody_knows() -> None:
    core = core_of(node(1, gpus=2), rules=replace(STRICT, starving_ms=10))
    core.apply([job("endless", 1), job("wide", 2, gpus=2)], 2)
    core.apply([], 100)
    assert core.promise("wide") is None
    assert core.line()[0] == "wide"  # though the node is kept for it


# Asking again


def test_nobody_asks_again_while_nothing_changes() -> None:
    core = core_of(node(1, gpus=1), rules=Rules(min_run_ms=0))
    core.apply([job("fixed", 1, priority=10, preemptible=False)], 0)
    core.apply([job("high", 2, priority=90)], 1)
    assert core.next_ms() is not None  # once, for what has just started
    core.apply([], core.next_ms() or 0)
    assert core.next_ms() is None


def test_who_was_refused_asks_again_when_somebody_has_run_for_long_enough() -> None:
    core = core_of(node(1, gpus=1), rules=Rules(min_run_ms=MINUTE))
    core.apply([job("low", 1, priority=10)], 0)
    core.apply([job("high", 2, priority=90)], 1)
    times = []
    while (due := core.next_ms()) is not None and due < MINUTE:
        assert preempted(core.apply([], due)) == []
        times.append(due)
    assert due == MINUTE and len(times) <= 1
    assert preempted(core.apply([], MINUTE)) == ["low"]


def test_who_was_refused_asks_again_when_its_own_tenant_has_come_to_hold_it() -> None:
    quotas = (Quota("vision", nominal={"gpus": 4000}),)
    core = core_of(node(1, gpus=2), rules=Rules(quotas, min_run_ms=0))
    core.apply([job("low", 1, priority=10), job("foreign", 2, tenant="nlp")], 0)
    assert preempted(core.apply([job("high", 3, gpus=2, priority=90)], 1)) == []
    found = core.apply([Release("foreign"), job("lower", 4, priority=10)], 10)
    assert started(found) == ["lower"]  # nobody knows when it could not
    due = core.next_ms()
    assert due is not None and due <= 2000
    assert sorted(preempted(core.apply([], due))) == ["low", "lower"]


# Who waited for too long


def test_what_has_no_end_leaves_alone_what_is_drained_for_one_of_its_tenant_before_it() -> None:
    rules = Rules(starving_ms=10, preemption=False)
    core = core_of(node(1, gpus=3), node(2, gpus=3), rules=rules)
    core.apply([job("endless", 1, gpus=3, tenant="nlp")], 0)
    core.apply([job("brief", 2, gpus=2, tenant="nlp", expected_ms=100)], 0)
    wide = job("wide", 4, gpus=3, expected_ms=50)
    core.apply([job("first", 3, gpus=3, tenant="audio"), wide], 1)
    assert promised(core.apply([], 30)) == {"first": (100, False)}  # for wide nobody knows when
    core.apply([Withdraw("first")], 40)
    # Where it would sit, wide fits when brief has ended; and what waits long does not differ.
    assert started(core.apply([job("small", 5), job("late", 60)], 50)) == []
    found = core.apply([Release("brief")], 100)
    assert started(found) == ["wide"]
    found += core.apply([Release("wide")], 140)
    assert set(started(found)) == {"wide", "small", "late"}
