"""One file from the server, by its digest: what is here already is not sent again, a download that
was cut goes on where it stood, and what came is what was named."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import closing
from pathlib import Path

from windlass.client.http import Http
from windlass.core.errors import Conflict, InvalidInput, Unreachable

_PATIENCE = 5
"""So many times in a row nothing may come before it is given up."""


def fetch(http: Http, address: str, target: Path, digest: str, size: int) -> bool:
    """Whether anything had to be sent. Raises InvalidInput when other bytes came, Unreachable."""
    if target.is_file() and target.stat().st_size == size and digest_of(target) == digest:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{digest[:24]}.part")
    idle = 0
    while not draft.exists() or draft.stat().st_size < size:
        before = draft.stat().st_size if draft.exists() else 0
        try:
            _append(http, address, draft, before, digest)
        except Unreachable:
            idle = idle + 1 if draft.exists() and draft.stat().st_size == before else 0
            if idle > _PATIENCE:
                raise
            time.sleep(min(2.0, 0.1 * 2**idle))
        except Conflict:
            draft.unlink(missing_ok=True)
            raise
        if size == 0:
            break
    if digest_of(draft) != digest:
        draft.unlink()
        raise InvalidInput(f"{target.name} came with other bytes than its digest says: again")
    os.replace(draft, target)
    return True


def digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _append(http: Http, address: str, draft: Path, start: int, digest: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(draft, flags, 0o644), "wb") as out:
        out.seek(start)
        with closing(http.blocks(address, start=start, tag=digest)) as answer:
            for block in answer:
                out.write(block)
