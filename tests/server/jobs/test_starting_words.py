"""What an engine says of workers that have not come reaches who asks why; a silent one does not
hold him up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from windlass.core.errors import Unavailable
from windlass.engines.base import Seen, Sight
from windlass.server.engines import words
from windlass.server.jobs.why import why

JOB = {"id": "j", "name": "train", "state": "starting", "outcome": None}
ATTEMPT = {"id": "a" * 32, "engine": "k8s", "launched_ms": 1}
WORKERS = [{"node": "n1", "registered_ms": 5}, {"node": "n2", "registered_ms": None}]


class Engine:
    name = "k8s"

    def __init__(self, reason: str | Exception) -> None:
        self._reason = reason

    async def observe(self, wanted: Sequence[tuple[str, str]]) -> list[Seen]:
        if isinstance(self._reason, Exception):
            raise self._reason
        return [Seen(*place, Sight.STARTING, None, self._reason) for place in wanted]


def _said(reason: str | Exception, **changes: Any) -> dict[str, str]:
    engines: Any = {"k8s": Engine(reason)}
    return asyncio.run(words.of_missing(engines, {**ATTEMPT, **changes}, WORKERS))


def test_the_sentence_says_what_the_cluster_says() -> None:
    said = _said("its pod is not scheduled: 1 Insufficient cpu")
    answer = why(JOB, [ATTEMPT], WORKERS, [], None, 0, said)
    assert answer.sentence == (
        "starting: 1 of 2 workers are there, waiting for n2: "
        "its pod is not scheduled: 1 Insufficient cpu"
    )


def test_without_a_word_it_says_who_is_missing() -> None:
    for said in (_said(""), _said(Unavailable("away")), _said("x", engine="gone"),
                 _said("x", engine="local"), _said("x", launched_ms=None)):  # fmt: skip
        assert said == {}
        answer = why(JOB, [ATTEMPT], WORKERS, [], None, 0, said)
        assert answer.sentence == "starting: 1 of 2 workers are there, waiting for n2"
