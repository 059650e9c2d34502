"""Claim: two ranks of PyTorch take at most 1.10x of plain `torchrun --nproc-per-node 2`.

The whole wall time, from starting the command to its end. The script joins the group, adds one
number over both ranks and leaves: the shortest torch job there is, so that what the platform
adds shows most.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Row, at_most, folder, interleave, median, script, seconds, windlass
from windlass.testing.platform import Platform

ROUNDS = 5
SCRIPT = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print(f"sum {int(one)}\\n", end="", flush=True)  # in one write: the ranks share a pipe
dist.destroy_process_group()
"""


def measure() -> list[Row]:
    with folder() as place, Platform(place / "home") as platform:
        work = place / "work"
        work.mkdir()
        (work / "train.py").write_text(SCRIPT)
        ours, env = windlass(platform.home, "run", "--workers", "2", "train.py")
        torchrun = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            "train.py",
        ]  # fmt: skip
        # Both with the interpreter of this process, and with one thread per rank as torchrun has.
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        env["OMP_NUM_THREADS"] = "1"

        def run(command: list[str]) -> float:
            began = time.perf_counter()
            done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
            spent = time.perf_counter() - began
            assert done.returncode == 0 and done.stdout.count("sum 2") == 2, done
            return spent

        found = interleave({"ours": lambda: run(ours), "torchrun": lambda: run(torchrun)}, ROUNDS)
    claim = "2-rank torch script, start → end (torchrun)"
    return [at_most(claim, median(found["ours"]), median(found["torchrun"]), 1.10, seconds)]


if __name__ == "__main__":
    script(measure)
