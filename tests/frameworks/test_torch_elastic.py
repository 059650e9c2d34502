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
import os, signal, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("restart", again, "rank", dist.get_rank(), "of", int(total), flush=True)
if FAIL and again == 0 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
"""


def run(platform: Platform, folder: Path, worker: str, fail: bool) -> tuple[int, str]:
    folder.mkdir()
    (folder / "t.py").write_text(SCRIPT.replace("FAIL", str(fail)))
    done = platform.cli("run", "--role", worker, "--", "torchrun", "t.py", cwd=folder)
    return done.returncode, done.stdout + done.stderr


def test_torchrun_on_two_members_is_one_job(laboratory: Platform, tmp_path: Path) -> None:
    code, text = run(laboratory, tmp_path / "code", "worker=2,nproc=2", fail=False)
    assert code == 0, text
    assert "framework pytorch: the command is torchrun" in text
    assert sorted(re.findall(r"rank (\d) of (\d)", text)) == [
        (str(each), "4") for each in range(4)
    ]


def test_an_elastic_gang_loses_a_rank_and_goes_on_within_its_attempt(
    laboratory: Platform, tmp_path: Path
) -> None:
    code, text = run(laboratory, tmp_path / "code", "worker=2,min=1", fail=True)
    assert code == 0, text
    assert re.findall(r"restart 0 rank (\d)", text)
    last = re.findall(r"restart [1-9] rank (\d) of (\d)", text)
    assert sorted(last)[-2:] == [("0", "2"), ("1", "2")], text
