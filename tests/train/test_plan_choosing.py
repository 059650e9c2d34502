"""Section 3: what is chosen among strategies, on whose memory, and what it is told beside."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput, NeverFits
from windlass.train.planning.choosing import answer, candidates
from windlass.train.planning.counting import WORTH, how_many, parse_counts
from windlass.train.planning.drawing import drawn
from windlass.train.planning.links import parse_link
from windlass.train.planning.plan import Plan
from windlass.train.planning.problem import problem_of
from windlass.train.planning.profile import BatchTimes, BlockCost, Profile
from windlass.train.planning.programme import solve
from windlass.train.planning.question import Candidate, Question
from windlass.train.planning.served import served_rate
from windlass.train.planning.states import states_of
from windlass.train.testing.sweep import random_profile

LINK = parse_link("10Gbit")


def chain(*costs: tuple[float, int, int], batch: int = 8, factor: float = 1.0) -> Profile:
    """Of (milliseconds, activation bytes, parameter bytes)."""
    blocks = tuple(
        BlockCost(f"b{at}", time / 3, time * 2 / 3, out, weights, out)
        for at, (time, out, weights) in enumerate(costs)
    )
    edges = tuple((at, at + 1) for at in range(len(blocks) - 1))
    return Profile(batch, blocks, edges, factor)


VGG_LIKE = chain(
    (150, 10**8, 10**5), (100, 5 * 10**7, 10**6), (60, 10**6, 10**7), (5, 10**5, 4 * 10**8)
)


def of(question: Question, strategy: str) -> Candidate:
    return next(each for each in candidates(question) if each.strategy == strategy)


def random_question(seed: int) -> Question:
    draw = random.Random(seed)
    costs = [
        (draw.uniform(0, 50), draw.choice((0, 10**5, 10**7)), draw.choice((0, 10**6, 10**8)))
        for _ in range(draw.randint(1, 9))
    ]
    profile = chain((1.0, 10, 10), *costs, batch=draw.choice((1, 8, 64)))
    return Question(
        profile, draw.choice((1, 2, 3, 4, 6, 8, 16)), parse_link(draw.choice(("1Gbit", "40Gbit"))),
        draw.random() < 0.5, shared=draw.random() < 0.5, in_order=draw.random() < 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_it_is_never_worse_than_data_parallel(seed: int) -> None:
    question = random_question(seed)
    found = answer(question)
    assert found.chosen.samples_per_s >= found.data_parallel.samples_per_s
    plan = Plan.of(question, found)
    assert plan.ratio_to_dp is not None and plan.ratio_to_dp >= 1
    assert sum(plan.replicas) == question.workers
    for each in candidates(question):
        assert sum(each.replicas) == question.workers
        assert sorted(at for stage in each.stages for at in stage.blocks) == list(
            range(len(question.profile.blocks))
        )


@pytest.mark.parametrize("seed", range(40))
def test_without_a_limit_a_saved_profile_gets_the_best_plan_of_the_programme(seed: int) -> None:
    """Flushes and shards cost something: nothing beats it but what is as fast and simpler."""
    draw = random.Random(300 + seed)
    profile = random_profile(draw, 12)
    workers = draw.choice((1, 2, 4, 5, 8, 16))
    link = parse_link(draw.choice(("1Gbit", "10Gbit", "80Gbit")))
    overlap = draw.random() < 0.5
    problem = problem_of(states_of(profile), workers, link, overlap)
    pieces = solve(problem)
    assert pieces is not None
    found = answer(Question(profile, workers, link, overlap)).chosen
    assert found.samples_per_s == pytest.approx(
        1000 * profile.batch / problem.bottleneck_ms(pieces), rel=1e-9
    )
    if len(pieces) > 1:
        assert found.replicas == tuple(piece.replicas for piece in pieces)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_chosen_fits_and_what_does_not_is_told(seed: int) -> None:
    question = random_question(100 + seed)
    most = answer(question).chosen.memory_bytes
    tight = replace(question, memory_bytes=max(1, int(most * 0.6)))
    try:
        found = answer(tight)
    except NeverFits as err:
        assert "nothing fits in" in err.message and "too much" in err.message
        roomy = replace(question, memory_bytes=tight.memory_bytes + err.details["short_bytes"])
        assert answer(roomy).chosen.fits(roomy), "with so much more something does"
    else:
        assert found.chosen.memory_bytes <= tight.memory_bytes


def test_on_equal_speed_the_simplest_is_chosen() -> None:
    """No parameters to sync and nothing to send: everything could be as fast."""
    found = answer(Question(chain((10, 0, 0), (10, 0, 0)), 2, LINK))
    assert found.chosen.strategy == "allreduce"
    assert found.runner_up is not None and found.runner_up.family != "data"


def test_data_parallel_times_are_those_of_the_equations() -> None:
    question = Question(VGG_LIKE, 4, LINK)
    weights = VGG_LIKE.parameter_bytes
    sync = 4 * 3 / 4 * weights / 1.25e9 * 1000
    assert of(question, "allreduce").samples_per_s == pytest.approx(4 * 8 * 1000 / max(315, sync))
    slow = replace(question, overlap=False)
    assert of(slow, "allreduce").samples_per_s == pytest.approx(4 * 8 * 1000 / (315 + sync))
    assert of(slow, "fsdp").samples_per_s == pytest.approx(4 * 8 * 1000 / (315 + 1.5 * sync))
    assert of(slow, "zero1").samples_per_s == of(slow, "allreduce").samples_per_s


def test_data_parallel_memory_is_that_of_the_zero_paper() -> None:
    """Adam in float32: 16 bytes for each parameter, over p where it is sharded."""
    profile = chain((1, 0, 4000), (1, 0, 4000), factor=2.0)  # 2000 parameters
    question = Question(profile, 4, LINK)
    assert of(question, "allreduce").memory_bytes == 16 * 2000
    assert of(question, "zero1").memory_bytes == 8 * 2000 + 8 * 2000 / 4
    assert of(question, "fsdp").memory_bytes == 16 * 2000 / 4 + 2 * 4000


def test_a_flush_takes_as_long_as_its_bubble_says() -> None:
    """(M + K - 1) of the slowest stage, M micro-batches."""
    question = Question(chain((12, 0, 100), (12, 0, 100), batch=8), 2, LINK, shared=True)
    found = of(question, "gpipe")
    assert found.options["micro_batches"] == 8
    assert found.samples_per_s == pytest.approx(8 * 1000 / ((8 + 1) * 12 / 8))
    assert found.stages[0].memory_bytes == 3 * 100 + 0


def test_one_forward_one_backward_keeps_less_than_gpipe() -> None:
    profile = chain(*[(10, 10**6, 100)] * 4, batch=16)
    question = Question(profile, 4, parse_link("100GB"), memory_bytes=10**9, shared=True)
    flights = {
        each.strategy: [round(s.memory_bytes / 1e6, 2) for s in each.stages]
        for each in candidates(question)
        if each.family == "flush" and not each.options.get("recompute")
        and each.options["replicas"] == 1
    }  # fmt: skip
    assert flights == {"gpipe": [1.0] * 4, "1f1b": [0.25, 0.19, 0.13, 0.06]}


def test_recomputation_is_taken_when_only_it_fits() -> None:
    profile = Profile(
        16, tuple(BlockCost(f"b{at}", 5, 5, 10**4, 100, 10**7) for at in range(4)),
        tuple((at, at + 1) for at in range(3)),
    )  # fmt: skip
    question = Question(
        profile, 2, LINK, memory_bytes=2 * 10**6, shared=True, names=frozenset({"gpipe"})
    )
    assert answer(question).chosen.options["recompute"] is True


def test_two_versions_hold_less_than_one_for_each_batch_in_flight() -> None:
    question = Question(VGG_LIKE, 4, LINK, memory_bytes=10**12)
    pipedream, two = of(question, "pipedream"), of(question, "2bw")
    assert two.replicas == pipedream.replicas
    assert two.samples_per_s == pytest.approx(pipedream.samples_per_s)
    assert two.stages[0].memory_bytes < pipedream.stages[0].memory_bytes


def test_strategies_that_are_not_asked_for_are_not_chosen() -> None:
    question = Question(VGG_LIKE, 4, LINK, names=frozenset({"allreduce", "fsdp"}))
    assert answer(question).chosen.strategy == "allreduce"
    with pytest.raises(InvalidInput, match="hogwild: the planner has no plan with these"):
        answer(replace(question, names=frozenset({"hogwild"})))


def test_a_shared_batch_is_divided_among_workers() -> None:
    """A second batch shows that half a batch takes more than half the time."""
    blocks = (BlockCost("a", 10.0, 10.0, 0, 0, 0),)
    others = (BatchTimes(4, (7.5,), (7.5,)),)
    question = Question(Profile(8, blocks, (), others=others), 2, LINK, shared=True)
    assert of(question, "allreduce").samples_per_s == pytest.approx(8 * 1000 / 15)


def test_a_fast_link_within_nodes_changes_the_plan() -> None:
    """Four nodes of four: between nodes as few bytes as can be."""
    inside = parse_link("400Gbit")
    flat = Question(VGG_LIKE, 16, parse_link("1Gbit"))
    nested = replace(flat, per_node=4, node_link=inside)
    assert answer(nested).chosen.samples_per_s >= answer(flat).chosen.samples_per_s
    assert of(nested, "allreduce").samples_per_s > of(flat, "allreduce").samples_per_s
    alone = Question(VGG_LIKE, 4, parse_link("1Gbit"), per_node=4, node_link=inside)
    near = Question(VGG_LIKE, 4, inside)
    assert answer(alone).chosen.samples_per_s == answer(near).chosen.samples_per_s
    with pytest.raises(InvalidInput, match="6 workers make no whole nodes of 4"):
        replace(nested, workers=6)
    with pytest.raises(InvalidInput, match="both or neither"):
        replace(nested, node_link=None)


def test_nothing_to_plan_is_said() -> None:
    with pytest.raises(InvalidInput, match="every block takes 0 ms"):
        Question(chain((0, 1, 1)), 2, LINK)
    with pytest.raises(InvalidInput, match="workers: from 1 to"):
        Question(VGG_LIKE, 0, LINK)


def test_that_one_worker_would_do_better_is_said() -> None:
    found = answer(Question(chain((1, 10**9, 10**9)), 2, parse_link("1Mbit")))
    assert any("one worker alone is faster" in note for note in found.notes)


# -- how many ---------------------------------------------------------------------------------


def test_more_stops_paying_where_the_link_is_full() -> None:
    profile = chain((100, 10**9, 10**7), (100, 10**9, 10**7))
    found = how_many(Question(profile, 1, parse_link("1Gbit")), range(1, 17), [])
    rates = {point.workers: point.samples_per_s for point in found.points}
    enough = found.enough.workers
    assert 1 < enough <= 16
    for more in range(enough + 1, 17):
        assert rates[more] < rates[enough] + WORTH * found.alone * (more - enough)


def test_servers_pay_until_workers_are_what_is_missing() -> None:
    question = Question(chain((100, 0, 10**8)), 1, parse_link("10Gbit"))
    found = how_many(question, range(1, 9), range(1, 5))
    assert len(found.points) == 8 * 5, "and the best without any"
    rates = {(p.workers, p.servers): p.samples_per_s for p in found.points}
    assert rates[8, 2] > rates[8, 1] and rates[1, 4] == rates[1, 1]
    assert rates[4, 1] == pytest.approx(rates[8, 1]), "one server's link is full"
    assert found.enough.servers >= 2


def test_numbers_that_do_not_fit_are_left_out() -> None:
    question = Question(VGG_LIKE, 1, LINK, memory_bytes=1_300_000_000)
    found = how_many(question, range(1, 5), [])
    assert [point.workers for point in found.points] == [2, 3, 4]
    with pytest.raises(NeverFits):
        how_many(replace(question, memory_bytes=1000), range(1, 5), [1])
    nodes = replace(question, memory_bytes=None, per_node=2, node_link=LINK)
    assert [point.workers for point in how_many(nodes, range(1, 7), []).points] == [1, 2, 4, 6]


def test_a_server_moves_everyones_parameters() -> None:
    """2 w a worker, over the links of s servers."""
    question = Question(chain((10, 0, 10**8)), 8, parse_link("1GB"), overlap=False)
    assert served_rate(question, 2) == pytest.approx(8 * 8 * 1000 / (10 + 200 * 4))


def test_counts_are_read() -> None:
    assert parse_counts("8", "--workers", 100) == [8]
    assert parse_counts("1..4", "--workers", 100) == [1, 2, 3, 4]
    many = parse_counts("1..1000", "--workers", 1000)
    assert many[0] == 1 and many[-1] == 1000 and len(many) <= 42
    for text in ("0", "4..2", "1..101", "a", "1-4", "1..", "-1"):
        with pytest.raises(InvalidInput, match="--workers: a number from 1 to 100"):
            parse_counts(text, "--workers", 100)


# -- the file ---------------------------------------------------------------------------------


def a_plan(workers: int = 4) -> Plan:
    question = Question(VGG_LIKE, workers, LINK)
    return Plan.of(question, answer(question))


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    plan = a_plan()
    found = Plan.load(plan.save(tmp_path / "plan.yaml"))
    assert (found.strategy, found.replicas, found.blocks) == (
        plan.strategy, plan.replicas, plan.blocks,
    )  # fmt: skip
    assert [stage.blocks for stage in found.stages] == [stage.blocks for stage in plan.stages]
    assert found.predicted == pytest.approx(plan.predicted, rel=1e-5)
    assert found.runner_up is not None and found.runner_up.why


def test_a_plan_can_be_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "windlass_plan: 1\nstrategy: pipedream\nworkers: 3\n"
        "stages:\n- blocks: [0, 3]\n  replicas: 2\n- blocks: [4, 5]\n"
    )
    found = Plan.load(path)
    assert found.replicas == (2, 1) and found.predicted is None
    assert "pipedream 2-1 on 3 workers" in str(found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("windlass_plan: 1", "windlass_plan: 2", "windlass_plan: .*less than or equal to 1"),
        ("windlass_plan: 1\n", "", "windlass_plan: 1 .missing"),
        ("workers: 4", "workers: four", "workers: .*integer.*'four'"),
        ("workers: 4", "workers: 5", "the replicas of all stages are the 5 workers"),
        ("workers: 4", "workers: 4\nworkers: 4", "'workers' is there twice .line"),
        ("workers: 4", "wokers: 4", "workers: Field required|wokers: Extra"),
        ("blocks: [0,", "blocks: [1,", r"stages\[0\].blocks: from 0 to 0 or more.*found \[1,"),
        ("blocks: [0, ", "blocks: [0, 9", "stages"),
        ("strategy: pipedream", "strategy: [", "not YAML"),
        ("strategy: pipedream", "strategy: 7", "strategy: .*string"),
    ],
)
def test_a_plan_that_was_edited_wrongly_names_the_field(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    path = a_plan().save(tmp_path / "plan.yaml")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidInput, match=words) as caught:
        Plan.load(path)
    assert str(path) in caught.value.message


def test_the_options_of_a_strategy_are_what_the_stages_say() -> None:
    plan = a_plan()
    assert plan.settings() == {"cuts": (plan.stages[1].blocks[0],), "replicas": plan.replicas}
    question = Question(VGG_LIKE, 4, LINK, names=frozenset({"gpipe"}))
    copied = Plan.of(question, answer(question))
    assert copied.settings()["replicas"] == copied.stages[0].replicas
    uneven = [
        stage.model_copy(update={"replicas": at + 1}) for at, stage in enumerate(plan.stages)
    ]
    with pytest.raises(InvalidInput, match="gpipe is copied as a whole"):
        plan.model_copy(update={"strategy": "gpipe", "stages": tuple(uneven)}).check()


def test_a_graph_is_put_in_an_order_in_which_stages_follow_each_other() -> None:
    """Stages need not be stretches of the profile's own order."""
    blocks = tuple(
        BlockCost(name, time, time, out, 10**8, 0)
        for name, time, out in (
            ("in", 1, 10),
            ("long", 40, 10),
            ("side", 1, 10**9),
            ("end", 40, 1),
        )
    )
    profile = Profile(1, blocks, ((0, 1), (0, 2), (1, 3), (2, 3)))
    question = Question(profile, 2, parse_link("1Gbit"), names=frozenset({"pipedream"}))
    plan = Plan.of(question, answer(question))
    assert plan.stages[0].blocks[1] + 1 == plan.stages[1].blocks[0]
    assert sorted(plan.blocks) == sorted(block.name for block in blocks)
    first = plan.blocks[: plan.stages[0].blocks[1] + 1]
    assert "side" not in first, "what it gives would have to cross"


def test_a_pipeline_is_drawn_and_what_is_none_is_refused() -> None:
    question = Question(VGG_LIKE, 4, LINK)
    told = drawn(Plan.of(question, answer(question)))
    assert "rank 3" in told and "F0" in told and "B0" in told
    flush = Question(VGG_LIKE, 2, LINK, names=frozenset({"gpipe"}))
    assert "gpipe" in drawn(Plan.of(flush, answer(flush)))
    with pytest.raises(InvalidInput, match="allreduce is not a pipeline"):
        drawn(Plan.of(question, answer(replace(question, names=frozenset({"allreduce"})))))
