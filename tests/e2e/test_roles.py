"""Gangs of several roles: own commands, resources and finish rules, on one node and on several."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform

FOREVER = [sys.executable, "-c", "import time; print('serving', flush=True); time.sleep(600)"]
SHORT = [sys.executable, "-c", "print('worked')"]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("home")
    with Platform(home, "--fake-nodes", "3", "--fake-gpus", "4") as platform:
        yield platform


@pytest.mark.parametrize("gpus", [0, 4], ids=["one node", "a node each"])
def test_parameter_servers_are_ended_when_the_workers_are_done(nodes: Platform, gpus: int) -> None:
    job = nodes.submit(
        SHORT,
        roles={
            "worker": {"count": 2, "gpus": gpus, "nproc": 1},
            "ps": {"gpus": gpus, "run": FOREVER},
        },
        limits={"grace": "1s"},
    )
    job = nodes.wait(job)
    assert job.state == "succeeded", nodes.client.jobs.why(job.id)
    assert nodes.logs(job).split().count("worked") == 2


def test_with_finish_first_member_0_decides(nodes: Platform) -> None:
    lazy = "import os, time; time.sleep(600 * int(os.environ['WINDLASS_ROLE_INDEX']))"
    job = nodes.submit(
        [sys.executable, "-c", lazy],
        roles={"worker": {"count": 2, "gpus": 4, "nproc": 1, "finish": "first"}},
        limits={"grace": "1s"},
    )
    assert nodes.wait(job).state == "succeeded"


def test_a_failure_on_one_node_ends_the_others(nodes: Platform) -> None:
    script = (
        "import os, sys, time\nif os.environ['WINDLASS_RANK'] == '1': sys.exit(9)\ntime.sleep(600)"
    )
    job = nodes.submit(
        [sys.executable, "-c", script],
        roles={"worker": {"count": 2, "gpus": 4, "nproc": 1}}, limits={"grace": "1s"},
    )  # fmt: skip
    job = nodes.wait(job)
    assert (job.state, job.exit_code) == ("failed", 9)
    why = nodes.client.jobs.why(job.id)
    assert "rank 1" in why["sentence"]


def test_what_can_never_fit_is_refused_at_submit(nodes: Platform) -> None:
    done = nodes.cli("run", "--gpus", "8", "--no-code", "--", "true")
    assert done.returncode == 2 or done.returncode == 104, done
    assert "the largest node has 4 GPUs" in done.stderr


def test_a_gang_waits_whole_and_says_for_what(nodes: Platform) -> None:
    first = nodes.submit(FOREVER, roles={"worker": {"count": 3, "gpus": 4, "nproc": 1}})
    nodes.wait_state(first, "running")
    second = nodes.submit(SHORT, roles={"worker": {"count": 2, "gpus": 1}})
    nodes.wait_why(second, "needs 2 GPUs, 0 GPUs free")
    nodes.client.jobs.stop(first.id, now=True)
    assert nodes.wait(second).state == "succeeded"
    assert nodes.wait(first).state == "cancelled"


def test_each_rank_sees_its_own_gpus(nodes: Platform) -> None:
    show = "import os; print(os.environ['WINDLASS_RANK'], os.environ['CUDA_VISIBLE_DEVICES'])"
    job = nodes.submit(
        [sys.executable, "-c", show],
        framework="pytorch",
        roles={"worker": {"count": 1, "gpus": 4}},
    )
    assert nodes.wait(job).state == "succeeded"
    lines = dict(line.split(" ", 1) for line in nodes.logs(job).splitlines())
    assert set(lines) == {"0", "1", "2", "3"}


def test_files_of_the_bundle_are_there_and_nothing_of_them_is_shared(
    nodes: Platform, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.txt").write_text("one")
    (tmp_path / "go.py").write_text(
        "p = 'data/x.txt'\nprint(open(p).read())\nopen(p, 'w').write('two')\n"
    )
    first = nodes.client.jobs.submit(run=[sys.executable, "go.py"], code=tmp_path)
    assert nodes.wait(first).state == "succeeded"
    second = nodes.client.jobs.submit(run=[sys.executable, "go.py"], code=tmp_path)
    assert nodes.wait(second).state == "succeeded"
    assert (nodes.logs(first), nodes.logs(second)) == ("one", "one")
