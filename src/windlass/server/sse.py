"""Server-sent events, as bytes."""

from __future__ import annotations

import json
from typing import Any

PING = b": still here\n\n"
PING_SECONDS = 15.0


def message(kind: str, data: Any, cursor: str | None = None) -> bytes:
    head = f"id: {cursor}\n" if cursor is not None else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()
