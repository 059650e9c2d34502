"""Whatever happens, in whatever order: every invariant holds after every tick.

The same world (`storm`) is driven twice: by hypothesis, which makes what fails small, and by plain
seeds, which get further in the same time.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from storm import Tally, World, run, storms
from storm_history import brief, digest, kind, replay, shrink
from storm_weather import HAPPENINGS, PROFILES

STORM = Path(__file__).parent / "storm.py"
LONG_STEPS = int(os.environ.get("WINDLASS_STORM_STEPS", "1000000"))

seeds = st.integers(0, 1 << 16)
"""What exactly happens is drawn from a seed: hypothesis leaves out steps, and needs no more."""


class Machine(RuleBasedStateMachine):
    """Two cores that are told the same, an auditor, and hypothesis for the weather."""

    profile = "storm"

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        self.world = World(seed, PROFILES[self.profile], twin=True)

    def _happens(self, what: str, seed: int) -> None:
        self.world.random = random.Random(seed)
        self.world.tally.steps += 1
        self.world.tick(getattr(self.world, what)())

    @rule(seed=seeds)
    def submit(self, seed: int) -> None:
        self._happens("submits", seed)

    @rule(seed=seeds, pause=st.sampled_from((0, 1000, 5000)))
    def submit_several(self, seed: int, pause: int) -> None:
        for number in range(4):
            self._happens("submits", seed + number)
            self.world.pass_time(self.world.now_ms + pause)

    @rule(seed=seeds)
    def finish(self, seed: int) -> None:
        self._happens("ends", seed)

    @rule(seed=seeds)
    def fail_and_come_back(self, seed: int) -> None:
        self._happens("fails", seed)

    @rule(seed=seeds)
    def cancel(self, seed: int) -> None:
        self._happens("cancels", seed)

    @rule(seed=seeds)
    def retell(self, seed: int) -> None:
        self._happens("retells", seed)

    @rule(seed=seeds)
    def nodes(self, seed: int) -> None:
        self._happens("changes_nodes", seed)

    @rule(seed=seeds)
    def rules(self, seed: int) -> None:
        self._happens("edits_rules", seed)

    @rule(seed=seeds)
    def restart(self, seed: int) -> None:
        self._happens("restarts", seed)

    @rule(seed=seeds, pause=st.sampled_from((1, 100, 1000, 5000, 20_000, 120_000)))
    def clock(self, seed: int, pause: int) -> None:
        self.world.random = random.Random(seed)
        self.world.pass_time(self.world.now_ms + pause)

    @rule()
    def rest(self) -> None:
        self.world.quiet()

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            wrong = self.world.tally.violations
            for when, events in shrink(self.world.history, kind(wrong[0])) if wrong else ():
                note(f"{when}: {'restart' if events is None else brief(events)}")
            assert wrong == []


class PlainMachine(Machine):
    """Nobody is starving and nothing restarts: work conservation is judged everywhere."""

    profile = "plain"


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["Machine", "PlainMachine"])
def test_every_invariant_holds_after_every_tick(machine: str) -> None:
    """In a process of its own: what hypothesis draws depends on which modules are loaded, and a
    history that fails should fail again for whoever looks for it."""
    done = subprocess.run(
        [sys.executable, __file__, machine], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]


def live(machine: type[Machine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate,),  # `storm.shrink` knows better what can be left out
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_storm_breaks_nothing(name: str) -> None:
    for seed in range(4):
        world = run(seed, 250, PROFILES[name])
        assert world.tally.violations == [], f"seed {seed}, step {world.tally.steps}"
        assert world.tally.starts > 50


def test_with_exact_estimates_no_promise_slips() -> None:
    promises = 0
    for seed in range(100, 104):
        world = run(seed, 150, PROFILES["calm"])
        assert world.tally.violations == [], f"seed {seed}, step {world.tally.steps}"
        promises += world.tally.promises
    assert promises > 0


def test_the_same_history_gives_the_same_decisions() -> None:
    """S-I16, S-I20: replayed from its log, restarts included, a core decides all of it again."""
    world = run(7, 200, PROFILES["storm"])
    _, decisions = replay(world.history)
    assert decisions == [decision for _, decision in world.log]


def test_the_order_of_hashes_decides_nothing() -> None:
    """S-I20: other interpreters, other hash seeds, one digest."""
    digests = set()
    for seed in ("0", "1", "4711"):
        told = subprocess.run(
            [sys.executable, str(STORM), "--steps", "400", "--length", "200", "--digest",
             "--keep-going"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
        )  # fmt: skip
        lines = [line for line in told.stdout.splitlines() if len(line.split()[-1]) == 64]
        assert len(lines) >= 2, told.stderr
        digests.add("\n".join(lines))
    assert len(digests) == 1


def test_a_restart_changes_what_nobody_holds() -> None:
    """S-I16: a core that is built from what the server knows holds the same seats, and tells
    nobody to start who runs."""
    world = World(3, PROFILES["plain"])
    for _ in range(120):
        world.step()
    for held in list(world.core.holdings().values()):
        if held.losing:
            world.pass_time(world.now_ms + 5000)
    before = {
        job_id: (held.seats, held.started_ms) for job_id, held in world.core.holdings().items()
    }
    world.restart()
    after = {
        job_id: (held.seats, held.started_ms) for job_id, held in world.core.holdings().items()
    }
    assert before.items() <= after.items()
    assert world.tally.violations == []


def test_a_digest_tells_one_log_from_another() -> None:
    one, other = run(1, 60, PROFILES["calm"]), run(2, 60, PROFILES["calm"])
    assert digest(one.log) == digest(run(1, 60, PROFILES["calm"]).log) != digest(other.log)
    assert {what for _, what in HAPPENINGS} <= set(dir(World))


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_million_steps_show_no_loop_no_leak_and_no_slip() -> None:
    """S-T11."""
    length, names = 500, sorted(PROFILES)
    seeds = list(range(1000, 1000 + LONG_STEPS // length))
    workers = os.cpu_count() or 1
    chunks = [seeds[start :: workers * 8] for start in range(workers * 8)]
    total = Tally()
    with ProcessPoolExecutor(workers) as pool:
        for tally, wrong in pool.map(
            storms, chunks, [length] * len(chunks), [names] * len(chunks)
        ):
            assert wrong == []
            total.steps += tally.steps
            total.preemptions += tally.preemptions
    assert total.steps >= LONG_STEPS // length * length
    assert total.preemptions > 0


if __name__ == "__main__":
    live({"Machine": Machine, "PlainMachine": PlainMachine}[sys.argv[1]])
