"""Trivial trials under Ray Tune: `python ray_tune.py TRIALS AT_ONCE FOLDER [apart]`. A warm-up
first, then the seconds from the start of the search to its last result, as JSON. `apart`: a
process for each trial, where Ray by default has a function's trials one after the other in the
same ones."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import ray
from ray import tune


def trial(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]})


def search(trials: int, at_once: int, folder: str, apart: bool) -> float:
    began = time.perf_counter()
    found = tune.Tuner(
        trial,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=trials, max_concurrent_trials=at_once,
            reuse_actors=not apart,
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    ).fit()  # fmt: skip
    assert len(found) == trials and not found.errors
    return time.perf_counter() - began


def main() -> None:
    trials, at_once, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    apart = sys.argv[4:] == ["apart"]
    ray.init(num_cpus=at_once, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    search(at_once, at_once, folder, apart)
    print(json.dumps({"seconds": search(trials, at_once, folder, apart)}))


if __name__ == "__main__":
    main()
