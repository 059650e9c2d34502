"""Told: 200 one-process jobs queued at once on this machine: jobs per second and CPU per job.

The peer is what starting processes costs at all: the same 200 commands by `xargs -P`, as many at
once as there are cores. CPU is that of the server and of every worker.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

from benchmarks.measure import Row, cpu_seconds, folder, median, script
from windlass.testing.platform import Platform, wait_for

JOBS = 200
ROUNDS = 2
COMMAND = [sys.executable, "-c", "print(1)"]


def measure() -> list[Row]:
    rates, costs, plain_rates, plain_costs = [], [], [], []
    shares = []
    with folder() as place, Platform(place / "home") as platform:
        platform.wait(platform.submit(COMMAND))
        for _ in range(ROUNDS):
            rate, cost, of_server = _ours(platform)
            rates.append(rate)
            costs.append(cost)
            shares.append(of_server)
            rate, cost = _plain()
            plain_rates.append(rate)
            plain_costs.append(cost)
    ours, plain = median(rates), median(plain_rates)
    cost, plain_cost = median(costs), median(plain_costs)
    return [
        Row(f"{JOBS} jobs queued at once (xargs -P)", f"{ours:.1f} jobs/s", f"{plain:.1f}/s",
            f"{ours / plain:.2f}x", "", None),
        Row("CPU per job: server, worker and rank (xargs: the process alone)",
            f"{cost * 1e3:.0f} ms (server {median(shares) * 1e3:.0f})",
            f"{plain_cost * 1e3:.0f} ms", f"{cost / plain_cost:.1f}x", "", None),
    ]  # fmt: skip


def _ours(platform: Platform) -> tuple[float, float, float]:
    """Jobs per second, CPU per job, and what of it was the server's."""
    assert platform.process is not None
    server = platform.process.pid
    jobs = [platform.submit(COMMAND, hold=True) for _ in range(JOBS)]
    before, before_server = cpu_seconds(server, children=True), cpu_seconds(server)
    began = time.perf_counter()
    for job in jobs:
        platform.client.jobs.release(job.id)

    def done() -> bool:
        counts = platform.call("GET", "/status").json()["jobs"]
        return not sum(counts.values())

    wait_for(done, 300, "all jobs end")
    spent = time.perf_counter() - began
    assert all(platform.client.jobs.get(job.id).state == "succeeded" for job in jobs[::20])
    time.sleep(0.5)  # the last workers are reaped
    cpu, of_server = cpu_seconds(server, children=True) - before, cpu_seconds(server)
    return JOBS / spent, cpu / JOBS, (of_server - before_server) / JOBS


def _plain() -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        ["xargs", "-P", str(os.cpu_count()), "-I{}", *COMMAND[:2], COMMAND[2]],
        input="\n".join(map(str, range(JOBS))), text=True, check=True, capture_output=True,
    )  # fmt: skip
    spent = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return JOBS / spent, cpu / JOBS


if __name__ == "__main__":
    script(measure)
