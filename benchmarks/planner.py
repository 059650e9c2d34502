"""Claim: VGG-16 is planned on 16 workers within 5 s, its published plans come out, and on small
graphs the plan is within 10 percent of the best of all plans there are (N <= 8 blocks, M <= 4).

The profile of VGG-16 is the one that PipeDream's authors publish. The sweep tries every way to cut
random graphs with branches and skips and every share of the workers; times are those of the
equations on both sides, so this says how good the search is, not how true the model.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time

from benchmarks.measure import ROOT, Row, milliseconds, script, seconds
from windlass.train.planning.choosing import answer
from windlass.train.planning.links import parse_link
from windlass.train.planning.problem import problem_of
from windlass.train.planning.profile import Profile, read_profile
from windlass.train.planning.programme import solve
from windlass.train.planning.question import Question
from windlass.train.planning.states import states_of
from windlass.train.testing.sweep import every_plan, random_profile, slowest_ms

VGG = ROOT / "tests" / "train" / "profiles" / "vgg16.txt"
PUBLISHED = {4: ((3, 1), 3.92), 8: ((7, 1), 7.57), 16: ((15, 1), 15.23)}
CASES = 150


def measure() -> list[Row]:
    profile = read_profile(VGG)
    return [_command(), *_times(profile), *_published(profile), _sweep()]


def _command() -> Row:
    """From the shell to the answer."""
    words = ["plan", "--profile", str(VGG), "--workers", "16", "--link", "10Gbit", "-o", "json"]
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "windlass.cli.main", *words], check=True, capture_output=True
        )
        taken.append(time.perf_counter() - started)
    middle = sorted(taken)[2]
    return Row(
        "`windlass plan --profile vgg16.txt --workers 16`, from the shell to the answer",
        seconds(middle), "", "", "at most 5 s", middle <= 5,
    )  # fmt: skip


def _times(profile: Profile) -> list[Row]:
    rows = []
    for workers in (16, 256, 4096):
        question = Question(profile, workers, parse_link("10Gbit"))
        started = time.process_time()
        answer(question)
        taken = time.process_time() - started
        rows.append(
            Row(
                f"every strategy for VGG-16 on {workers:,} workers (CPU time)",
                milliseconds(taken), "", "", "at most 5 s", taken <= 5,
            )
        )  # fmt: skip
    wide = random_profile(random.Random(7), 400)
    started = time.process_time()
    states = states_of(wide)
    solve(problem_of(states, 16, parse_link("10Gbit"), True))
    taken = time.process_time() - started
    rows.append(
        Row(
            f"PipeDream's programme on a graph of {len(wide.blocks)} blocks and many branches, "
            f"{states.count:,} cuts tried, 16 workers (CPU time)",
            seconds(taken), "", "", "told", None,
        )
    )  # fmt: skip
    return rows


def _published(profile: Profile) -> list[Row]:
    rows = []
    for workers, (replicas, speed_up) in PUBLISHED.items():
        found = answer(Question(profile, workers, parse_link("10Gbit"))).chosen
        mine = found.samples_per_s / (1000 * profile.batch / profile.time_ms)
        same = found.replicas == replicas and abs(mine - speed_up) < 0.005
        rows.append(
            Row(
                f"VGG-16 on {workers} workers at 10 Gbit/s: stages, and speed over one worker",
                f"{'-'.join(map(str, found.replicas))}, {mine:.2f}x",
                f"{'-'.join(map(str, replicas))}, {speed_up:.2f}x", "", "the published plan", same,
            )
        )  # fmt: skip
    return rows


def _sweep() -> Row:
    draw = random.Random(0)
    worst, plans = 1.0, 0
    for _ in range(CASES):
        workers = draw.randint(1, 4)
        profile = random_profile(draw, 7)
        link = parse_link(draw.choice(("200Mbit", "1Gbit", "10Gbit", "80Gbit")))
        overlap = draw.random() < 0.5
        states = states_of(profile)
        pieces = solve(problem_of(states, workers, link, overlap))
        assert pieces is not None
        mine = [(set(states.blocks(p.start, p.end)), p.replicas) for p in pieces]
        times = [
            slowest_ms(profile, plan, link.bytes_per_s, overlap)
            for plan in every_plan(profile, workers)
        ]
        plans += len(times)
        if min(times) > 0:
            own = slowest_ms(profile, mine, link.bytes_per_s, overlap)
            worst = max(worst, own / min(times))
    return Row(
        f"the plan's time against the best of all {plans:,} plans of {CASES} small graphs, worst",
        "", "", f"{worst:.4f}x", "at most 1.10x", worst <= 1.1,
    )  # fmt: skip


if __name__ == "__main__":
    script(measure)
