"""The audit log as it is seen from outside: what a row says, and how rows are chained.

    hash(n) = SHA-256( hash(n-1) + the row n as JSON, without its hash )

The JSON has its keys sorted, no spaces, and nothing but ASCII; before the first row stand 64
zeros. A row's project and number are in the JSON, so a row of another chain or place does not fit.
Who holds an export can check it with this rule and nothing of ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.core.strict import Strict

BEGINNING = "0" * 64
"""What stands before the first row of a chain."""

FIELDS = (
    "number", "at", "project_id", "project", "user_id", "user", "credential", "source",
    "request_id", "action", "object", "outcome", "times", "details", "hash",
)  # fmt: skip

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


class AuditRow(Strict):
    """One act: who did what to which object, from where, and what became of it."""

    number: int
    """Its place in its chain, from 1."""
    at: str
    project_id: str
    """The chain; "" is that of the whole server."""
    project: str
    user_id: str
    user: str
    credential: str
    """The access key, or the id of the token or session; for one that was refused, as claimed."""
    source: str
    request_id: str
    action: str
    object: str
    outcome: str
    """`ok`, `replayed` (an idempotency key's first answer), or the code of the refusal."""
    times: int
    """How many like it this row stands for; more than 1 only for refusals."""
    details: dict[str, Any]
    hash: str


class AuditHead(Strict):
    """The end of a chain: keep it elsewhere, and nobody can cut the chain short unseen."""

    project_id: str
    number: int
    hash: str
    noted_number: int
    """As the server's own file has it, which is not in the database."""
    noted_hash: str
    lost: tuple[dict[str, Any], ...]
    """Heads that the file had and the chain had no more when a server started."""


def link(previous: str, row: Mapping[str, Any]) -> str:
    """The hash of a row (its own `hash` is left out) after the one before it."""
    content = {name: value for name, value in row.items() if name != "hash"}
    return hashlib.sha256((previous + _ENCODER.encode(content)).encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a walk along a chain found. `broken` names the first row that does not fit."""

    rows: int = 0
    first: int = 0
    last: int = 0
    hash: str = BEGINNING
    broken: int | None = None
    why: str = ""

    @property
    def sound(self) -> bool:
        return self.broken is None


def verify(rows: Iterable[Mapping[str, Any]], heads: Mapping[int, str] | None = None) -> Verdict:
    """Walk a chain from its first row, or from the middle: then that row is taken on trust.

    `heads`: hashes by number that were kept elsewhere. A chain that ends before one of them was
    cut short; one that has another hash there was written anew.
    """
    kept = dict(heads or {})
    count = first = last = 0
    previous = BEGINNING
    for row in rows:
        number, stated = int(row["number"]), str(row["hash"])
        if not count:
            first = number
            trusted = number != 1
        else:
            trusted = False
            if number != last + 1:
                why = f"row {last + 1} is missing"
                return Verdict(count, first, last, previous, last + 1, why)
        if not trusted and link(previous, row) != stated:
            why = f"row {number} is not what was written, or what stood before it is gone"
            return Verdict(count, first, last, previous, number, why)
        if kept.get(number, stated) != stated:
            why = f"row {number} has another hash than the one that was kept: written anew"
            return Verdict(count, first, last, previous, number, why)
        kept.pop(number, None)
        previous, last = stated, number
        count += 1
    beyond = sorted(number for number in kept if number > last)
    if beyond:
        why = f"the chain ends at {last}, but row {beyond[-1]} was there once: its end is cut off"
        return Verdict(count, first, last, previous, last + 1, why)
    return Verdict(count, first, last, previous)
