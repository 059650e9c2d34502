"""The scheduler through a real server: who starts, who waits and why, who makes room."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.core.errors import InvalidInput, NeverFits
from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for

NODES, GPUS = 3, 2
ALL = {"worker": {"count": NODES, "gpus": GPUS, "nproc": 1}}
NODE = {"worker": {"gpus": GPUS, "nproc": 1}}
ONE = {"worker": {"gpus": 1}}
FIXED = {"preemptible": False}
SLEEP = ["sleep", "600"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch-ddp"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    words = (
        "--fake-nodes", str(NODES), "--fake-gpus", str(GPUS),
        "--scheduler-min-run", "100ms", "--scheduler-cool-down", "1s",
    )  # fmt: skip
    with Platform(tmp_path_factory.mktemp("scheduling") / "home", *words) as running:
        yield running
        invariants.check(running)


@pytest.fixture
def platform(shared: Platform) -> Iterator[Platform]:
    """The one server, with nothing of this test left behind."""
    yield shared
    if shared.process is None:
        shared.start()
    jobs = shared.client.jobs
    unfinished = jobs.list(state="held,queued,starting,running,stopping", limit=1000)
    for job in unfinished:
        jobs.stop(job.id, now=True)
    for job in unfinished:
        shared.wait(job)


def why(platform: Platform, job: Job, *words: str) -> str:
    """What the command says, once its sentence has these words."""
    platform.wait_why(job, *words)
    done = platform.cli("why", job.id)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def states(platform: Platform, job: Job) -> list[str]:
    """Every state it went through, in order."""
    events = platform.client.jobs.events(job.id)
    return [e["data"]["to"] for e in events if e["kind"] in ("submitted", "moved")]


def count(platform: Platform, state: str) -> int:
    return len(platform.client.jobs.list(state=state, limit=1000))


# Preemption


def test_a_higher_priority_makes_room_and_the_lower_goes_on_where_it_was(
    platform: Platform,
) -> None:
    low = platform.witness("train", 10_000, 0.1, roles=NODE, queue={"priority": 10})
    wait_for(lambda: len(platform.said(low, "saved")) >= 3, 60, "it trains")
    gate = platform.gate("high")
    high = platform.witness("until", gate, name="high", roles=ALL, queue={"priority": 90})
    platform.wait_state(high, "running", seconds=60)
    waits = platform.wait_state(low, "queued")
    assert (waits.outcome, waits.failures) == ("preempted", 0), "nobody's failure"
    told = [e for e in platform.client.jobs.events(low.id) if e["kind"] == "wished"]
    assert [e["data"]["wish"] for e in told] == ["preempt"]
    assert told[0]["data"]["for"] == high.id
    gate.touch()
    assert platform.wait(high).state == "succeeded"
    platform.wait_state(low, "running", seconds=60)
    wait_for(
        lambda: [one for one in platform.said(low, "saved") if one["attempt"] == 2],
        60,
        "it trains on",
    )
    [asked] = platform.said(low, "asked to stop")
    first, second = platform.said(low, "resumed")
    assert (first["step"], second["step"]) == (0, asked["step"]) and asked["step"] >= 3
    assert states(platform, low) == [
        "queued", "starting", "running", "stopping", "queued", "starting", "running",
    ]  # fmt: skip


def test_who_is_not_preemptible_stays(platform: Platform) -> None:
    low = platform.submit(SLEEP, roles=ALL, queue={"priority": 10, **FIXED})
    platform.wait_state(low, "running")
    high = platform.submit(SLEEP, roles=ONE, queue={"priority": 90})
    platform.wait_why(high, "needs 1 GPU, 0 GPUs free")
    assert platform.client.jobs.get(low.id).state == "running"


@pytest.mark.slow
def test_a_preemption_outlives_the_server(platform: Platform) -> None:
    """Killed right after the victim was told to go: the next server knows for whom it goes."""
    low = platform.witness("train", 10_000, 0.1, roles=NODE, queue={"priority": 10})
    wait_for(lambda: platform.said(low, "saved"), 60, "it trains")
    platform.kill()
    platform.env["WINDLASS_FAILPOINT"] = "after-preempt-commit:kill"
    platform.start()
    platform.client.jobs.submit({"run": SLEEP, "roles": ONE, "hold": True, "name": "rival"})
    high = platform.witness("until", platform.gate("high2"), roles=ALL, queue={"priority": 90})
    assert platform.process is not None and platform.process.wait(120) == -9
    platform.kill()
    platform.env.pop("WINDLASS_FAILPOINT")
    platform.start()
    platform.client.jobs.release("rival")
    platform.wait_state(high, "running", seconds=60)
    for ref in (low.id, "rival"):
        platform.wait_state(ref, "queued")
    assert platform.client.jobs.get(high.id).state == "running"
    assert platform.client.jobs.get(low.id).outcome == "preempted"
    platform.client.jobs.stop("rival")
    platform.gate("high2").touch()
    assert platform.wait(high).attempt == 1
    platform.wait_state(low, "running", seconds=60)


@pytest.mark.training
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "sklearn")),
    reason="torch and scikit-learn are not installed",
)
def test_a_torch_job_of_two_ranks_is_preempted_and_resumes(platform: Platform) -> None:
    command = [sys.executable, "train_tracked.py", "--epochs", "40"]
    roles = {"worker": {"count": 2, "gpus": GPUS, "nproc": 1}}
    low = platform.client.jobs.submit(
        run=command, framework="pytorch", roles=roles, queue={"priority": 10}, code=EXAMPLE
    )
    wait_for(lambda: platform.client.jobs.checkpoints(low.id), 120, "it has saved an epoch")
    high = platform.submit(["true"], roles=ALL, queue={"priority": 90})
    assert platform.wait(high).state == "succeeded"
    over = platform.wait(low, seconds=180)
    assert (over.state, over.attempt, over.failures) == ("succeeded", 2, 0)
    first, second = (platform.logs(low, attempt=number) for number in (1, 2))
    epochs = [int(number) for number in re.findall(r"epoch (\d+) loss", first + second)]
    assert f"resumed after epoch {first.count('loss=')}" in second and "loss=" in first
    assert epochs == list(range(1, 41)), "each epoch once, over both attempts"


# Quotas and queues


def test_ten_jobs_against_a_quota_of_two_gpus(platform: Platform) -> None:
    quotas = platform.client.quotas
    quotas.set("default", nominal={"gpus": 2})
    try:
        jobs = [platform.submit(SLEEP, name=f"part-{n}", roles=ONE) for n in range(10)]
        wait_for(lambda: count(platform, "running") == 2, 30, "two run")
        waiting = platform.client.jobs.list(state="queued")
        assert len(waiting) == 8, "all were accepted"
        told = "waiting: 1 GPU short (default uses 2 GPUs and owns 2 GPUs)"
        text = why(platform, waiting[0], told)
        assert told in text
        assert "next: windlass quota show default" in text
        assert count(platform, "starting") == 0
        quotas.set("default", nominal={"gpus": 4})
        wait_for(lambda: count(platform, "running") == 4, 10, "more is given at once")
        quotas.set("default", nominal={"gpus": 1})
        platform.client.jobs.stop(jobs[0].id, now=True)
        platform.wait(jobs[0])
        assert count(platform, "queued") == 6, "nobody is ended, and nobody starts"
    finally:
        quotas.delete("default")
    wait_for(lambda: count(platform, "running") == NODES * GPUS, 30, "the rest, without a quota")


def test_more_than_the_quota_ever_gives_waits_and_says_so(platform: Platform) -> None:
    platform.client.quotas.set("default", nominal={"gpus": 2})
    try:
        job = platform.submit(SLEEP, roles=ALL)
        assert "4 GPUs over its quota" in why(platform, job, "can never start")
    finally:
        platform.client.quotas.delete("default")
    platform.wait_state(job, "running")


def test_in_a_strict_queue_nobody_passes_the_first(platform: Platform) -> None:
    queues = platform.client.queues
    queues.set("strict", policy="strict")
    platform.submit(SLEEP, roles=NODE, queue=FIXED)
    blocker = platform.client.jobs.list(limit=1)[0]
    platform.wait_state(blocker, "running")
    whole = platform.submit(SLEEP, name="whole", roles=ALL, queue={"name": "strict"})
    small = platform.submit(SLEEP, name="small", roles=ONE, queue={"name": "strict"})
    platform.wait_why(small, "queue strict is strict: whole is first")
    queues.set("strict", policy="best-effort")
    platform.wait_state(small, "running")
    assert platform.client.jobs.get(whole.id).state == "queued"
    for job in (whole, small):
        platform.client.jobs.stop(job.id, now=True)
        platform.wait(job)
    queues.delete("strict")


def test_a_paused_queue_starts_nothing_and_others_go_on(platform: Platform) -> None:
    queues = platform.client.queues
    queues.set("aside")
    queues.pause("aside")
    aside = platform.submit(["true"], queue={"name": "aside"})
    assert platform.wait(platform.submit(["true"])).state == "succeeded"
    text = why(platform, aside, "paused")
    assert "queue aside is paused" in text and "next: windlass queue resume aside" in text
    queues.resume("aside")
    assert platform.wait(aside).state == "succeeded"
    queues.delete("aside")


# Reservations


def test_a_short_job_passes_a_waiting_gang_and_a_long_one_does_not(platform: Platform) -> None:
    limits = {"time": "30m", "grace": "1s"}
    blocker = platform.submit(SLEEP, roles=NODE, limits=limits, queue=FIXED)
    platform.wait_state(blocker, "running")
    gang = platform.submit(SLEEP, name="gang", roles=ALL)
    text = why(platform, gang, "it should start about")
    found = re.search(r"it should start about (?:\S+ )?(\d\d:\d\d) UTC, in (\d+) min", text)
    assert found, text
    assert 25 <= int(found[2]) <= 31
    expected = datetime.now(UTC) + timedelta(minutes=int(found[2]))
    assert abs(int(found[1][-2:]) - expected.minute) in (0, 1, 2, 58, 59), text
    assert "needs 6 GPUs, 4 GPUs free" in text
    long = platform.submit(SLEEP, name="long", roles=ONE, limits={"time": "2h"})
    short = platform.submit(["sleep", "1"], roles=ONE, limits={"time": "5m"})
    assert platform.wait(short).state == "succeeded"
    platform.wait_why(long, "what is free is kept for gang, which is ahead")
    platform.client.jobs.stop(blocker.id, now=True)
    platform.wait_state(gang, "running", seconds=60)


@pytest.mark.slow
def test_a_promised_start_outlives_the_server(platform: Platform) -> None:
    """Killed with two gangs in line: the next server knows who was promised the start first,
    though it would begin with the other."""

    def starts(job: Job) -> datetime | None:
        line = platform.client.queues.line()["waiting"]
        told = next((one["expected_start"] for one in line if one["id"] == job.id), None)
        return datetime.fromisoformat(told) if told else None

    blocker = platform.submit(SLEEP, roles=NODE, limits={"time": "30m"}, queue=FIXED)
    platform.wait_state(blocker, "running")
    # Not to be preempted by the urgent one as soon as it runs, before anybody has seen it run.
    gang = platform.submit(SLEEP, name="gang", roles=ALL, limits={"time": "1h"}, queue=FIXED)
    passes = platform.submit(["sleep", "1"], roles=ONE, limits={"time": "5m"})
    assert platform.wait(passes).state == "succeeded"
    urgent = platform.submit(SLEEP, roles=ALL, limits={"time": "1h"}, queue={"priority": 90})
    before = wait_for(lambda: starts(gang), 30, "a promise")
    platform.kill()
    platform.start()
    after = wait_for(lambda: starts(gang), 30, "the promise")
    assert abs(after - before) < timedelta(seconds=1)
    platform.client.jobs.stop(blocker.id, now=True)
    platform.wait_state(gang, "running", seconds=60)
    assert platform.client.jobs.get(urgent.id).state == "queued"


# Dependencies and times


def test_a_job_starts_when_all_that_it_waits_for_succeeded(platform: Platform) -> None:
    gates = [platform.gate(f"first-{n}") for n in range(2)]
    before = [platform.witness("until", gate, name=f"before-{n}") for n, gate in enumerate(gates)]
    words = ("submit", "--no-code", "--name", "following", "-q")
    done = platform.cli(*words, "--after", before[0].id, "--after", "before-1", "true")
    assert done.returncode == 0, done.stderr
    following = platform.client.jobs.get("following")
    assert following.state == "held"
    assert "waits for before-0, before-1 to succeed" in why(platform, following)
    gates[0].touch()
    platform.wait(before[0])
    assert platform.client.jobs.get(following.id).state == "held"
    gates[1].touch()
    assert platform.wait(following).state == "succeeded"
    # What is over already is not waited for.
    again = platform.submit(["true"], after=["before-0"])
    assert platform.wait(again).state == "succeeded"


def test_a_job_that_waits_for_one_that_failed_is_cancelled(platform: Platform) -> None:
    gate = platform.gate("fails")
    first = platform.witness("until", gate, 1, name="fails", retry={"times": 0})
    second = platform.submit(["true"], name="second", after=[first.id])
    third = platform.submit(["true"], after=[second.id])
    gate.touch()
    over = platform.wait(second)
    assert (over.state, over.attempt) == ("cancelled", 0)
    assert over.reason == "job fails, which it waited for, is failed"
    assert platform.wait(third).reason == "job second, which it waited for, is cancelled"
    with pytest.raises(InvalidInput, match="could never start"):
        platform.submit(["true"], after=[first.id])
    with pytest.raises(InvalidInput, match="no job"):
        platform.submit(["true"], after=["nobody-at-all"])


@pytest.mark.slow
def test_what_ended_while_the_server_was_away_is_followed(platform: Platform) -> None:
    gate, other = platform.gate("away"), platform.gate("away-fails")
    good = platform.witness("until", gate, name="away")
    bad = platform.witness("until", other, 1, name="away-fails", retry={"times": 0})
    for job in (good, bad):
        platform.wait_state(job, "running")
    starts = platform.submit(["true"], after=[good.id])
    ends = platform.submit(["true"], after=[bad.id])
    held = platform.submit(["true"], after=[good.id], hold=True)
    platform.kill()
    # It dies once the first end is committed, and before anybody heard of it.
    platform.env["WINDLASS_FAILPOINT"] = "before-over-commit:kill@2"
    gate.touch()
    other.touch()
    for job in (good, bad):
        wait_for(lambda job=job: platform.said(job, "ended"), 30, "it ends")
    platform.start()
    assert platform.process is not None and platform.process.wait(120) == -9
    platform.kill()
    platform.env.pop("WINDLASS_FAILPOINT")
    platform.start()
    assert platform.wait(starts).state == "succeeded"
    assert platform.wait(ends).state == "cancelled"
    assert platform.client.jobs.get(held.id).state == "held", "that is for its user to say"


def test_a_job_does_not_start_before_its_time(platform: Platform) -> None:
    for name, begin in (("tomorrow", "1d"), ("later", "2s")):
        done = platform.cli("submit", "--no-code", "--name", name, "--begin", begin, "true")
        assert done.returncode == 0, done.stderr
    tomorrow = platform.client.jobs.get("tomorrow")
    assert tomorrow.state == "held" and "waits until" in why(platform, tomorrow)
    over = platform.wait("later")
    assert over.state == "succeeded" and over.started is not None
    begun = datetime.fromisoformat(over.started) - datetime.fromisoformat(over.submitted)
    assert begun >= timedelta(seconds=1.5)
    assert platform.client.jobs.get(tomorrow.id).state == "held"


# Elastic gangs


WORLD = (
    "import os, time\n"
    "print('of', os.environ['WORLD_SIZE'], 'in', os.environ['WINDLASS_ATTEMPT'], flush=True)\n"
    "time.sleep(600)"
)


@pytest.mark.slow
def test_an_elastic_job_takes_what_is_there_grows_and_makes_room(platform: Platform) -> None:
    blocker = platform.submit(SLEEP, roles=NODE, queue=FIXED)
    platform.wait_state(blocker, "running")
    elastic = platform.submit(
        [sys.executable, "-c", WORLD], framework="pytorch",
        roles={"worker": {"count": NODES, "min": 1, "gpus": GPUS, "nproc": 1}},
    )  # fmt: skip

    def ranks(attempt: int, size: int) -> None:
        line = f"of {size} in {attempt}"
        wait_for(
            lambda: platform.logs(elastic).count(line) == size, 90,
            f"attempt {attempt} has {size} ranks",
        )  # fmt: skip

    ranks(attempt=1, size=NODES - 1)
    platform.client.jobs.stop(blocker.id, now=True)
    ranks(attempt=2, size=NODES)
    other = platform.submit(SLEEP, roles=NODE)
    platform.wait_state(other, "running", seconds=60)
    ranks(attempt=3, size=NODES - 1)
    assert platform.client.jobs.get(elastic.id).failures == 0


# GPUs and places


def devices(platform: Platform, job: Job) -> str:
    """Once it runs: its node and its devices."""
    platform.wait_state(job, "running")
    [folder] = wait_for(lambda: platform.attempts(job), 10, "its folder is there")
    wait_for(lambda: "GPUs" in platform.logs(job), 30, "it tells its devices")
    return f"{folder.name}:{platform.logs(job).split()[-1]}"


TELL = ["sh", "-c", 'echo "GPUs $CUDA_VISIBLE_DEVICES"; sleep 600']


def test_two_shares_lie_on_one_device_and_a_third_does_not(platform: Platform) -> None:
    share = {"worker": {"gpu_share": 0.5}}
    jobs = [platform.submit(TELL, roles=share) for _ in range(3)]
    one, two, three = (devices(platform, job) for job in jobs)
    assert one == two != three
    whole = platform.submit(SLEEP, roles={"worker": {"count": NODES * GPUS - 2, "gpus": 1}})
    platform.wait_state(whole, "running")
    assert platform.client.queues.line()["supply"][0]["free"] < 1
    last = platform.submit(SLEEP, roles=ONE)
    platform.wait_why(last, "GPU")
    assert platform.client.jobs.get(last.id).state == "queued"


def test_a_model_is_found_or_refused(platform: Platform) -> None:
    wanted = {"worker": {"gpus": 1, "gpu_model": ["h100", "fake"]}}
    assert platform.wait(platform.submit(["true"], roles=wanted)).state == "succeeded"
    with pytest.raises(NeverFits, match="no node has enough GPUs of model h100"):
        platform.submit(["true"], roles={"worker": {"gpus": 1, "gpu_model": ["h100"]}})


def test_a_place_that_no_host_has_is_refused_and_one_that_some_has_is_kept(
    platform: Platform,
) -> None:
    def pair(gpus: int) -> dict[str, Any]:
        return {
            "roles": {"worker": {"count": 2, "gpus": gpus, "nproc": 1}},
            "placement": {"level": "host", "required": True},
        }

    with pytest.raises(NeverFits, match="no host has place for all 2 members"):
        platform.submit(SLEEP, **pair(GPUS))
    # One GPU of each node is taken: two are free on no host.
    taken = [
        platform.submit(SLEEP, roles=ALL_ONE, queue=FIXED, placement={"level": "host"})
        for _ in range(1)
    ]
    platform.wait_state(taken[0], "running")
    job = platform.submit(SLEEP, **pair(1))
    platform.wait_state(job, "running")
    assert len(platform.client.jobs.detail(job.id)["attempts"][0]["nodes"]) == 1
    with pytest.raises(NeverFits):
        platform.submit(SLEEP, roles={"worker": {"gpus": GPUS + 1}})


ALL_ONE = {"worker": {"count": 2, "gpus": 1, "nproc": 1}}


def test_of_many_that_wait_each_is_told_why(platform: Platform) -> None:
    blocker = platform.submit(SLEEP, roles=ALL, queue=FIXED)
    platform.wait_state(blocker, "running")
    jobs = [platform.submit(SLEEP, roles=ONE) for _ in range(200)]
    began = time.monotonic()
    for job in jobs[::10]:
        assert "waiting" in platform.client.jobs.why(job.id)["sentence"]
    assert time.monotonic() - began < 30
