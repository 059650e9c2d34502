"""torchrun for real: two nodes of one job, and an elastic one that begins again by itself."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from windlass.testing.platform import Platform

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
SCRIPT = """
import os, signal, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
# In one write: the ranks of a member share torchrun's output.
os.write(1, f"rank {dist.get_rank()} of {int(total)}\\n".encode())
if len(sys.argv) > 1 and dist.get_rank() == 1 and not os.path.exists(sys.argv[1]):
    open(sys.argv[1], "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # an interpreter that ends may meet a thread of gloo's that has not: torch's own race
"""


def run(platform: Platform, folder: Path, worker: str, *words: str) -> str:
    folder.mkdir()
    (folder / "t.py").write_text(SCRIPT)
    done = platform.cli("run", "--role", worker, "--", "torchrun", "t.py", *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_torchrun_on_two_members_is_one_job(laboratory: Platform, tmp_path: Path) -> None:
    text = run(laboratory, tmp_path / "code", "worker=2,nproc=2")
    assert "framework pytorch: the command is torchrun" in text
    everyone = [(str(rank), "4") for rank in range(4)]
    assert sorted(re.findall(r"rank (\d) of (\d)", text)) == everyone


def test_an_elastic_gang_loses_a_rank_and_goes_on_within_its_attempt(
    laboratory: Platform, tmp_path: Path
) -> None:
    """The launchers meet again and start both ranks anew; to us it is one attempt all along."""
    died = tmp_path / "died"
    text = run(laboratory, tmp_path / "code", "worker=2,min=1", str(died))
    assert died.exists()
    assert sorted(re.findall(r"rank (\d) of (\d)", text)) == [
        ("0", "2"), ("0", "2"), ("1", "2"), ("1", "2"),
    ]  # fmt: skip
    assert all(job.attempt == 1 for job in laboratory.client.jobs.list())
