"""S-I14: what attempts held, seen from outside at each commit, is what the ledger says.

The books here are kept from the rows of attempts alone, with arithmetic of their own; they outlive
the removal of jobs, as the ledger must.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from windlass.testing.simulated.disk import Disk

Amount = tuple[int, int, int]
_UNPAID = ("preempt", "resize")


class Books:
    """Asked at each commit; `wrong` once everything is at rest."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._seen: dict[str, dict[str, Any]] = {}
        self._entries = 0

    def look(self) -> None:
        for row in self._disk.rows(
            "SELECT a.id, a.state, a.number, a.created_ms, a.over_ms, a.ending_ms, a.ending_wish,"
            " a.outcome, a.placement, j.spec, j.id AS job, j.project_id, j.user_id,"
            " (SELECT max(registered_ms) FROM checkpoints c WHERE c.job_id = j.id"
            "  AND c.attempt = a.number AND c.bad IS NULL) AS saved_ms"
            " FROM attempts a JOIN jobs j ON j.id = a.job_id"
        ):
            if self._seen.get(row["id"], {}).get("state") != "over":
                self._seen[row["id"]] = row

    def wrong(self) -> Iterator[str]:
        told: dict[str, dict[str, Amount]] = defaultdict(lambda: defaultdict(lambda: (0, 0, 0)))
        spans: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        entries = self._disk.rows(
            "SELECT l.*, h.project_id AS whose, h.user_id FROM ledger l JOIN holdings h"
            " ON h.attempt_id = l.attempt_id AND h.part = l.part ORDER BY l.from_ms, l.to_ms"
        )
        for row in entries:
            line = {"refund": "run"}.get(row["kind"], row["kind"])
            old = told[row["attempt_id"]][line]
            told[row["attempt_id"]][line] = _plus(old, (row["cpu"], row["memory"], row["gpu"]))
            if row["kind"] != "refund":
                spans[row["attempt_id"], row["part"]].append((row["from_ms"], row["to_ms"]))
        for attempt_id, at in self._seen.items():
            if at["state"] == "over":
                yield from _compare(at, dict(told.pop(attempt_id, {})))
        for attempt_id in told:
            if attempt_id not in self._seen:
                yield f"S-I14 the ledger has attempt {attempt_id[-4:]}, which nobody saw"
        yield from self._sums(entries)

    def _sums(self, entries: list[dict[str, Any]]) -> Iterator[str]:
        """The sums by day are those of the entries, as far as they go."""
        reached = self._disk.rows("SELECT ledger_id FROM usage_cursor")
        upto = reached[0]["ledger_id"] if reached else 0
        sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * 5)
        for row in entries:
            if row["id"] <= upto:
                key = (row["from_ms"] // 86_400_000, row["whose"], row["user_id"], row["kind"])
                values = (row["cpu"], row["memory"], row["gpu"], row["cost"], 1)
                sums[key] = [a + b for a, b in zip(sums[key], values, strict=True)]
        days: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * 5)
        for row in self._disk.rows("SELECT * FROM usage_days"):
            key = (row["day"], row["project_id"], row["user_id"], row["kind"])
            values = (row["cpu"], row["memory"], row["gpu"], row["cost"], row["entries"])
            days[key] = [a + b for a, b in zip(days[key], values, strict=True)]
        if sums != days:
            yield f"S-I14 the sums by day are {dict(days)}, of the entries {dict(sums)}"


def _compare(at: dict[str, Any], told: dict[str, Amount]) -> Iterator[str]:
    rate: Amount = (0, 0, 0)
    roles = json.loads(at["spec"])["roles"]
    for placed in json.loads(at["placement"]):
        role = roles[placed["role"]]
        mib = -(-role["memory"] // 2**20)
        gpu = role["gpus"] * 1000 + round(role["gpu_share"] * 1000)
        rate = _plus(rate, (round(role["cpus"] * 1000), mib, gpu))
    created, over = at["created_ms"], at["over_ms"]
    lines = {"run": over - created}
    if at["outcome"] == "preempted" and at["ending_wish"] in _UNPAID:
        ending = at["ending_ms"]
        saved = min(at["saved_ms"] or created, ending)
        lines = {"run": saved - created, "lost": ending - saved, "grace": over - ending}
    for line in {*lines, *told}:
        length = lines.get(line, 0)
        asked = tuple(each * length for each in rate)
        if told.get(line, (0, 0, 0)) != asked:
            yield (
                f"S-I14 attempt {at['number']} of job {at['job'][:8]}: {line} {asked} held, "
                f"the ledger has {told.get(line)}"
            )


def _plus(one: Amount, other: Amount) -> Amount:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])
