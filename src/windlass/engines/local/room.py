"""Whether this machine has what a start needs: a look before each, a try where one has failed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from windlass.engines import needs, spawn

LEAST_BYTES = 1 << 20
LEAST_INODES = 64
_DESCRIPTORS = 64
"""As many as starts that are under way at once may want."""


def lacking(folder: Path) -> tuple[str, str]:
    """(what there is too little of, in words); a look, which costs nothing. Two empty strings when
    there is room."""
    found = os.statvfs(folder)
    if found.f_files and found.f_favail < LEAST_INODES:
        return needs.INODES, f"{folder} has {found.f_favail} inodes left"
    left = found.f_bavail * found.f_frsize
    if left < LEAST_BYTES:
        return "disk space", f"{folder} has {left >> 10} KiB left"
    return "", ""


def lacks(command: Sequence[str], folder: Path) -> str:
    """The same as a start would find it: files, descriptors, a process. Empty, or why not."""
    try:
        need, words = lacking(folder)
        if need:
            return needs.sentence(need, words)
        with ExitStack() as held:
            file = held.enter_context(tempfile.TemporaryFile(dir=folder))
            file.write(bytes(LEAST_BYTES))
            file.flush()
            for _ in range(_DESCRIPTORS):
                held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
    except OSError as err:
        return needs.sentence(needs.of(err) or "room", err)
    return spawn.try_out(command, folder)
