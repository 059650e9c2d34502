"""Schedules of pipelines: their formulas, their orders, and that they run (1.8, 1.9, 1.10)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules as torchs

from windlass.core.errors import InvalidInput
from windlass.train.policies import schedules
from windlass.train.policies.clock import Clock, clock, draw
from windlass.train.policies.schedules import Action, Schedule

SIZES = [(k, m) for k in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 7, 32)]
REPLICAS = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def even(action: Action) -> float:
    """A whole backward is as long as its halves, and each of them as a forward."""
    return {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0, "U": 0.0}[action.kind]


def flushing(ranks: int, batches: int, chunks: int) -> list[Schedule]:
    return [
        schedules.gpipe(ranks, batches),
        schedules.one_f_one_b(ranks, batches),
        schedules.interleaved(ranks * chunks, batches, chunks),
        schedules.zb1p(ranks, batches),
        schedules.zbv(2 * ranks, batches),
    ]


# -- formulas ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "batches"), SIZES)
def test_the_bubble_of_gpipe_and_1f1b_is_the_formula(ranks: int, batches: int) -> None:
    """1.8: (K-1)/(M+K-1), a speed-up of K/(1+(K-1)/M)."""
    for found in (schedules.gpipe(ranks, batches), schedules.one_f_one_b(ranks, batches)):
        at = clock(found, even)
        assert at.bubble == pytest.approx((ranks - 1) / (batches + ranks - 1))
        alone = 3.0 * batches * ranks
        assert alone / at.makespan == pytest.approx(ranks / (1 + (ranks - 1) / batches))


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (2, 3), (3, 2), (4, 1), (4, 2)])
def test_the_bubble_of_interleaved_falls_by_the_stages_of_a_rank(
    ranks: int, rounds: int, chunks: int
) -> None:
    """1.10: (K-1)/(vM) of what is worked."""
    batches = ranks * rounds
    at = clock(schedules.interleaved(ranks * chunks, batches, chunks), even)
    assert at.overhead == pytest.approx((ranks - 1) / (chunks * batches))


@pytest.mark.parametrize(("ranks", "batches"), [(2, 4), (3, 6), (4, 8), (8, 16), (4, 32)])
def test_zb1p_leaves_a_third_of_the_bubble_with_no_more_memory(ranks: int, batches: int) -> None:
    """1.10: idle (K-1)(F+I-W) where 1f1b has (K-1)(F+B)."""
    split, whole = (
        clock(make(ranks, batches), even) for make in (schedules.zb1p, schedules.one_f_one_b)
    )
    assert split.makespan - 3 * batches == ranks - 1
    assert whole.makespan - 3 * batches == 3 * (ranks - 1)
    assert max(split.in_flight) == max(whole.in_flight) == ranks


@pytest.mark.parametrize(("ranks", "batches"), [(2, 3), (2, 8), (3, 5), (4, 7), (4, 20)])
def test_zbv_never_waits_within_a_rank(ranks: int, batches: int) -> None:
    """1.10: no bubble at the memory of 1f1b, counted in halves of its stages."""
    at = clock(schedules.zbv(2 * ranks, batches), even)
    assert at.waits_within == pytest.approx(0.0)
    assert at.makespan == 6 * batches + ranks - 1
    assert max(at.in_flight_of_ranks) <= 2 * ranks


@pytest.mark.parametrize(("ranks", "batches"), SIZES)
def test_in_flight_is_what_the_schedules_promise(ranks: int, batches: int) -> None:
    assert clock(schedules.gpipe(ranks, batches)).in_flight == (batches,) * ranks
    assert clock(schedules.one_f_one_b(ranks, batches)).in_flight == tuple(
        min(batches, ranks - s) for s in range(ranks)
    )


# -- pipedream --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "warm_ups", "at_input"),
    [
        ((1,), (0,), 1),
        ((1, 1, 1, 1), (3, 2, 1, 0), 4),
        ((3, 1), (1, 0), 2),
        ((7, 1), (1, 0), 2),
        ((15, 1), (1, 0), 2),
        ((2, 1), (1, 0), 2),
        ((1, 2), (2, 0), 3),
        ((2, 2, 1), (2, 1, 0), 3),
        ((4, 3, 2), (2, 1, 0), 3),
    ],
)
def test_warm_up_and_noam_are_of_1_9(
    replicas: tuple[int, ...], warm_ups: tuple[int, ...], at_input: int
) -> None:
    """floor((R - 1 - ranks before) / r) let in before the first backward; NOAM = ceil(R / r_0)."""
    found = schedules.pipedream(replicas, 40)
    for stage, warm_up in enumerate(warm_ups):
        assert schedules.warm_up(replicas, stage) == warm_up
        for rank in found.rank_of[stage]:
            kinds = "".join(action.kind for action in found.ranks[rank])
            assert kinds.startswith("F" * (warm_up + 1) + "B")
    assert schedules.in_flight_at_input(replicas) == at_input
    assert clock(found).in_flight[0] == at_input
    assert clock(found).in_flight == tuple(warm_up + 1 for warm_up in warm_ups)


def test_a_straight_pipedream_delays_stage_k_by_n_minus_k() -> None:
    """The count of 1.9, ours: with stages 1 … n, a forward at stage k lacks the updates of the
    n-k batches before it."""
    stages = 4
    found = schedules.pipedream((1,) * stages, 12)
    for k in range(1, stages + 1):
        version = 0
        for kind, _, batch in found.ranks[k - 1]:
            if kind == "F":
                assert version == max(0, batch - (stages - k))
            version += kind == "U"
        assert version == 12


@pytest.mark.parametrize("replicas", [(1, 1, 1), (3, 1), (1, 2), (2, 1, 1), (2, 3), (4, 3, 2)])
def test_pipedream_keeps_every_rank_of_a_balanced_plan_at_work(replicas: tuple[int, ...]) -> None:
    """Time per batch in the long run = that of a stage over its replicas. Where replicas wait for
    each other at each update (`overlap=False`), up to half as much again."""

    def cost(action: Action) -> float:
        return replicas[action.stage] * even(action)

    def per_batch(overlap: bool) -> float:
        short, long = (
            clock(schedules.pipedream(replicas, n * 24, overlap=overlap), cost) for n in (4, 8)
        )
        return (long.makespan - short.makespan) / 96

    assert per_batch(True) == pytest.approx(3.0)
    assert 3.0 - 1e-9 <= per_batch(False) <= 4.5


@pytest.mark.parametrize(
    "replicas", [(1, 2, 1), (3, 2, 1), (1, 2, 3), (2, 3, 1), (2, 1, 2, 1), (1, 4, 1, 1)]
)
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_pipedream_with_uneven_replicas_is_as_fast_as_its_slowest_stage(
    replicas: tuple[int, ...], share: float
) -> None:
    """PipeDream's own number of batches in flight is too small for these: they ran at 2/5 to 4/5
    of it."""

    def cost(action: Action) -> float:
        quick = share if action.stage == len(replicas) - 1 else 1.0
        return replicas[action.stage] * even(action) * quick

    short, long = (clock(schedules.pipedream(replicas, n * 24), cost) for n in (4, 8))
    assert (long.makespan - short.makespan) / 96 == pytest.approx(3.0)


@given(replicas=REPLICAS)
def test_as_many_batches_are_in_flight_as_in_pipedream_or_more(replicas: list[int]) -> None:
    """floor((R - 1 - ranks before) / r), and more of them than the stage behind can hold."""
    held = [r * (schedules.warm_up(replicas, s) + 1) for s, r in enumerate(replicas)]
    for s, count in enumerate(replicas):
        before = sum(replicas[:s])
        assert schedules.warm_up(replicas, s) >= (sum(replicas) - 1 - before) // count
        assert s == len(replicas) - 1 or held[s] >= held[s + 1] + count


def test_what_a_rank_sends_goes_out_in_turn_and_what_it_keeps_goes_nowhere() -> None:
    """Two forwards of a unit each, whose results take five units to be sent."""
    order = schedules.gpipe(2, 2)
    at_once, in_turn = (
        clock(order, even, transfer=lambda a, b: 5.0, in_turn=each) for each in (False, True)
    )
    starts = [[span.start for span in at.spans[1][:2]] for at in (at_once, in_turn)]
    assert starts == [[6.0, 7.0], [6.0, 11.0]]
    alone = schedules.interleaved(2, 2, 2)
    assert clock(alone, even, transfer=lambda a, b: 5.0).makespan == clock(alone, even).makespan


def test_2bw_is_refused_where_two_versions_are_not_enough() -> None:
    with pytest.raises(InvalidInput, match="micro_batches: 3 or more"):
        schedules.two_bw((1, 1, 1), 2, 2)
    assert schedules.two_bw((1, 1, 1), 2).batches == 6


# -- properties -------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(ranks=st.integers(1, 7), batches=st.integers(1, 20), chunks=st.integers(1, 4))
def test_every_schedule_that_flushes_runs(ranks: int, batches: int, chunks: int) -> None:
    for found in flushing(ranks, batches, chunks):
        complete_and_in_order(found)
        clock(found, even, transfer=lambda a, b: 0.3)


@settings(max_examples=200, deadline=None)
@given(
    replicas=REPLICAS, batches=st.integers(1, 30), more=st.integers(0, 3), overlap=st.booleans(),
    slow=st.lists(st.integers(1, 9), min_size=5, max_size=5),
)  # fmt: skip
def test_pipedream_and_2bw_run_with_any_replicas(
    replicas: list[int], batches: int, more: int, overlap: bool, slow: list[int]
) -> None:
    every = schedules.depth(replicas) + more
    for found in (
        schedules.pipedream(replicas, batches, overlap=overlap),
        schedules.two_bw(replicas, -(-batches // 6), every),
    ):
        complete_and_in_order(found)
        at = clock(found, lambda a: slow[a.stage] * even(a), transfer=lambda a, b: 0.7)
        assert at.in_flight[0] <= schedules.in_flight_at_input(replicas)


@settings(max_examples=100, deadline=None)
@given(
    replicas=REPLICAS, runs=st.lists(st.integers(0, 11), min_size=1, max_size=4),
    first=st.integers(0, 9), late=st.booleans(),
)  # fmt: skip
def test_a_drained_lane_has_done_all_and_begins_anew(
    replicas: list[int], runs: list[int], first: int, late: bool
) -> None:
    for stage, count in enumerate(replicas):
        lanes = [
            schedules.Lane(replicas, stage, replica, first=first, version=5, late=late)
            for replica in range(count)
        ]
        at = first
        for run in runs:
            for lane in lanes:
                found = [a for _ in range(run) for a in lane.let_in()] + lane.drain()
                mine = [b for b in range(at, at + run) if b % count == lane.replica]
                assert [a.batch for a in found if a.kind == "F"] == mine
                assert [a.batch for a in found if a.kind == "B"] == mine
                assert sum(a.kind == "U" for a in found) == -(-run // count)
                assert lane.drain() == []
            at += run
        assert len({lane.version for lane in lanes}) == 1


def complete_and_in_order(found: Schedule) -> None:
    """Each batch once at each stage, forward first, on the same rank both ways."""
    where = {
        action: rank
        for rank, actions in enumerate(found.ranks)
        for action in actions
        if action.kind != "U"
    }
    assert len(where) == sum(a.kind != "U" for actions in found.ranks for a in actions)
    for stage in range(found.stages):
        for batch in range(found.batches):
            rank = where[Action("F", stage, batch)]
            assert rank == found.holder(stage, batch)
            back = "B" if Action("B", stage, batch) in where else "I"
            halves = [back] if back == "B" else ["I", "W"]
            order = [found.ranks[rank].index(Action(k, stage, batch)) for k in ("F", *halves)]
            assert order == sorted(order)
            assert all(where[Action(kind, stage, batch)] == rank for kind in halves)
    forwards = found.stages * found.batches
    assert sum(a.kind == "F" for a in where) == forwards
    assert sum(a.kind in "BI" for a in where) == forwards


# -- torch's own ------------------------------------------------------------------------------


def torchs_order(kind: type, ranks: int, batches: int, chunks: int = 1) -> list[list[Action]]:
    """What torch would do, without making its stages."""
    it = object.__new__(kind)
    it._num_stages = it.num_stages = ranks * chunks
    it._n_microbatches = batches
    it.pp_group_size, it.n_local_stages = ranks, chunks
    it.number_of_rounds = max(1, batches // ranks)
    it.microbatches_per_round = batches // it.number_of_rounds
    if hasattr(it, "_calculate_single_rank_operations"):
        order = {rank: it._calculate_single_rank_operations(rank) for rank in range(ranks)}
    else:
        order = it._get_pipeline_order()
    return [
        [
            Action(a.computation_type.value, a.stage_index, a.microbatch_index)
            for a in order[rank]
            if a is not None and a.computation_type.value in "FBIW"
        ]
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(("ranks", "batches"), [(2, 2), (2, 5), (3, 4), (4, 4), (4, 9)])
def test_1f1b_is_torchs(ranks: int, batches: int) -> None:
    """But for the last rank, where torch's table counts from 1 what its runtime does from 0."""
    theirs = torchs_order(torchs.Schedule1F1B, ranks, batches)
    ours = schedules.one_f_one_b(ranks, batches).ranks
    assert [list(each) for each in ours[:-1]] == theirs[:-1]
    assert [a.kind for a in ours[-1]] == [a.kind for a in theirs[-1]]


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize(("ranks", "batches"), [(2, 2), (2, 6), (3, 6), (4, 4), (4, 10), (4, 3)])
def test_interleaved_is_torchs(ranks: int, batches: int, chunks: int) -> None:
    theirs = torchs_order(torchs.ScheduleInterleaved1F1B, ranks, batches, chunks)
    ours = schedules.interleaved(ranks * chunks, batches, chunks).ranks
    assert [list(each) for each in ours] == theirs


@pytest.mark.parametrize(("ranks", "batches"), [(2, 2), (2, 6), (3, 6), (4, 4), (4, 8), (4, 2)])
def test_zb1p_is_torchs(ranks: int, batches: int) -> None:
    theirs = torchs_order(torchs.ScheduleInterleavedZeroBubble, ranks, batches)
    assert [list(each) for each in schedules.zb1p(ranks, batches).ranks] == theirs


@pytest.mark.parametrize(("ranks", "batches"), [(1, 3), (2, 2), (2, 6), (3, 5), (4, 8), (4, 2)])
def test_zbv_is_torchs(ranks: int, batches: int) -> None:
    theirs = torchs_order(torchs.ScheduleZBVZeroBubble, ranks, batches, 2)
    assert [list(each) for each in schedules.zbv(2 * ranks, batches).ranks] == theirs


# -- refused, and drawn -----------------------------------------------------------------------


def test_a_cyclic_schedule_is_refused_with_its_cycle() -> None:
    good = schedules.one_f_one_b(2, 2)
    first = (Action("F", 0, 0), Action("B", 0, 0), Action("F", 0, 1), Action("B", 0, 1))
    last = (Action("F", 1, 0), Action("F", 1, 1), Action("B", 1, 0), Action("B", 1, 1))
    with pytest.raises(InvalidInput) as caught:
        clock(dataclasses.replace(good, ranks=(first, last)))
    said = caught.value.message
    assert "rank 0 at B0 of stage 0 waits for B0 of stage 1 (rank 1)" in said
    assert "rank 1 at F1 of stage 1 waits for F1 of stage 0 (rank 0)" in said


def test_a_schedule_that_leaves_something_out_is_refused() -> None:
    good = schedules.gpipe(2, 1)
    with pytest.raises(InvalidInput, match="F0 of stage 0, which no rank does"):
        clock(dataclasses.replace(good, ranks=((), good.ranks[1])))


def test_the_table_shows_ranks_against_time() -> None:
    assert draw(clock(schedules.one_f_one_b(2, 3))) == (
        "1f1b: 2 stages on 2 ranks, 3 batches; idle 25.0%; in flight at most 2 1\n"
        "                 0  1  2  3  4  5  6  7  8  9  10 11\n"
        "rank 0  stage 0  F0 F1 .  .  B0 ── F2 B1 ── .  B2 ──\n"
        "rank 1  stage 1  .  F0 B0 ── F1 B1 ── F2 B2 ── .  .\n"
        "F forward, B backward, . idle"
    )


def test_a_wide_table_is_cut_to_the_terminal() -> None:
    at: Clock = clock(schedules.interleaved(8, 16, 2))
    lines = draw(at, 80).splitlines()
    assert all(len(line) <= 80 for line in lines[1:-1])
    assert lines[1].endswith(" …")


def test_the_page_of_a_step_shows_this_order() -> None:
    """docs/internals/pipedream-step.md: three straight stages, backward twice as long."""
    pages = Path(__file__).parents[2] / "docs" / "internals"
    page = (pages / "pipedream-step.md").read_text(encoding="utf-8")
    told = [line.partition(" …")[0] for line in page.splitlines() if line.startswith("rank ")]
    drawn = draw(clock(schedules.pipedream([1, 1, 1], 9), even))
    rows = [line for line in drawn.splitlines() if line.startswith("rank ")]
    assert len(told) == len(rows) == 3
    for line, row in zip(told, rows, strict=True):
        assert row.startswith(line) and line.count("F") > 4
