"""/metrics: the server in Prometheus' text form, for those who have one. Needs a credential, such
as an API token with the scope `read`; what it tells is what that user sees."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import PlainTextResponse
from sqlalchemy import Connection, select
from starlette.requests import Request

from windlass import __version__
from windlass.core.access import Principal, Right
from windlass.core.jobs import LIVE, JobState
from windlass.server.access.calls import Call
from windlass.server.access.tenant import of_tenant
from windlass.server.http.marks import require
from windlass.server.http.openapi import answers
from windlass.server.http.tally import BOUNDS, Tally
from windlass.server.jobs import service as jobs
from windlass.server.jobs.tables import jobs as job_rows
from windlass.server.nodes.routes import NodeView, every_node
from windlass.server.parts import Wired
from windlass.server.runs import system

router = APIRouter(tags=["status"])

MOST_JOBS = 200
"""Jobs whose last system values are told; the newest ones."""
FORM = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[dict[str, str], float]


@router.get("/metrics", response_class=PlainTextResponse, responses=answers("text/plain"))
async def metrics(
    call: Annotated[Call, Depends(require(Right.SERVER_READ))], parts: Wired, request: Request
) -> PlainTextResponse:
    """Jobs by state, nodes, GPUs, what running jobs use, and requests by route, in Prometheus'
    text form."""
    who = call.principal
    counts = await parts.store.read(lambda conn: jobs.counts(conn, who))
    running = await parts.store.read(lambda conn: _running(conn, who))
    used = await parts.tracking.read(
        lambda conn: {job_id: system.last_values(conn, job_id) for job_id in running}
    )
    nodes = await every_node(parts, who)
    since = (parts.clock.now_ms() - parts.started_ms) / 1000
    families = [
        *_server(who, counts, since),
        *_nodes(nodes),
        *_jobs({job_id: (name, used[job_id]) for job_id, name in running.items()}),
        *_requests(request.app.tally),
    ]
    return PlainTextResponse("".join(families), media_type=FORM)


def _running(conn: Connection, who: Principal) -> dict[str, str]:
    rows = conn.execute(
        select(job_rows.c.id, job_rows.c.name)
        .where(of_tenant(job_rows.c.project_id, who), job_rows.c.state.in_(sorted(LIVE)))
        .order_by(job_rows.c.order_ms.desc())
        .limit(MOST_JOBS)
    )
    return {row.id: row.name for row in rows}


def _server(who: Principal, counts: dict[str, int], seconds: float) -> Iterator[str]:
    project = {"project": who.project_name}
    states = [state for state in JobState if state.value in counts or state in LIVE]
    yield _family("windlass_info", "gauge", "The server", [({"version": __version__}, 1)])
    yield _family("windlass_uptime_seconds", "counter", "Since it started", [({}, seconds)])
    yield _family(
        "windlass_jobs", "gauge", "Unfinished jobs of the project by state",
        [({**project, "state": each.value}, counts.get(each.value, 0)) for each in states],
    )  # fmt: skip
    yield _family(
        "windlass_queue_length", "gauge", "Jobs of the project that wait",
        [(project, counts.get(JobState.QUEUED.value, 0))],
    )  # fmt: skip
    yield _family(
        "windlass_process_memory_bytes", "gauge", "What the server holds", [({}, _memory())]
    )


def _nodes(nodes: Iterable[NodeView]) -> Iterator[str]:
    listed = [(each, {"node": each.name, "engine": each.engine}) for each in nodes]
    yield _family(
        "windlass_node_ready", "gauge", "1 where jobs can start",
        [(labels, float(each.state == "ready")) for each, labels in listed],
    )  # fmt: skip
    for name, words in (("gpus", "GPUs"), ("cpus_milli", "Thousandths of a CPU"),
                        ("memory_bytes", "Bytes of memory")):  # fmt: skip
        yield _family(
            f"windlass_node_{name}", "gauge", f"{words} of a node",
            [(labels, _amount(each.capacity, name)) for each, labels in listed],
        )  # fmt: skip
        yield _family(
            f"windlass_node_{name}_free", "gauge", f"{words} of a node that are free",
            [(labels, _amount(each.free, name)) for each, labels in listed if each.free],
        )  # fmt: skip


def _jobs(used: dict[str, tuple[str, dict[int, dict[str, float]]]]) -> Iterator[str]:
    by_name: dict[str, list[Sample]] = {}
    for job_id, (job, ranks) in used.items():
        for rank, values in ranks.items():
            labels = {"job": job, "id": job_id, "rank": str(rank)}
            for name, value in values.items():
                by_name.setdefault(name, []).append((labels, value))
    for name, samples in sorted(by_name.items()):
        yield _family(f"windlass_job_{name}", "gauge", "Of a rank, last seen", samples)


def _requests(tally: Tally) -> Iterator[str]:
    yield _family(
        "windlass_http_requests_total", "counter", "Requests by route, method and kind of answer",
        [
            ({"route": route, "method": method, "status": kind}, count)
            for route, method, kind, count in tally.answers()
        ],
    )  # fmt: skip
    name = "windlass_http_request_seconds"
    lines = [f"# HELP {name} Seconds until an answer began\n# TYPE {name} histogram\n"]
    for route, method, counts, total in tally.spans():
        labels = {"route": route, "method": method}
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
            lines.append(_line(f"{name}_bucket", {**labels, "le": bound}, count))
        lines.append(_line(f"{name}_sum", labels, total))
        lines.append(_line(f"{name}_count", labels, counts[-1]))
    yield "".join(lines)


def _amount(resources: object, name: str) -> float:
    return float(getattr(resources, name, 0) or 0)


def _family(name: str, kind: str, words: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {words}\n# TYPE {name} {kind}\n"]
    lines += [_line(name, labels, value) for labels, value in samples]
    return "".join(lines)


def _line(name: str, labels: dict[str, str], value: float) -> str:
    told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{told}}} {value:.10g}\n" if told else f"{name} {value:.10g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _memory() -> float:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return 0.0
