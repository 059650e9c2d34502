"""Claim: what the planner predicts is off by 15 percent or less, in the median over models,
strategies and numbers of workers.

Three models (VGG-16 scaled down; eight blocks alike; blocks whose activations shrink as in a
convolutional network) under each strategy that the planner knows how to time, on 2 and on 4
workers in network namespaces of their own on links of 100 Mbit/s (`train.sim`); compute is
simulated (`benchmarks/simulated.py`). The link is measured first; then each plan is made, run as
it says, and samples a second are compared.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time

import torch

from benchmarks.measure import ROOT, Row, table
from benchmarks.pipelines_vgg import profile as vgg
from benchmarks.simulated import FIXED, measured_link, task_of
from windlass.core.errors import InvalidInput
from windlass.train.gang import seated
from windlass.train.planning.choosing import answer
from windlass.train.planning.links import Link
from windlass.train.planning.plan import Plan
from windlass.train.planning.profile import BatchTimes, BlockCost, Profile
from windlass.train.planning.question import Question
from windlass.train.policies.schedules import depth
from windlass.train.registry import choose
from windlass.train.seat import Seat
from windlass.train.sim.netns import Links, unable

MBIT, WORKERS, GOAL = 100.0, (2, 4), 0.15
NAMES = ("allreduce", "zero1", "gpipe", "1f1b", "zb1p", "interleaved", "zbv", "pipedream", "2bw")
Cell = tuple[str, str, int, str, float, float]
"""Model, strategy, workers, the plan in short, predicted and measured samples a second."""


def measure(steps: int = 5) -> list[Row]:
    why = unable()
    if why:
        return [Row(f"prediction error: not measured: {why}", "", "", "", "", None)]
    cells: list[Cell] = []
    for workers in WORKERS:
        with Links(workers, mbit=MBIT) as links:
            words = [sys.executable, "-m", "benchmarks.planner_error", "rank", str(steps)]
            said = links.run(words, environment={"PYTHONPATH": str(ROOT)}, timeout_seconds=1500)
        cells += [tuple(each) for each in json.loads(said[0].splitlines()[-1])]
    return _rows(cells)


def _rows(cells: list[Cell]) -> list[Row]:
    errors = [_error(cell) for cell in cells]
    middle = statistics.median(errors)
    rows = [
        Row(
            f"predicted against measured samples a second, {len(cells)} plans of 3 models, "
            f"{len({cell[1] for cell in cells})} strategies and 2 or 4 workers (simulated "
            "compute): median error",
            f"{middle:.1%}", "", f"{min(errors):.1%}…{max(errors):.1%}", "at most 15%",
            middle <= GOAL,
        )
    ]  # fmt: skip
    for name in NAMES:
        mine = [cell for cell in cells if cell[1] == name]
        if mine:
            off = [_error(cell) for cell in mine]
            worst = max(mine, key=_error)
            rows.append(
                Row(
                    f"`{name}`: median error; the worst: {worst[0]}, {worst[2]} workers, "
                    f"{worst[3]}",
                    f"{statistics.median(off):.1%}", f"{worst[4]:.0f}/s, was {worst[5]:.0f}/s",
                    f"{min(off):.1%}…{max(off):.1%}", "", None,
                )
            )  # fmt: skip
    return rows


def _error(cell: Cell) -> float:
    return abs(cell[4] / cell[5] - 1)


# -- in each worker -------------------------------------------------------------------------------


def models() -> dict[str, Profile]:
    alike = [("block", 20.0, 40.0, 100_000, 1_000_000)] * 8
    shrinking = [
        ("conv", 12.0 + 5 * n, 24.0 + 10 * n, 400_000 >> (8 - n) // 2, 30_000 << (8 - n))
        for n in range(8, 0, -1)
    ]
    return {
        "VGG-16": vgg(),
        "eight alike": _profile(alike),
        "shrinking": _profile(shrinking),
    }


def _profile(costs: list[tuple[str, float, float, int, int]]) -> Profile:
    blocks = tuple(
        BlockCost(f"{name} {at}", forward, backward, out, weights, out)
        for at, (name, forward, backward, out, weights) in enumerate(costs)
    )
    edges = tuple((at, at + 1) for at in range(len(blocks) - 1))
    return Profile(32, blocks, edges, optimiser_factor=0.0)


def _measured_twice(profile: Profile) -> Profile:
    """With the times of half a batch."""
    share = FIXED + (1 - FIXED) / 2
    half = BatchTimes(
        profile.batch // 2, tuple(each.forward_ms * share for each in profile.blocks),
        tuple(each.backward_ms * share for each in profile.blocks),
    )  # fmt: skip
    return dataclasses.replace(profile, others=(half,))


def rank(steps: int) -> None:
    """One of the workers; the first prints what it measured."""
    with seated(device="cpu", seed=0, deadline_seconds=120) as seat:
        torch.set_num_threads(1)
        link = measured_link(seat)
        cells: list[Cell] = []
        for model, profile in models().items():
            for name in NAMES:
                found = _cell(seat, link, model, _measured_twice(profile), name, steps)
                if found is not None:
                    cells.append(found)
                    if seat.rank == 0:
                        print(*found, flush=True)
        if seat.rank == 0:
            print(json.dumps(cells))


def _cell(
    seat: Seat, link: Link, model: str, profile: Profile, name: str, steps: int
) -> Cell | None:
    question = Question(
        profile, seat.workers, link, in_order=True, by_clock=True, names=frozenset({name})
    )
    try:
        plan = Plan.of(question, answer(question))
    except InvalidInput:
        return None  # the planner has none, which all workers see alike
    assert plan.predicted is not None
    if len(plan.stages) == 1 and name in ("pipedream", "2bw"):
        return None  # data parallel by another name
    short = "-".join(map(str, plan.replicas))
    if "micro_batches" in plan.options:
        short += f" in {plan.options['micro_batches']}"
    rate = _rate(seat, profile, plan, steps)
    return model, name, seat.workers, short, plan.predicted, rate


def _rate(seat: Seat, profile: Profile, plan: Plan, steps: int) -> float:
    """Samples a second, from when the pipeline is full."""
    endless = plan.strategy in ("pipedream", "2bw")
    copies = plan.replicas[0] if not endless else 1
    batch = profile.batch * copies
    strategy = choose(plan.strategy, plan.settings() if len(plan.stages) > 1 else {})
    runner = strategy.runner(task_of(profile, batch), seat)
    share = strategy.share_of(seat)
    warm = 1
    if plan.strategy == "pipedream":
        warm, steps = depth(plan.replicas) + max(plan.replicas), 3 * steps
    elif plan.strategy == "2bw":
        warm = 2
    began = 0.0
    for at in range(warm + steps):
        if at == warm:
            began = time.perf_counter()
        data = runner.task.data
        runner.step(data.batch(data.at(at), *share))
    taken = time.perf_counter() - began
    runner.finish()
    runner.drain()
    runner.close()
    return batch * steps / taken


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(int(sys.argv[2]))
    else:
        print(table(measure(2 if "--quick" in sys.argv else 5)))
