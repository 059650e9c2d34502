"""Section 3: what the clock knows beyond the equations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.planning.choosing import answer, candidates
from windlass.train.planning.drawing import drawn
from windlass.train.planning.links import Link, parse_link
from windlass.train.planning.plan import Plan
from windlass.train.planning.profile import BlockCost, Profile
from windlass.train.planning.question import Candidate, Question
from windlass.train.planning.timed import StageTimes, gathered_ms, replicated_ms, stashed_ms
from windlass.train.policies import schedules

FAST = parse_link("100GB")


def chain(*costs: tuple[float, int, int], batch: int = 8) -> Profile:
    """Of (milliseconds, activation bytes, parameter bytes); a third of the time is forward."""
    blocks = tuple(
        BlockCost(f"b{at}", time / 3, time * 2 / 3, out, weights, out)
        for at, (time, out, weights) in enumerate(costs)
    )
    return Profile(batch, blocks, tuple((at, at + 1) for at in range(len(blocks) - 1)))


def of(question: Question, strategy: str) -> Candidate:
    asked = replace(question, names=frozenset({strategy}))
    return next(each for each in candidates(asked) if each.strategy == strategy)


ALIKE = Question(chain(*[(12, 0, 100)] * 4), 2, FAST, shared=True, by_clock=True)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_of_stages_alike_the_clock_says_what_the_equation_says(name: str) -> None:
    equation = of(replace(ALIKE, by_clock=False), name)
    assert of(ALIKE, name).samples_per_s == pytest.approx(equation.samples_per_s)
    assert of(ALIKE, name).options == equation.options
    assert of(ALIKE, name).memory_bytes == equation.memory_bytes


def test_a_quick_stage_is_filled_quicker_than_the_equation_says() -> None:
    """gpipe of a stage of 9 and one of 3: (M + K - 1) times 9 is too much."""
    uneven = replace(ALIKE, profile=chain((9, 0, 100), (3, 0, 100)))
    found, equation = of(uneven, "gpipe"), of(replace(uneven, by_clock=False), "gpipe")
    assert found.samples_per_s == pytest.approx(8 * 1000 / (9 + 3 / 8))
    assert found.samples_per_s > equation.samples_per_s


def test_a_schedule_with_less_of_a_bubble_is_predicted_to_be_faster() -> None:
    rates = {name: of(ALIKE, name).samples_per_s for name in ("1f1b", "interleaved", "zb1p")}
    assert rates["1f1b"] < rates["interleaved"] and rates["1f1b"] < rates["zb1p"]
    alone = 8 * 1000 / 48
    assert all(rate < 2 * alone for rate in rates.values())


def test_activations_under_way_are_waited_for() -> None:
    """A backward of the first stage waits until its batch has been there and back."""
    slow = replace(
        ALIKE, profile=chain((12, 10**6, 100), (12, 10**6, 100)), link=parse_link("1GB")
    )
    assert of(slow, "1f1b").samples_per_s < of(replace(slow, link=FAST), "1f1b").samples_per_s


@pytest.mark.parametrize("name", ["interleaved", "zbv"])
def test_a_plan_with_two_stages_on_a_worker_can_be_saved_followed_and_drawn(
    name: str, tmp_path: Path
) -> None:
    question = replace(ALIKE, names=frozenset({name}))
    plan = Plan.of(question, answer(question))
    assert len(plan.stages) == 4 and plan.workers == 2 and plan.stages_each == 2
    found = Plan.load(plan.save(tmp_path / "plan.yaml"))
    assert registry.choose(name, found.settings()).name == name
    assert name in drawn(found) and "rank 1" in drawn(found)
    with pytest.raises(InvalidInput, match="2 stages on each"):
        plan.model_copy(update={"workers": 4}).check()


def test_zb1p_is_cut_as_1f1b_and_holds_as_much_as_its_first_worker() -> None:
    limited = replace(ALIKE, profile=chain(*[(12, 10**6, 100)] * 4), memory_bytes=10**9, link=FAST)
    whole, split = of(limited, "1f1b"), of(limited, "zb1p")
    assert [each.blocks for each in split.stages] == [each.blocks for each in whole.stages]
    assert {each.memory_bytes for each in split.stages} == {whole.stages[0].memory_bytes}


def test_without_the_clock_only_who_asks_for_them_by_name_gets_them() -> None:
    plain = replace(ALIKE, by_clock=False)
    names = {each.strategy for each in candidates(plain)}
    assert not names & {"zb1p", "zbv", "interleaved"}
    assert of(plain, "zb1p").strategy == "zb1p"


# -- data parallel ----------------------------------------------------------------------------


def test_a_gradient_is_sent_when_backward_has_made_it() -> None:
    """One large block at the end of the model: its sync begins after its own backward."""
    link = Link(1e9, "1GB", sync_factor=2.0)
    profile = chain((30, 0, 1000), (30, 0, 1000), (3, 0, 100_000_000))
    question = Question(profile, 2, link, by_clock=True)
    sync = link.sync_ms(100_000_000, 2)
    wanted = 63 / 3 + 3 * 2 / 3 + sync + link.sync_ms(2000, 2)
    found = replicated_ms(profile, lambda size: link.sync_ms(size, 2))
    assert found == pytest.approx(wanted)
    assert of(question, "allreduce").samples_per_s == pytest.approx(16 * 1000 / wanted)
    quick = replace(question, link=FAST)
    assert of(quick, "allreduce").samples_per_s == pytest.approx(16 * 1000 / 63, rel=0.1)


def test_sharded_optimisers_gather_as_long_as_the_fullest_worker_takes() -> None:
    """Of 3, 2 and 1 bytes on two workers each has 3; the first alone has the largest block."""
    link = Link(1e3, "1kB")
    assert gathered_ms(chain((1, 0, 2), (1, 0, 3), (1, 0, 1)), 2, link) == pytest.approx(3.0)
    assert gathered_ms(chain((1, 0, 9), (1, 0, 1)), 3, link) == pytest.approx(18.0)
    question = Question(
        chain((30, 0, 4 * 10**6), (3, 0, 10**6)), 2, parse_link("1GB"), by_clock=True
    )
    assert of(question, "zero1").samples_per_s < of(question, "allreduce").samples_per_s


# -- without a flush --------------------------------------------------------------------------


def test_a_full_pipeline_is_as_fast_as_its_slowest_stage() -> None:
    question = Question(chain((9, 0, 100), (3, 0, 100)), 2, FAST, by_clock=True)
    for stages in (
        [StageTimes(3, 6), StageTimes(1, 2)],
        [StageTimes(3, 6, 3), StageTimes(1, 2)],
        [StageTimes(1, 2), StageTimes(2, 4, 2), StageTimes(1, 2)],
    ):
        wanted = max((each.forward_ms + each.backward_ms) / each.replicas for each in stages)
        assert stashed_ms(question, stages) == pytest.approx(wanted)


def test_replicas_that_do_not_overlap_wait_for_each_other() -> None:
    question = Question(chain((9, 0, 100), (3, 0, 100)), 3, FAST, overlap=False, by_clock=True)
    stages = [StageTimes(2, 4, 2, sync_ms=3), StageTimes(1, 2)]
    assert stashed_ms(question, stages) >= (6 + 3) / 2


def test_an_uneven_pipeline_is_charged_for_what_it_has_in_flight() -> None:
    """1-2-1 keeps five batches at its input, and a limit of memory counts them."""
    profile = chain((10, 10, 10**6), (20, 10, 10**8), (10, 10, 10**8))
    question = Question(profile, 4, parse_link("1Gbit"), names=frozenset({"pipedream"}))
    found = of(question, "pipedream")
    for stage, cost in enumerate(found.stages):
        weights = sum(profile.blocks[at].parameter_bytes for at in cost.blocks)
        saved = sum(profile.blocks[at].saved_bytes for at in cost.blocks)
        warm = schedules.warm_up(found.replicas, stage)
        assert cost.memory_bytes == (warm + 3) * weights + (warm + 1) * saved
    tight = replace(question, memory_bytes=int(0.9 * found.memory_bytes))
    there = [each for each in candidates(tight) if each.strategy == "pipedream"]
    assert all(each.fits(tight) for each in there), "what is offered fits, or nothing is"
