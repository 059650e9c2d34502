"""The attempt's private temporary folder."""

from __future__ import annotations

import os

# A Unix socket's path has at most 107 bytes; multiprocessing adds 32 to the temporary folder's.
_MAX_TMP_PATH = 70
_SHORT_TMP = "/tmp/windlass-"


def make(directory: str) -> str:
    """The folder for TMPDIR: `tmp`, or a short one elsewhere to which `tmp` then leads."""
    path = os.path.join(directory, "tmp")
    if len(os.fsencode(path)) <= _MAX_TMP_PATH:
        os.makedirs(path, 0o700, exist_ok=True)
        return path
    short = _SHORT_TMP + os.urandom(8).hex()
    os.mkdir(short, 0o700)
    os.symlink(short, path)
    return short


def remove_work(directory: str) -> None:
    """The code that was laid out, of which nothing ran."""
    import shutil

    shutil.rmtree(os.path.join(directory, "work"), ignore_errors=True)


def remove(directory: str) -> None:
    """The private temporary folder goes with the attempt, wherever it lies."""
    path = os.path.join(directory, "tmp")
    if os.path.islink(path):
        target = os.readlink(path)
        os.unlink(path)
        if not target.startswith(_SHORT_TMP):
            return
        path = target
    try:
        os.rmdir(path)
    except OSError:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
