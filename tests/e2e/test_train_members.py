"""`windlass.train` as a job with servers, and as a job whose members die and come back."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.testing.platform import Platform, read_json, wait_for

pytestmark = pytest.mark.slow

SCRIPT = """
    import json, os, pathlib, time
    import torch
    from torch import nn
    from torch.nn import functional as F
    import windlass.train as wt

    HERE, SECONDS, AWAITED = pathlib.Path({folder!r}), {seconds}, {awaited!r}
    SLOW_UNTIL = {slow_until!r}
    NAME = os.environ["ROLE_NAME"] + "-" + os.environ["ROLE_RANK"]
    LIFE = os.environ.get("WINDLASS_RESTART", "0")
    steps = 0

    def loss(out, target):
        global steps
        steps += 1
        if steps == (5 if LIFE == "0" else 1):
            path = HERE / (NAME + "." + LIFE)
            path.with_suffix(".new").write_text(str(os.getpid()))
            os.replace(path.with_suffix(".new"), path)
        time.sleep(SECONDS)
        if SLOW_UNTIL and steps >= 10 and LIFE == "0" and not (HERE / SLOW_UNTIL).exists():
            time.sleep(1.0)
        ends = time.monotonic() + 120
        while AWAITED and steps == 30 and LIFE == "0" and time.monotonic() < ends:
            if (HERE / AWAITED).exists():
                break
            time.sleep(0.02)
        return F.mse_loss(out, target, reduction="sum")

    def make():
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
        model = nn.Linear(8, 1)
        return wt.Task(model, wt.sum_loss(loss),
                       torch.optim.SGD(model.parameters(), 0.05), wt.Data((x, x[:, :1]), 16))

    torch.set_num_threads(1)
    run = wt.fit(make, {strategy!r}, steps={steps}, device="cpu", progress=False{more})
    found = run.result.to_json()
    print("report " + json.dumps({{
        "by": NAME, "members": sorted(each["name"] for each in found["members"]),
        "lost": list(run.result.lost), "state": bool(run.state),
        "losses": [run.result.members[0].losses[0].loss, run.result.members[0].losses[-1].loss]
        if run.result.members[0].losses else [],
    }}), flush=True)
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("home")
    with Platform(home, "--fake-nodes", "2", "--fake-gpus", "2") as started:
        yield started


def submit(
    platform: Platform, folder: Path, strategy: str, *, workers: int = 2, servers: int = 0,
    steps: int = 40, seconds: float = 0.0, awaited: str = "", more: str = "",
    slow_until: str = "", **spec: Any,
) -> Job:  # fmt: skip
    text = textwrap.dedent(SCRIPT).format(
        strategy=strategy, steps=steps, folder=str(folder), seconds=seconds, awaited=awaited,
        more=more, slow_until=slow_until,
    )  # fmt: skip
    (folder / "mine.py").write_text(text)
    roles: dict[str, Any] = {"worker": {"count": workers}}
    if servers:
        roles["ps"] = {"count": servers}
    return platform.client.jobs.submit(
        run=[sys.executable, "mine.py"], code=folder, framework="pytorch",
        **{"roles": roles, **spec},
    )  # fmt: skip


def reports(platform: Platform, job: Job) -> dict[str, dict[str, Any]]:
    """What each member printed at its end, by its name."""
    lines = platform.logs(job).splitlines()
    found = [json.loads(each.partition("report ")[2]) for each in lines if "report {" in each]
    return {each["by"]: each for each in found}


def kill(platform: Platform, folder: Path, name: str, restart: int = 0) -> None:
    """The member, once it trains (at its 30th step all wait for what is `awaited`)."""
    path = folder / f"{name}.{restart}"
    wait_for(path.exists, 90, f"{path.name} trains")
    os.kill(int(path.read_text()), signal.SIGKILL)


def story(platform: Platform, job: Job) -> list[str]:
    items = platform.call("GET", f"/jobs/{job.id}/events").json()["items"]
    return [each["reason"] for each in items if each["kind"] in ("rank-lost", "rank-back")]


@pytest.mark.parametrize("strategy", ["ps:ssp", "easgd:async"])
def test_a_job_with_servers_trains_and_its_servers_end_with_the_workers(
    platform: Platform, tmp_path: Path, strategy: str
) -> None:
    job = submit(platform, tmp_path, strategy, servers=1)
    done = platform.wait(job, 120)
    assert done.state == "succeeded", platform.logs(job)
    assert done.reason == "all ranks ended well"
    found = reports(platform, job)["worker-0"]
    assert found["members"] == ["server 0", "worker 0", "worker 1"]
    assert found["lost"] == []
    first, last = found["losses"]
    assert last < first / 2, found
    records = [read_json(folder / "exit.json") for folder in platform.attempts(job)]
    server = next(r for each in records for r in each["ranks"] if r["role"] == "ps")
    assert server["exit"] == 0 or server["ended_by"] == "worker"


def test_the_others_finish_without_worker_0_and_the_report_names_it(
    platform: Platform, tmp_path: Path
) -> None:
    """Where they meet is not in worker 0."""
    job = submit(
        platform, tmp_path, "adpsgd", workers=3, steps=60, seconds=0.05, awaited="go",
        on_member_loss="continue", retry={"times": 0},
    )  # fmt: skip
    kill(platform, tmp_path, "worker-0")
    (tmp_path / "go").touch()
    done = platform.wait(job, 180)
    assert done.state == "succeeded", platform.logs(job)
    assert done.reason == "all ranks ended well but worker-0"
    found = reports(platform, job)
    assert set(found) == {"worker-1", "worker-2"}
    assert found["worker-1"]["members"] == ["worker 1", "worker 2"]
    assert found["worker-1"]["lost"] == ["worker 0"] and found["worker-1"]["state"]


@pytest.mark.parametrize(("strategy", "servers"), [("adpsgd", 0), ("ps:async", 1)])
def test_worker_0_comes_back_to_the_training_that_goes_on(
    platform: Platform, tmp_path: Path, strategy: str, servers: int
) -> None:
    job = submit(
        platform, tmp_path, strategy, servers=servers, steps=60, seconds=0.01,
        awaited="worker-0.1", on_member_loss="continue", retry={"times": 3, "backoff": 0.2},
    )  # fmt: skip
    wait_for((tmp_path / "worker-1.0").exists, 90, "worker 1 trains")
    kill(platform, tmp_path, "worker-0")
    wait_for((tmp_path / "worker-0.1").exists, 90, "worker 0 trains again")
    done = platform.wait(job, 180)
    assert (done.state, done.attempt) == ("succeeded", 1), platform.logs(job)
    assert done.reason == "all ranks ended well", platform.logs(job)
    found = reports(platform, job)["worker-0"]
    assert {"worker 0", "worker 1"} <= set(found["members"])
    assert found["lost"] == ["worker 0"]
    told = story(platform, job)
    assert told[0].startswith("worker-0-0 was killed by signal 9; it is started again")
    assert told[1] == "worker-0-0 was started again, restart 1"


def test_an_elastic_training_goes_on_without_worker_0_and_takes_it_in_again(
    platform: Platform, tmp_path: Path
) -> None:
    """The other forms a generation of one, from the state that it holds, and then one of two."""
    job = submit(
        platform, tmp_path, "allreduce", steps=100, seconds=0.01, slow_until="worker-0.1",
        more=", elastic=(1, 2)", on_member_loss="continue", retry={"times": 3, "backoff": 0.2},
    )  # fmt: skip
    wait_for((tmp_path / "worker-1.0").exists, 90, "worker 1 trains")
    kill(platform, tmp_path, "worker-0")
    wait_for((tmp_path / "worker-0.1").exists, 90, "worker 0 trains again")
    done = platform.wait(job, 180)
    assert (done.state, done.attempt) == ("succeeded", 1), platform.logs(job)
    assert done.reason == "all ranks ended well", platform.logs(job)
    found = reports(platform, job)
    assert set(found) == {"worker-0", "worker-1"}
    assert [each["lost"] for each in found.values()] == [["worker 0"], ["worker 0"]]
    assert sum(each["state"] for each in found.values()) == 1


def test_a_strategy_that_takes_nobody_back_ends_the_attempt_and_the_next_one_resumes(
    platform: Platform, tmp_path: Path
) -> None:
    job = submit(
        platform, tmp_path, "allreduce", steps=100, seconds=0.03, more=", save_every=10",
        awaited="go", on_member_loss="continue", retry={"times": 3, "backoff": 0.2},
    )  # fmt: skip
    wait_for(
        lambda: platform.call("GET", f"/jobs/{job.id}/checkpoints").json()["items"], 90, "a save"
    )
    kill(platform, tmp_path, "worker-1")
    (tmp_path / "go").touch()
    done = platform.wait(job, 180)
    assert (done.state, done.attempt) == ("succeeded", 2), platform.logs(job)
    told = platform.logs(job, attempt=1)
    assert "it was started again, and allreduce takes nobody back" in told
