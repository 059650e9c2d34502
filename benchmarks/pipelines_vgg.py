"""Claim: PipeDream on VGG-16 is faster than data parallel by what the planner predicted, within 15
percent.

The profile is the one that PipeDream's authors publish (`../shared/pipedream-profiles`, else the
copy beside the tests). Bytes and links are a hundredth of theirs (10 Gbit/s: 100 Mbit/s), times
are theirs, so the ratios are. Four workers in network namespaces of their own (`train.sim`);
compute is simulated (`benchmarks/simulated.py`). What the links do is measured first, both arms
are predicted from that by the clock, and then they take turns: `pipedream` as it was planned, and
`allreduce` with the same batch on each worker.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch

from benchmarks.measure import ROOT, Row, seconds, table
from benchmarks.simulated import chain, measured_link, scaled, task_of
from windlass.train.gang import seated
from windlass.train.planning.choosing import answer
from windlass.train.planning.plan import Plan
from windlass.train.planning.profile import Profile, read_profile
from windlass.train.planning.question import Question
from windlass.train.registry import choose
from windlass.train.runners.base import Runner
from windlass.train.seat import Seat
from windlass.train.sim.netns import Links, unable

WORKERS, SIZES, MBIT, GOAL = 4, 0.01, 100.0, 0.15
FILES = (
    ROOT.parent / "shared" / "pipedream-profiles" / "vgg16.txt",
    ROOT / "tests" / "train" / "profiles" / "vgg16.txt",
)
STEPS = {"pipedream": 24, "allreduce": 3}
WARM = {"pipedream": 12, "allreduce": 1}


def measure(turns: int = 5) -> list[Row]:
    why = unable() or ("" if any(file.exists() for file in FILES) else "no profile of VGG-16")
    if why:
        return [Row(f"PipeDream on VGG-16: not measured: {why}", "", "", "", "", None)]
    with Links(WORKERS, mbit=MBIT) as links:
        words = [sys.executable, "-m", "benchmarks.pipelines_vgg", "rank", str(turns)]
        said = links.run(words, environment={"PYTHONPATH": str(ROOT)}, timeout_seconds=900)
    return _rows(json.loads(said[0].splitlines()[-1]))


def _rows(found: dict[str, Any]) -> list[Row]:
    taken, predicted = found["taken"], found["predicted"]
    pairs = list(zip(taken["pipedream"], taken["allreduce"], strict=True))
    ratios = sorted(plain / piped for piped, plain in pairs)
    wanted = predicted["allreduce"] / predicted["pipedream"]
    middle = statistics.median(ratios)
    rows = [
        Row(
            f"VGG-16 scaled down, {WORKERS} workers, {found['link']}: `pipedream` "
            f"{found['replicas']} over `allreduce`, samples a second; measured, predicted "
            "(simulated compute)",
            f"{middle:.2f}x ({ratios[0]:.2f}…{ratios[-1]:.2f})", f"{wanted:.2f}x",
            f"{middle / wanted:.3f}x", "0.85…1.15x", abs(middle / wanted - 1) <= GOAL,
        )
    ]  # fmt: skip
    for name, times in taken.items():
        own = statistics.median(times)
        rows.append(
            Row(
                f"the same, `{name}`: seconds for a batch of 64; measured, predicted",
                seconds(own), seconds(predicted[name]), f"{own / predicted[name]:.3f}x", "", None,
            )
        )  # fmt: skip
    return rows


# -- in each worker -------------------------------------------------------------------------------


def profile() -> Profile:
    file = next(each for each in FILES if each.exists())
    return scaled(chain(read_profile(file)), 1.0, SIZES)


def rank(turns: int) -> None:
    """One of the workers; the first prints what it measured."""
    with seated(device="cpu", seed=0, deadline_seconds=120) as seat:
        torch.set_num_threads(1)
        vgg = profile()
        link = measured_link(seat)
        predicted: dict[str, float] = {}
        runners: dict[str, Runner] = {}
        replicas = ""
        for name in STEPS:
            question = Question(
                vgg, WORKERS, link, in_order=True, by_clock=True, names=frozenset({name})
            )
            plan = Plan.of(question, answer(question))
            assert plan.predicted is not None
            predicted[name] = vgg.batch / plan.predicted
            runners[name] = _runner(seat, vgg, name, plan)
            if name == "pipedream":
                replicas = "-".join(map(str, plan.replicas))
        taken = _turns(seat, runners, turns)
        if seat.rank == 0:
            found = {
                "taken": taken, "predicted": predicted, "replicas": replicas, "link": link.words,
            }  # fmt: skip
            print(json.dumps(found))


def _runner(seat: Seat, vgg: Profile, name: str, plan: Plan) -> Runner:
    batch = vgg.batch * (WORKERS if name == "allreduce" else 1)
    settings = plan.settings() if name == "pipedream" else {}
    return choose(name, settings).runner(task_of(vgg, batch), seat)


def _turns(seat: Seat, runners: dict[str, Runner], turns: int) -> dict[str, list[float]]:
    """Seconds for the samples of one batch, in turns; each turn of a pipeline begins full."""
    taken: dict[str, list[float]] = {name: [] for name in runners}
    steps = dict.fromkeys(runners, 0)
    for turn in range(turns):
        for name, runner in runners.items():
            began = 0.0
            for at in range(WARM[name] + STEPS[name]):
                if at == WARM[name]:
                    began = time.perf_counter()
                data = runner.task.data
                share = (seat.rank, seat.workers) if name == "allreduce" else (0, 1)
                runner.step(data.batch(data.at(steps[name]), *share))
                steps[name] += 1
            copies = WORKERS if name == "allreduce" else 1
            taken[name].append((time.perf_counter() - began) / STEPS[name] / copies)
            runner.finish()
            if name == "pipedream":
                runner.assemble()  # empties it: the other arm has the links to itself
            seat.meeting.gather(
                f"turn/{turn}/{name}", b"", [f"worker {n}" for n in range(WORKERS)],
                operation="taking turns", deadline_seconds=120,
            )  # fmt: skip
    for runner in runners.values():
        runner.drain()
        runner.close()
    return taken


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(int(sys.argv[2]))
    else:
        print(table(measure(2 if "--quick" in sys.argv else 5)))
