"""The pytorch contract against torch itself: real ranks, real gloo, one machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from worker_lab import Lab

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

TRAIN = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
line = "rank %d of %d local %s sum %s" % (
    dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"], x.item())
os.write(1, line.encode() + b"\\n")  # one write, so that two ranks on one pipe stay apart
dist.destroy_process_group()
os._exit(0)  # an interpreter that ends may meet a thread of gloo's that has not: torch's own race
"""
QUIET = {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


def member(index: int, nproc: int, command: list[str]) -> dict[str, object]:
    return {"role": "worker", "index": index, "nproc": nproc, "command": command}


def test_two_ranks_reduce_through_the_env_contract_on_two_nodes(lab: Lab, script: str) -> None:
    lab.plane.framework, lab.plane.nodes = "pytorch", 2
    workers = [
        lab.worker(
            "",
            node=f"n{each}",
            members=[member(each, 1, [script])],
            python=sys.executable,
            vars=QUIET,
        ).start()
        for each in range(2)
    ]
    for each, worker in enumerate(workers):
        assert worker.end(120)["outcome"] == "succeeded", worker.logs(f"worker-{each}-0.err")
        assert worker.logs(f"worker-{each}-0.out") == b"rank %d of 2 local 0 sum 3.0\n" % each


@pytest.mark.parametrize("module", [False, True], ids=["torchrun", "python -m"])
def test_torchrun_takes_its_flags_from_the_environment(
    lab: Lab, script: str, module: bool
) -> None:
    lab.plane.framework = "pytorch"
    torchrun = str(Path(sys.executable).parent / "torchrun")
    launcher = [sys.executable, "-m", "torch.distributed.run"] if module else [torchrun]
    worker = lab.worker("", members=[member(0, 2, [*launcher, script])], vars=QUIET).start()
    assert worker.end(120)["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    assert sorted(worker.logs("worker-0-0.out").splitlines()) == [
        b"rank 0 of 2 local 0 sum 3.0",
        b"rank 1 of 2 local 1 sum 3.0",
    ]


def test_torchrun_on_two_members_makes_one_world(lab: Lab, script: str) -> None:
    lab.plane.framework, lab.plane.nodes = "pytorch", 2
    torchrun = str(Path(sys.executable).parent / "torchrun")
    workers = [
        lab.worker(
            "", node=f"n{each}", members=[member(each, 1, [torchrun, script])], vars=QUIET
        ).start()
        for each in range(2)
    ]
    for each, worker in enumerate(workers):
        assert worker.end(120)["outcome"] == "succeeded", worker.logs(f"worker-{each}-0.err")
        assert worker.logs(f"worker-{each}-0.out") == b"rank %d of 2 local 0 sum 3.0\n" % each


def test_elastic_torchrun_starts_with_a_range_of_nodes(lab: Lab, script: str) -> None:
    lab.plane.framework, lab.plane.minimum = "pytorch", {"worker": 1}
    torchrun = str(Path(sys.executable).parent / "torchrun")
    members = [member(each, 1, [torchrun, script]) for each in range(2)]
    worker = lab.worker("", members=members, vars=QUIET).start()
    assert worker.end(120)["outcome"] == "succeeded", worker.logs("worker-0-0.err")
    lines = worker.logs("worker-0-0.out") + worker.logs("worker-1-0.out")
    assert lines.count(b"of 2") + lines.count(b"of 1") >= 1
