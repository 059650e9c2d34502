"""A bare placement group and an actor in it, run with Ray's Python: `ray_group.py ADDRESS`.

A driver that is up. For each line of its input it says the seconds from asking for the group to
what the actor's method printed, which it also returns.
"""

from __future__ import annotations

import os
import sys
import time

out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what Ray prints is no answer

import ray  # noqa: E402
from ray.util.placement_group import placement_group, remove_placement_group  # noqa: E402
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: E402


@ray.remote(num_cpus=1)
class Actor:
    def say(self) -> str:
        print("hello-1", flush=True)
        return "hello-1"


def once() -> float:
    began = time.perf_counter()
    group = placement_group([{"CPU": 1}])
    actor = Actor.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    assert ray.get(actor.say.remote()) == "hello-1"
    spent = time.perf_counter() - began
    ray.kill(actor)
    remove_placement_group(group)
    return spent


ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
out.write("ready\n")
for _ in sys.stdin:
    out.write(f"{once()}\n")
