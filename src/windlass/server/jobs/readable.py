"""Whether the rows of a live job say what they should, before anything is decided by them.

One that does not is ended like one over its time limit, with its grace, and fails with the reason:
what it runs cannot be told, so it can neither be judged nor started again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.errors import Unreadable
from windlass.core.jobs import JobSpec
from windlass.server.reading import placement_of, record_of, spec_of
from windlass.server.store.metadata import Garbled

Row = dict[str, Any]
STAND_IN = JobSpec.model_validate(
    # Whether it has secrets is not known: what it left is read as if it had.
    {"run": ["-"], "retry": {"on": []}, "environment": {"secrets": ["UNKNOWN"]}}
)


def look_over(
    job: Mapping[str, Any], attempt: Mapping[str, Any], workers: Sequence[Row]
) -> tuple[JobSpec, str]:
    """The spec, and why the rows cannot be read ("": they can). A record that cannot is replaced
    by one that says so: there is one, so nothing runs there any more."""
    wrong = []
    for worker in workers:
        for column in ("ranks", "ended_ranks"):
            if isinstance(worker[column], Garbled):  # of a beat: the next one is whole again
                worker[column] = None
        try:
            record_of(worker)
        except Unreadable as err:
            wrong.append(err.message)
            worker["record"] = {
                "node": worker["node"], "outcome": "failed", "reason": err.message, "ranks": [],
            }  # fmt: skip
    try:
        spec = spec_of(job)
        placement_of(attempt, spec)
    except Unreadable as err:
        wrong.insert(0, err.message)
    return (STAND_IN, wrong[0]) if wrong else (spec, "")
