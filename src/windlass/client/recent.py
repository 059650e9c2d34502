"""Jobs lately seen by this user: what `-` means, and what TAB offers without asking anyone.

A file in the cache directory. It is only a memory: losing it, or two commands writing it at
once, costs a suggestion and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from windlass.client.jobs import Job
from windlass.client.places import cache_dir, write_private

KEPT = 200


def remember(url: str, jobs: Iterable[Job], *, submitted: bool = False) -> None:
    """Put jobs (newest first) in front; `submitted`: the first of them is the last job now."""
    seen = [[job.id, job.name] for job in jobs]
    if not seen:
        return
    whole = _read()
    mine = whole.get(url) or {}
    ids = {entry[0] for entry in seen}
    old = [entry for entry in mine.get("jobs", []) if entry[0] not in ids]
    last = seen[0][0] if submitted else mine.get("last")
    whole[url] = {"last": last, "jobs": (seen + old)[:KEPT]}
    try:
        write_private(cache_dir() / "recent.json", json.dumps(whole, separators=(",", ":")))
    except OSError:
        pass


def last(url: str) -> str | None:
    """The id of the job this user submitted last from here."""
    found = (_read().get(url) or {}).get("last")
    return found if isinstance(found, str) else None


def names(url: str) -> list[tuple[str, str]]:
    """(id, name), newest first."""
    return [(str(entry[0]), str(entry[1])) for entry in (_read().get(url) or {}).get("jobs", [])]


def _read() -> dict[str, dict[str, Any]]:
    try:
        value = json.loads((cache_dir() / "recent.json").read_text(encoding="utf-8"))
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError):
        return {}
