"""Claim: from submit to the first line of output on Slurm takes at most 1.2 times what `sbatch` by
hand does.

By hand: a batch script of two lines with one step (`srun python3 -c …`), from the start of sbatch
to the line in its output file. The cluster is a real one on this machine, told to schedule at
once; a usual one waits for seconds, which both would.

Its controller starts batch jobs once a second. Chance would decide who waits how long for that, so
both begin at the same moment of a second, another one each round.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from benchmarks import first_line
from benchmarks.measure import Row, at_most, folder, interleave, median, milliseconds, script
from windlass.testing.platform import Platform, wait_for
from windlass.testing.slurm import Cluster, missing

ROUNDS = 15


def measure(*, quick: bool = False) -> list[Row]:
    if why := missing():
        raise RuntimeError(f"no Slurm here: {why}")
    with folder() as place, Cluster(place / "slurm", nodes=2, cpus=4) as cluster:
        with Platform(place / "home", env={"SLURM_CONF": str(cluster.conf)}) as platform:
            first_line.add(platform, "slurm", "slurm", {}, 2)
            rounds = 2 if quick else ROUNDS
            found = interleave(
                {
                    "windlass": spread(lambda: first_line.ours(platform, engine="slurm"), rounds),
                    "sbatch": spread(lambda: by_hand(cluster, place), rounds),
                },
                rounds,
            )
    first_line.tell(found)
    claim = "submit → first line on Slurm (sbatch by hand)"
    return [at_most(claim, median(found["windlass"]), median(found["sbatch"]), 1.2, milliseconds)]


def spread(run: Callable[[], float], rounds: int) -> Callable[[], float]:
    """It begins at the first of so many moments of a second, then at the next one."""
    turns = count()

    def once() -> float:
        moment = next(turns) % rounds / rounds
        time.sleep((moment - time.time()) % 1.0)
        return run()

    return once


def by_hand(cluster: Cluster, place: Path) -> float:
    said = place / "said"
    said.unlink(missing_ok=True)
    lines = ["#!/bin/sh", f"srun {shlex.join(first_line.COMMAND)}", ""]
    (place / "job.sh").write_text("\n".join(lines))
    began = time.perf_counter()
    number = subprocess.run(
        ["sbatch", "--parsable", "--nodes=1", "--ntasks=1", f"--output={said}", "job.sh"],
        env=cluster.environment, cwd=place, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    spent = first_line.of_file(said, began)
    wait_for(lambda: not cluster.run("squeue", "-h", f"--jobs={number}"), what="it ends")
    return spent


if __name__ == "__main__":
    script(lambda: measure(quick="--quick" in sys.argv))
