"""How much of a GPU-sharing cluster is allocated when as much is requested as there is.

The experiment of Weng et al. (USENIX ATC 2023) on the pods and nodes of Alibaba's 2023 trace: the
pods in a random order, some of them again until 130 % of the GPUs are requested, none of them
ever ends. Told is what is allocated, in per mille of the GPUs, at the moment when what was
requested reaches 100 %. The published means of 10 seeds: random 863, best fit 929, the
fragmentation gradient 952. The models that some pods ask for are ignored there, and here.

    python tests/scheduler/fragmentation.py [SEEDS]
"""

from __future__ import annotations

import csv
import gzip
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from windlass.scheduler.events import Need, Offer
from windlass.scheduler.nodes import Form, Nodes

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
POLICIES = ("gradient", "best-fit")

_MIB = 1 << 20


def available() -> str:
    """Why the experiment cannot run here; empty: it can."""
    missing = [path.name for path in _files() if not path.exists()]
    return f"no {' and '.join(missing)} in {TRACES.parent.name}/{TRACES.name}" if missing else ""


def allocated(seed: int, policy: str = "gradient") -> int:
    """Per mille of all GPUs that are allocated when 100 % of them have been requested."""
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r}: one of {', '.join(POLICIES)}")
    nodes_file, pods_file = _files()
    nodes = Nodes()
    for offer in _offers(nodes_file):
        nodes.node_up(offer)
    capacity = int(nodes.capacity.gpu.sum())
    requested = held = 0
    for need in _arrivals(_needs(pods_file), capacity, seed):
        form = nodes.form((need,))
        if _start(nodes, form, policy):
            held += form.gpu_milli
        requested += form.gpu_milli
        if requested >= capacity:
            break
    return held * 1000 // capacity


def _start(nodes: Nodes, form: Form, policy: str) -> bool:
    # A what-if is placed by best fit: the way to have it without a switch in the scheduler.
    columns = nodes.now if policy == "best-fit" else None
    seats = nodes.place(form, columns=columns) if nodes.could(form) else None
    if seats is None:
        return False
    nodes.take(form.needs, seats)
    return True


def _arrivals(needs: list[Need], capacity: int, seed: int) -> Iterator[Need]:
    order = random.Random(seed)
    pods = list(needs)
    requested = sum(need.gpus * 1000 + need.gpu_milli for need in pods)
    while requested < capacity * 13 // 10:
        again = order.choice(needs)
        pods.append(again)
        requested += again.gpus * 1000 + again.gpu_milli
    order.shuffle(pods)
    return iter(pods)


def _offers(path: Path) -> Iterator[Offer]:
    for row in _rows(path):
        yield Offer(
            f"n{row['node_id']}",
            cpus_milli=int(row["cpu_milli"]),
            memory_bytes=int(row["mem_mib"]) * _MIB,
            gpus=int(row["gpus"]),
            gpu_model=row["gpu_model"],
        )


def _needs(path: Path) -> list[Need]:
    return [
        Need(
            "pod",
            1,
            cpus_milli=int(row["cpu_milli"]),
            memory_bytes=int(row["mem_mib"]) * _MIB,
            gpus=int(row["num_gpu"]) if row["gpu_milli"] == "1000" else 0,
            gpu_milli=int(row["gpu_milli"]) % 1000,
        )
        for row in _rows(path)
    ]


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        return list(csv.DictReader(lines))


def _files() -> tuple[Path, Path]:
    return TRACES / "alibaba_gpu2023_nodes.csv.gz", TRACES / "alibaba_gpu2023_pods.csv.gz"


def main() -> None:
    if available():
        sys.exit(available())
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    for policy in POLICIES:
        started = time.perf_counter()
        results = [allocated(seed, policy) for seed in seeds]
        seconds = (time.perf_counter() - started) / len(results)
        mean = sum(results) / len(results)
        print(f"{policy}: mean {mean:.1f} per mille of {results}, {seconds:.1f} s each")


if __name__ == "__main__":
    main()
