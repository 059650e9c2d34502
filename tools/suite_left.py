"""What a suite left behind: processes, folders, cgroups. A test ends what it started."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

MARK = "WINDLASS_SUITE"
"""All that a suite starts finds its folder under this name in its environment."""
_OUTSIDE = ("windlass-", "wl-", "wlpg-", "ray-", "board-", "bench-")
"""Folders that ours make in /tmp itself, where a path must be short."""
_OWN = ("t", "beside", "alone", "again")
_PATIENCE_S = 20.0


class Room:
    """A folder of its own for all that a suite writes, and a look at what is there before."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="w", dir="/tmp"))
        self._folders = _folders()
        self._cgroups = _cgroups()

    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.folder), MARK: str(self.folder)}

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def left(self) -> list[str]:
        """What is there now and was not before, in words. What is about to end may do so."""
        until = time.monotonic() + _PATIENCE_S
        while (processes := _processes(str(self.folder))) and time.monotonic() < until:
            time.sleep(0.2)
        found = [f"process {pid}: {words}" for pid, words in processes.items()]
        inside = (path for path in self.folder.iterdir() if path.name not in _OWN)
        found += [f"folder {path}" for path in sorted([*inside, *(_folders() - self._folders)])]
        found += [f"cgroup {path}" for path in sorted(_cgroups() - self._cgroups)]
        return found


def _processes(mark: str) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marks = (entry / "environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in marks and int(entry.name) != os.getpid():
                words = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                if words:
                    found[int(entry.name)] = words.strip()[:150]
        except OSError:
            continue
    return found


def _folders() -> set[Path]:
    return {path for path in Path("/tmp").iterdir() if path.name.startswith(_OUTSIDE)}


def _cgroups() -> set[Path]:
    root = Path("/sys/fs/cgroup")
    return {path for deep in ("*", "*/*") for path in root.glob(deep) if "windlass-" in path.name}
