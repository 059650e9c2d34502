"""docs/reference/events.md: what the feed tells."""

from __future__ import annotations

from docs.writers.markdown import code, table
from windlass.core.events import KINDS, EventView

FIELDS = {
    "cursor": "where to go on from: `GET /api/v1/feed?cursor=…`, or `Last-Event-ID`",
    "job": "the job's id; null for events about nodes, queues and quotas",
    "job_name": "the job's name",
    "seq": "1, 2, 3 … within the job",
    "attempt": "the attempt it belongs to; null before the first",
    "kind": "one of the kinds above",
    "at": "when it was written, ISO-8601 UTC",
    "state": "the job's state after it",
    "reason": "one sentence for people",
    "data": "what a program may want to know, by kind",
}


def page() -> str:
    return "\n".join(
        [
            "# Events\n",
            "Whatever happens to a job is an event, written in the transaction that made it so. "
            "`windlass events JOB` lists them, `GET /api/v1/feed` streams those of a project and "
            "`GET /api/v1/jobs/{ref}/stream` those of one job together with its output.\n",
            table(("kind", "what happened"), [(code(k), words) for k, words in KINDS.items()]),
            "An event:\n",
            table(
                ("field", "what it is"),
                [(code(name), FIELDS[name]) for name in EventView.model_fields],
            ),
        ]
    )
