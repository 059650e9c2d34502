"""Which files of its directory a worker may mirror, and how each is kept.

Only names that the server itself would read there, so that nothing else can be laid into the
server's home: the worker's token is in reach of the job that it runs.
"""

from __future__ import annotations

import re

from windlass.core.errors import InvalidInput
from windlass.core.paths import plain_path

EXIT = "exit.json"
WHOLE = ("worker.json", EXIT)
"""Small, and sent in one piece: there whole or not at all."""
_GROWING = "worker.log"
_LOG = re.compile(r"logs/[A-Za-z0-9][A-Za-z0-9_.-]{0,100}\.(out|err)\.[0-9]{6}\.(log|idx)")
_CHOICES = "worker.json, worker.log, exit.json, logs/*.log, logs/*.idx or out/…"


def checked(path: str) -> tuple[str, ...]:
    """The parts of a path that may be mirrored. Raises InvalidInput."""
    if path in WHOLE or path == _GROWING or _LOG.fullmatch(path):
        return tuple(path.split("/"))
    if path.startswith("out/"):
        return tuple(plain_path(path).split("/"))
    raise InvalidInput(f"path: {_CHOICES} (found {ascii(path)[:200]})")


def is_output(parts: tuple[str, ...]) -> bool:
    """A file of the job's own, not one of the worker's."""
    return parts[0] == "out"
