"""Page tokens in MLflow's form: where to go on, in base64."""

from __future__ import annotations

import base64
import binascii
import json

from windlass.server.mlflow.errors import invalid


def offset_of(token: str) -> int:
    if not token:
        return 0
    try:
        decoded = base64.b64decode(token)
    except (binascii.Error, ValueError):
        raise invalid("Invalid page token, could not base64-decode") from None
    try:
        parsed = json.loads(decoded)
    except ValueError:
        raise invalid(f"Invalid page token, decoded value={decoded!r}") from None
    offset = parsed.get("offset") if isinstance(parsed, dict) else None
    if not isinstance(offset, int) or not 0 < offset < 1 << 62:
        raise invalid(f"Invalid page token, parsed value={parsed}")
    return offset


def token_of(offset: int) -> str:
    return base64.b64encode(json.dumps({"offset": offset}).encode()).decode()
