"""Jobs and nodes from CSV: the fixed form, and the public traces as they are published.

Which form a file has is told by its header:

    jobs    job,submit_s,duration_s,…      ours (any subset with duration_s)
            job_id,…,num_gpus,vc           Philly 2017
            pod_id,create_s,…              Alibaba GPU 2023, pods
            job_id,…,procs_req,…           a log of the Parallel Workloads Archive, HPC2N
    nodes   node,count,…                   ours
            node_id,cpu_milli,…            Alibaba GPU 2023, nodes
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.core.errors import InvalidInput
from windlass.scheduler.events import Offer
from windlass.scheduler.simulate.tables import (
    MOST_COUNT,
    MOST_SECONDS,
    Table,
    scaled,
    seconds,
    whole,
)
from windlass.scheduler.simulate.workload import UNLIMITED, Job, Shapes

GIB = 2**30
KINDS = ("train", "notebook", "serve")
MOST_WORKERS = 1_000_000

JOB_COLUMNS: dict[str, Callable[[str], int | None]] = {
    "submit_s": seconds(),
    "duration_s": seconds(),
    "workers": whole(1, MOST_WORKERS),
    "gpus": whole(0, 100_000),
    "cpus": scaled(1000),
    "memory_gb": scaled(GIB),
    "priority": whole(-1_000_000, 1_000_000),
    "walltime_s": seconds(above=True),
    "min_workers": whole(1, MOST_WORKERS),
    "max_workers": whole(1, MOST_WORKERS),
    "gpu_milli": whole(0, 1000),
}
JOB_FORM = (
    "job", "submit_s", "duration_s", "workers", "gpus", "cpus", "memory_gb", "tenant", "user",
    "priority", "walltime_s", "kind", "min_workers", "max_workers", "gpu_milli", "gpu_model",
)  # fmt: skip
NODE_COLUMNS: dict[str, Callable[[str], int | None]] = {
    "count": whole(0, 1_000_000),
    "cpus": scaled(1000),
    "memory_gb": scaled(GIB),
    "gpus": whole(0, 10_000),
}
NODE_FORM = ("node", "count", "cpus", "memory_gb", "gpus", "gpu_model", "rack", "block")
PHILLY = ("job_id", "submit_s", "duration_s", "num_gpus", "vc")
PODS = (
    "pod_id", "create_s", "sched_s", "delete_s", "cpu_milli", "mem_mib", "num_gpu", "gpu_milli",
    "gpu_spec", "qos", "phase",
)  # fmt: skip
SEATED = ("node_id", "cpu_milli", "mem_mib", "gpus", "gpu_model")
ARCHIVE = (
    "job_id", "submit_s", "wait_s", "run_s", "procs_used", "procs_req", "walltime_req_s", "status",
    "user",
)  # fmt: skip


def read_jobs(path: str, *, limit: int | None = None, node_gpus: int = 8) -> list[Job]:
    """The jobs of a file, by submit time. `node_gpus`: what the largest node has, for traces that
    tell the GPUs of a job but not how they were spread."""
    table = Table(path)
    if "vc" in table.header:
        jobs = _philly(table, node_gpus)
    elif "pod_id" in table.header:
        jobs = _pods(table)
    elif "procs_req" in table.header:
        jobs = _archive(table)
    else:
        jobs = _jobs(table)
    if not jobs:
        raise InvalidInput(f"{path} has a header but no job")
    jobs.sort(key=lambda job: job.submit_ms)
    return jobs if limit is None else jobs[:limit]


def read_nodes(path: str) -> list[Offer]:
    """The nodes of a file, in its order."""
    table = Table(path)
    offers = _seated(table) if "cpu_milli" in table.header else _nodes(table)
    if not offers:
        raise InvalidInput(f"{path} describes no node")
    return offers


def _jobs(table: Table) -> list[Job]:
    table.know(JOB_FORM, needed=("duration_s",))
    cells, shapes = table.reader(JOB_COLUMNS), Shapes()
    get, text = cells.get, cells.text
    lines: dict[str, int] = {}
    jobs: list[Job] = []
    words: dict[str, str] = {}
    for row in table.rows():
        name = text(row, "job") or f"line-{table.line}"
        if name in lines:
            table.wrong("job", name, f"unique: line {lines[name]} has it, too")
        lines[name] = table.line
        duration = get(row, "duration_s")
        if duration is None:
            table.wrong("duration_s", "", f"a number from 0 to {MOST_SECONDS:,}")
        workers = get(row, "workers") or 1
        least, most = get(row, "min_workers"), get(row, "max_workers")
        if least is not None and least > workers:
            table.wrong("min_workers", str(least), f"at most workers, which is {workers}")
        if most is not None and most < workers:
            table.wrong("max_workers", str(most), f"at least workers, which is {workers}")
        gpus, milli = get(row, "gpus") or 0, get(row, "gpu_milli") or 0
        if milli == 1000:
            gpus, milli = max(gpus, 1), 0
        if milli and gpus > 1:
            table.wrong(
                "gpu_milli", str(milli), f"0 or 1000: a share is of one GPU, gpus is {gpus}"
            )
        kind = text(row, "kind", "train")
        if kind not in KINDS:
            table.wrong("kind", kind, f"one of {', '.join(KINDS)}")
        count = most or workers
        # Elastic upwards only (no min_workers): it starts with no fewer than it asked for.
        minimum = workers if least is None else least
        priority = get(row, "priority")
        tenant, user = text(row, "tenant", "default"), text(row, "user")
        jobs.append(
            Job(
                name,
                get(row, "submit_s") or 0,
                duration,
                workers,
                shapes.needs(
                    count,
                    gpus=0 if milli else gpus,
                    gpu_milli=milli,
                    cpus_milli=get(row, "cpus") or 0,
                    memory_bytes=get(row, "memory_gb") or 0,
                    models=_models(text(row, "gpu_model")),
                    minimum=minimum if minimum < count else 0,
                ),
                words.setdefault(tenant, tenant),
                words.setdefault(user, user),
                50 if priority is None else priority,
                get(row, "walltime_s"),
                words.setdefault(kind, kind),
            )
        )
    return jobs


def _philly(table: Table, node_gpus: int) -> list[Job]:
    table.know(PHILLY, needed=PHILLY)
    cells = table.reader(
        {"submit_s": seconds(), "duration_s": seconds(), "num_gpus": whole(0, 100_000)}
    )
    shapes, jobs, names = Shapes(), [], _Names(table, "job_id")
    for row in table.rows():
        duration = cells.get(row, "duration_s")
        if duration is None:
            table.wrong("duration_s", "", f"a number from 0 to {MOST_SECONDS:,}")
        gpus = cells.get(row, "num_gpus") or 0
        each = split(gpus, node_gpus)
        workers = gpus // each if each else 1
        jobs.append(
            Job(
                names.take(cells.text(row, "job_id")),
                cells.get(row, "submit_s") or 0,
                duration,
                workers,
                shapes.needs(workers, gpus=each),
                cells.text(row, "vc", "default"),
            )
        )
    return jobs


def split(gpus: int, node_gpus: int) -> int:
    """GPUs of each worker: as many as fit one node and divide the whole."""
    most = max(1, min(gpus, node_gpus))
    return next((each for each in range(most, 0, -1) if gpus % each == 0), gpus) if gpus else 0


def _pods(table: Table) -> list[Job]:
    """Pods run from when they were scheduled until they were deleted. Those that never were have
    no known duration: they are taken to run as long as they existed."""
    table.know(PODS, needed=("pod_id", "create_s", "delete_s", "num_gpu", "gpu_milli"))
    cells = table.reader(
        {
            "create_s": seconds(),
            "sched_s": seconds(),
            "delete_s": seconds(),
            "cpu_milli": whole(0),
            "mem_mib": whole(0, 1 << 40),
            "num_gpu": whole(0, 10_000),
            "gpu_milli": whole(0, 1000),
        }
    )
    shapes, jobs, names = Shapes(), [], _Names(table, "pod_id")
    for row in table.rows():
        get = cells.get
        gpus, milli = get(row, "num_gpu") or 0, get(row, "gpu_milli") or 0
        share = milli if gpus == 1 and 0 < milli < 1000 else 0
        begin = get(row, "sched_s")
        begin = (get(row, "create_s") or 0) if begin is None else begin
        quality = cells.text(row, "qos", "default")
        jobs.append(
            Job(
                names.take(cells.text(row, "pod_id")),
                get(row, "create_s") or 0,
                max(0, (get(row, "delete_s") or 0) - begin),
                1,
                shapes.needs(
                    1,
                    gpus=0 if share else gpus,
                    gpu_milli=share,
                    cpus_milli=get(row, "cpu_milli") or 0,
                    memory_bytes=(get(row, "mem_mib") or 0) * 2**20,
                    models=_models(cells.text(row, "gpu_spec")),
                ),
                quality,
                priority=80 if quality == "LS" else 50,
                kind="serve" if quality == "LS" else "train",
            )
        )
    return jobs


def _archive(table: Table) -> list[Job]:
    """A processor is a worker of one CPU. Jobs whose run time is unknown are left out."""
    table.know(ARCHIVE, needed=("job_id", "submit_s", "run_s", "procs_req", "walltime_req_s"))
    cells = table.reader(
        {
            "submit_s": seconds(),
            "run_s": scaled(1000, -1, MOST_SECONDS),
            "procs_used": whole(-1, MOST_WORKERS),
            "procs_req": whole(-1, MOST_WORKERS),
            "walltime_req_s": scaled(1000, -1, MOST_SECONDS),
        }
    )
    shapes, jobs, names = Shapes(), [], _Names(table, "job_id")
    for row in table.rows():
        get = cells.get
        run, asked = get(row, "run_s"), get(row, "procs_req") or 0
        if asked <= 0:
            asked = get(row, "procs_used") or 0
        if run is None or run < 0 or asked <= 0:
            continue
        limit = get(row, "walltime_req_s") or 0
        jobs.append(
            Job(
                names.take(cells.text(row, "job_id")),
                get(row, "submit_s") or 0,
                run,
                asked,
                shapes.needs(asked, cpus_milli=1000),
                "default",
                cells.text(row, "user"),
                walltime_ms=limit if limit > 0 else None,
            )
        )
    return jobs


def _nodes(table: Table) -> list[Offer]:
    table.know(NODE_FORM)
    cells = table.reader(NODE_COLUMNS)
    offers: list[Offer] = []
    lines: dict[str, int] = {}
    for row in table.rows():
        get, text = cells.get, cells.text
        name = text(row, "node") or f"node-{table.line}"
        count = get(row, "count")
        names = [name] if count in (None, 1) else [f"{name}-{at}" for at in range(count or 0)]
        cpus, memory = get(row, "cpus"), get(row, "memory_gb")
        for each in names:
            if each in lines:
                table.wrong("node", each, f"unique: line {lines[each]} has it, too")
            lines[each] = table.line
            offers.append(
                Offer(
                    each,
                    cpus_milli=UNLIMITED if cpus is None else cpus,
                    memory_bytes=UNLIMITED if memory is None else memory,
                    gpus=get(row, "gpus") or 0,
                    gpu_model=text(row, "gpu_model"),
                    rack=text(row, "rack"),
                    block=text(row, "block"),
                )
            )
            if len(offers) > MOST_COUNT // 10:
                table.wrong("count", str(count), f"within {MOST_COUNT // 10:,} nodes in all")
    return offers


def _seated(table: Table) -> list[Offer]:
    table.know(SEATED, needed=SEATED)
    cells = table.reader(
        {"cpu_milli": whole(0), "mem_mib": whole(0, 1 << 40), "gpus": whole(0, 10_000)}
    )
    names = _Names(table, "node_id")
    return [
        Offer(
            "n" + names.take(cells.text(row, "node_id")),
            cpus_milli=cells.get(row, "cpu_milli") or 0,
            memory_bytes=(cells.get(row, "mem_mib") or 0) * 2**20,
            gpus=cells.get(row, "gpus") or 0,
            gpu_model=cells.text(row, "gpu_model"),
        )
        for row in table.rows()
    ]


class _Names:
    """Names of rows, each once."""

    def __init__(self, table: Table, column: str) -> None:
        self._table, self._column = table, column
        self._lines: dict[str, int] = {}

    def take(self, name: str) -> str:
        if not name:
            self._table.wrong(self._column, name, "a name")
        if name in self._lines:
            first = self._lines[name]
            self._table.wrong(self._column, name, f"unique: line {first} has it, too")
        self._lines[name] = self._table.line
        return name


def _models(text: str) -> tuple[str, ...]:
    return tuple(sorted({word.strip() for word in text.split("|") if word.strip()}))
