"""What an engine says of the workers of a job that starts: why a pod or a batch job waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.engines import LOCAL
from windlass.engines.base import Engine

log = logging.getLogger("windlass.server.engines")
_SECONDS = 3.0
_MOST_NODES = 20


async def of_missing(
    engines: Mapping[str, Engine],
    attempt: Mapping[str, Any] | None,
    workers: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    """By node, of workers that have not come yet. Nothing where the engine does not answer soon:
    whoever asks why a job waits must not wait himself."""
    if attempt is None or attempt["launched_ms"] is None or attempt["engine"] == LOCAL:
        return {}
    engine = engines.get(attempt["engine"])
    missing = [each["node"] for each in workers if not each["registered_ms"]][:_MOST_NODES]
    if engine is None or not missing:
        return {}
    try:
        async with asyncio.timeout(_SECONDS):
            seen = await engine.observe([(attempt["id"], node) for node in missing])
    except Exception as err:
        log.info("engine %s says nothing of attempt %s: %s", engine.name, attempt["id"], err)
        return {}
    return {each.node: each.reason for each in seen if each.reason}
