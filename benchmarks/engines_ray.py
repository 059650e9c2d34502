"""Claim: from submit to the first line of output on Ray takes at most 1.2 times what a bare
placement group with an actor takes in a driver that is up.

The bare actor runs the line itself; ours starts our worker, which starts the user's Python. One
cluster serves both in turns.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import first_line
from benchmarks.measure import Row, at_most, folder, interleave, median, milliseconds, script
from windlass.engines.ray.cluster import environment
from windlass.testing.platform import Platform
from windlass.testing.ray import Cluster

ROUNDS = 15
PEER = Path(__file__).with_name("peers") / "ray_group.py"
PAUSE_SECONDS = 1.0
"""Ray takes away the one's actor and group before the other begins."""


def measure(*, quick: bool = False) -> list[Row]:
    with folder() as place, Cluster(nodes=2, cpus=4) as cluster, driver(cluster) as bare:
        with Platform(place / "home") as platform:
            first_line.add(platform, "ray", "ray", cluster.options, 2)

            def ours() -> float:
                time.sleep(PAUSE_SECONDS)
                return first_line.ours(platform, engine="ray")

            def theirs() -> float:
                time.sleep(PAUSE_SECONDS)
                return bare()

            found = interleave({"windlass": ours, "bare": theirs}, 2 if quick else ROUNDS)
    first_line.tell(found)
    claim = "submit → first line on Ray (bare placement group and actor)"
    return [at_most(claim, median(found["windlass"]), median(found["bare"]), 1.2, milliseconds)]


@contextmanager
def driver(cluster: Cluster) -> Iterator[Callable[[], float]]:
    """The peer, connected: each call gives the seconds of one actor."""
    process = subprocess.Popen(
        [cluster.python, "-I", PEER, cluster.address], env=environment(str(cluster.token_file)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        bufsize=1,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    said = process.stdout
    asked = process.stdin

    def once() -> float:
        asked.write("once\n")
        return float(said.readline())

    try:
        if said.readline().strip() != "ready":
            raise RuntimeError("the driver of the bare actor did not connect")
        yield once
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    script(lambda: measure(quick="--quick" in sys.argv))
