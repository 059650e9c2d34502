"""Lines of a spool: what a rank logged, one JSON object each (docs/internals/protocol.md). User
code may have written anything there."""

from __future__ import annotations

import json
from typing import Any


def line_of(raw: bytes) -> dict[str, Any] | None:
    """What a line says; None for what is none, or what no database could keep."""
    if not raw.strip() or b"\\u0000" in raw:
        return None
    try:
        found = json.loads(raw, parse_constant=str)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
