"""What happened, as the feed tells it."""

from __future__ import annotations

from typing import Any

from windlass.core.strict import Strict

KINDS: dict[str, str] = {
    "submitted": "a job was accepted",
    "moved": "a job changed its state (`data.from`, `data.to`)",
    "attempt": "an attempt changed its state",
    "wished": "somebody asked for a stop, a restart or a release",
    "code": "the job's code came out of its repository (`data.git`, `data.ref`, `data.commit`)",
    "checkpoint": "a checkpoint was registered",
    "bad-checkpoint": "a checkpoint failed its digest and is left aside",
    "hung": "a rank made no progress past its limit; the stacks are in `data`",
    "dropped": "output over the rate limit was dropped",
    "rank-lost": "a rank went away while the rest of its gang went on (`data.given_up`: for good)",
    "rank-back": "a rank that went away was started again (`data.restarts`: how often by now)",
    "note": "something worth knowing",
    "removed": "a job was removed with all that belonged to it",
    "requeued": "a waiting job got another priority or another place in its queue",
    "rules": "queues, quotas, prices or budgets were changed (`data.of`, `data.names`)",
    "budget": "a part of a budget is spent (`data.percent`, `data.of`, `data.name`)",
    "study": "a study was made, changed, moved on, or has a new result (`data.study`, "
    "`data.name`, `data.state`)",
    "model": "a model came, changed or went, or a version or an alias of it (`data.model`, "
    "`data.name`)",
    "people": "users, projects, secrets, keys or limits were changed (`data.of`)",
    "node": "a node came, went, was paused for want of room, or became unhealthy",
}


class EventView(Strict):
    cursor: str
    job: str | None
    job_name: str | None
    seq: int
    attempt: int | None
    kind: str
    at: str
    state: str | None
    reason: str
    data: dict[str, Any]
