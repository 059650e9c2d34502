"""What a suite left behind: processes, folders, cgroups. A test ends what it started."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

MARK = "WINDLASS_SUITE"
"""All that a suite starts finds its folder under this name in its environment."""
_FOLDERS = ("windlass-", "wl-", "wlpg-", "ray-", "board-", "bench-")
"""How the folders begin that our code and tests make; some in /tmp itself, for a short path."""
_TOLD = (b"PYTEST_CURRENT_TEST=", b"WINDLASS_ATTEMPT_ID=")
_PATIENCE_S = 20.0


class Room:
    """A folder of its own for all that a suite writes, and a look at what is there before."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="w", dir="/tmp"))
        self.folder.chmod(0o711)  # tests become other users, who find what was made for them
        self._neighbours = bool(_processes(self._mark, ours=False))
        self._folders = _folders(Path("/tmp"))
        self._cgroups = _cgroups()

    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.folder), MARK: str(self.folder)}

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def left(self) -> tuple[list[str], list[str]]:
        """What is there now and was not before, in words: what is ours, and what may be that of
        others who test on this machine now. What is about to end may do so."""
        until = time.monotonic() + _PATIENCE_S
        while (processes := _processes(self._mark, ours=True)) and time.monotonic() < until:
            time.sleep(0.2)
        ours = [f"process {pid}: {words}" for pid, words in processes.items()]
        # What torch and Chromium leave in the room goes with it.
        ours += [f"folder {path}" for path in sorted(_folders(self.folder))]
        new = _folders(Path("/tmp")) - self._folders
        around = [f"folder {path}" for path in sorted(new)]
        around += [f"cgroup {path}" for path in sorted(_cgroups() - self._cgroups)]
        if self._neighbours or _processes(self._mark, ours=False):
            return ours, around
        return ours + around, []

    @property
    def _mark(self) -> bytes:
        return f"{MARK}={self.folder}".encode()


def _processes(mark: bytes, *, ours: bool) -> dict[int, str]:
    """Those that the suite has started, or those that others test with."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marks = (entry / "environ").read_bytes().split(b"\0")
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")[:150]
            told = [each for each in marks if each.startswith(_TOLD)]
            others = mark not in marks and (told or b"pytest" in words)
            meant = mark in marks if ours else others
            if words and meant and int(entry.name) != os.getpid():
                found[int(entry.name)] = b" ".join([words, *told]).decode(errors="replace")
        except OSError:
            continue
    return found


def _folders(where: Path) -> set[Path]:
    return {path for path in where.iterdir() if path.name.startswith(_FOLDERS)}


def _cgroups() -> set[Path]:
    root = Path("/sys/fs/cgroup")
    return {path for deep in ("*", "*/*") for path in root.glob(deep) if "windlass-" in path.name}
