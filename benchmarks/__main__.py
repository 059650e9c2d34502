"""`python -m benchmarks [NAME…]`: run all or some, and write the table into docs/benchmarks.md.

Nothing here decides whether a change may go in: a miss is printed, and read by a person.
"""

from __future__ import annotations

import re
import sys
import time
from importlib import import_module

from benchmarks.measure import ROOT, machine, table

NAMES = (
    "start_latency",
    "torch_start",
    "rank_threads",
    "durable_submits",
    "signing_cost",
    "log_pump",
    "throughput",
    "idle",
    "usage",
    "api_scale",
    "first_minute",
    "dashboard",
    "metric_series",
    "mlflow_tracking",
    "studies",
    "engines_slurm",
    "engines_ray",
    "engines_kubernetes",
    "scheduler_core",
    "scheduler_kueue",
    "scheduler_simulation",
    "scheduler_fragmentation",
    "strategies_allreduce",
    "strategies_compression",
    "strategies_local_sgd",
    "strategies_straggler",
    "strategies_server",
    "strategies_peers",
    "strategies_gpu",
    "pipelines_bubble",
    "pipelines_torch",
    "pipelines_vgg",
    "pipelines_gpu",
    "planner",
    "planner_error",
)
PAGE = ROOT / "docs" / "benchmarks.md"


def main(words: list[str]) -> int:
    unknown = set(words) - set(NAMES)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
        return 2
    failed = 0
    for name in words or NAMES:
        began = time.perf_counter()
        try:
            text = table(import_module(f"benchmarks.{name}").measure())
        except Exception as err:
            failed += 1
            print(f"{name}: could not be measured: {type(err).__name__}: {err}", flush=True)
            continue
        print(f"\n{name} ({time.perf_counter() - began:.0f} s)\n{text}", flush=True)
        write(name, text)
    write("machine", f"Measured on: {machine()}.")
    return 1 if failed else 0


def write(name: str, text: str) -> None:
    """Put `text` between the page's markers of that name."""
    page = PAGE.read_text()
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", page, re.DOTALL)
    assert found is not None, f"{PAGE.name} has no place for {name}"
    whole = f"{begin}\n{text}\n{end}"
    PAGE.write_text(page[: found.start()] + whole + page[found.end() :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
