"""Section 3 for layers that are cut: what the planner says of `tensor` is what one computes by
hand, and it takes it where it wins."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.planning.choosing import answer, candidates
from windlass.train.planning.links import Link, parse_link
from windlass.train.planning.measuring import measure
from windlass.train.planning.plan import Plan, describe
from windlass.train.planning.profile import BatchTimes, BlockCost, Profile, read_profile
from windlass.train.planning.question import Candidate, Question
from windlass.train.testing.tasks import regression

LINK = parse_link("1GB")  # a millisecond for a megabyte
CUT = BlockCost("a", 10, 20, 0, 10_000_000, 0, 24, 8_000_000, 1_000_000, 2)
WHOLE = BlockCost("b", 2, 4, 0, 1_000_000, 0)
PROFILE = Profile(
    8, (CUT, WHOLE), ((0, 1),), 1.0, (BatchTimes(2, (10, 2), (20, 4)),), slices=12
)  # fmt: skip
"""A batch of 2 takes as long as one of 8: small batches do not fill the device."""
BY_DATA = frozenset({"allreduce", "zero1", "fsdp", "tensor"})


def tensors(question: Question) -> dict[int, Candidate]:
    found = [each for each in candidates(question) if each.strategy == "tensor"]
    return {each.options["size"]: each for each in found}


def test_times_and_memory_are_those_that_one_computes_by_hand() -> None:
    found = tensors(Question(PROFILE, 4, LINK, overlap=False, shared=True))
    assert sorted(found) == [2, 4], "what divides the workers and the layers"
    # Of 30 ms 24 are cut by 4: 12 ms; a sum of 1 MB over 4 crosses 4 x 3/4 times: 3 ms; and 6 ms.
    assert found[4].samples_per_s == pytest.approx(8 * 1000 / (12 + 3 + 6))
    # 2 copies with 4 samples each: 18 ms, half of 1 MB 2 times: 1 ms, 6 ms; then 7 MB 2 times.
    assert found[2].samples_per_s == pytest.approx(8 * 1000 / (18 + 1 + 6 + 14))
    assert found[2].replicas == (2,) and found[4].replicas == (1,)
    assert found[4].memory_bytes == 3 * (2_000_000 + 2_000_000 + 1_000_000)
    assert found[2].memory_bytes == 3 * (2_000_000 + 4_000_000 + 1_000_000)


def test_each_sum_costs_its_latency() -> None:
    slow = Link(1e9, "slow", latency_s=0.001)
    found = tensors(Question(PROFILE, 4, slow, overlap=False, shared=True))
    assert found[4].samples_per_s == pytest.approx(8 * 1000 / (21 + 2 * 2 * 3))


def test_neighbours_on_a_node_sum_over_its_link() -> None:
    question = Question(
        PROFILE, 4, parse_link("1MB"), overlap=False, shared=True, per_node=2,
        node_link=LINK,
    )  # fmt: skip
    found = tensors(question)[2]
    assert found.samples_per_s == pytest.approx(8 * 1000 / (18 + 1 + 6 + 14_000))


def test_it_is_chosen_where_small_shares_take_as_long_as_large_ones() -> None:
    question = Question(PROFILE, 4, LINK, overlap=False, shared=True, names=BY_DATA)
    found = answer(question)
    assert (found.chosen.strategy, found.chosen.options) == ("tensor", {"size": 4})
    assert found.runner_up is not None and found.runner_up.strategy == "allreduce"
    plan = Plan.of(question, found)
    assert plan.slices == 4 and plan.settings() == {"size": 4}
    assert plan.ratio_to_dp == pytest.approx((6 + 30 + 33) / 21)
    table = "\n".join(describe(plan))
    assert "SLICES" in table and "tensor on 4 workers" in table and "size=4" in table
    linear = replace(question, profile=replace(PROFILE, others=()), link=parse_link("100GB"))
    assert answer(linear).chosen.strategy == "allreduce", "a quarter takes a quarter"


def test_it_is_chosen_where_no_other_way_fits() -> None:
    profile = Profile(8, (CUT,), (), 1.0, slices=12)
    question = Question(profile, 4, LINK, shared=True, memory_bytes=20_000_000)
    found = answer(question)
    assert found.chosen.strategy == "tensor" and found.chosen.memory_bytes == 12_000_000
    assert "more than there is" in found.why


def test_a_pipeline_whose_stages_are_cut_is_a_pipeline_of_quicker_stages() -> None:
    question = Question(PROFILE, 4, LINK, overlap=False, shared=True, names=frozenset({"gpipe"}))
    found = next(each for each in candidates(question) if each.options.get("tensor") == 2)
    # 2 stages on 2 workers each, one batch: twice the slowest stage, 18 ms and 2 of sums.
    assert found.options["micro_batches"] == 1 and found.replicas == (1, 1)
    assert found.samples_per_s == pytest.approx(8 * 1000 / (2 * 20))
    best = answer(question).chosen
    plan = Plan.of(question, answer(question))
    assert sum(plan.replicas) * plan.slices == 4 and best.samples_per_s >= found.samples_per_s
    told = replace(answer(question), chosen=found)
    settings = Plan.of(question, told).settings()
    assert settings["tensor"] == 2 and settings["cuts"] == (1,) and settings["replicas"] == 1
    wrong = Plan.of(question, told).model_copy(update={"workers": 3})
    with pytest.raises(InvalidInput, match="2 of them for each replica"):
        wrong.check()


def test_a_model_is_measured_with_what_can_be_cut_and_a_profile_keeps_it(tmp_path: object) -> None:
    model = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 2)).double()
    task = regression(12, 6, model=model)
    found = measure(task)
    assert found.slices == 24
    first, middle, last = found.blocks
    assert (first.cut_bytes, last.cut_bytes) == ((4 * 24 + 24) * 8, 24 * 2 * 8)
    assert (first.sums, middle.sums, last.sums) == (0, 0, 1), "nothing before the first learns"
    assert last.summed_bytes == 6 * 2 * 8
    assert 0 < first.cut_ms <= first.time_ms and middle.cut_ms == 0
    where = found.save(f"{tmp_path}/profile.json")
    assert read_profile(where) == found
    question = Question(found, 2, LINK, shared=True, in_order=True, names=frozenset({"tensor"}))
    plan = Plan.of(question, answer(question))
    registry.choose(plan.strategy, plan.settings()).check(task, 2, 0)
    alone = regression(12, 6, model=nn.Sequential(nn.Linear(4, 2)).double())
    assert measure(alone).slices == 0 and torch.is_grad_enabled()


def test_a_part_larger_than_the_whole_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"blocks\[0\].cut_ms"):
        Profile(1, (replace(CUT, cut_ms=31),), ())
