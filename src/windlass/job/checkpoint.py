"""The one writer of checkpoints, and where to resume from.

    with windlass.checkpoint(step) as path:        path is an empty folder
        torch.save(state, path / "model.pt")       write whatever files you like
                                                   leaving the block makes it a checkpoint

The order is the promise; a kill or a failing disk at any point leaves the one before untouched:

    files, folders → disk      manifest with sizes and digests → disk
    rename to its final name   parent folder → disk
    register with the server (an attempt that is over is refused, and takes it back)
    old ones go, `keep` stay

An error of the disk is never retried as a success: after a failed fsync the kernel may have
dropped the data and would call the next fsync a success.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional

from windlass.job.context import Context, context, local_run_dirs
from windlass.job.gang import Gang
from windlass.job.log import note
from windlass.job.manifest import (
    MANIFEST,
    BadCheckpoint,
    Checkpoint,
    CheckpointError,
    FileEntry,
    list_and_sync,
    name_of,
    newest,
    sweep,
    sync_directory,
    verify,
    write_manifest,
)
from windlass.job.manifest import in_order as _in_order
from windlass.job.registry import CheckpointFenced, register
from windlass.job.spool import say

__all__ = [
    "BadCheckpoint",
    "Checkpoint",
    "CheckpointError",
    "CheckpointFenced",
    "checkpoint",
    "newest",
    "resume_from",
    "sweep",
    "verify",
]


@contextmanager
def checkpoint(
    step: int, *, ranks: str = "one", keep: Optional[int] = None, timeout_seconds: float = 600.0
) -> Iterator[Path]:
    """Save a checkpoint: yields an empty folder, and keeps what is put there, whole or not at all.

    `ranks="one"`: call it on one rank. `ranks="all"`: call it on every rank of the gang; each
    gets a folder `rank-<rank>` of its own inside the same checkpoint, and the block ends on all
    of them when rank 0 has committed all parts, or raises on all of them. `timeout_seconds`
    limits that wait. Of older checkpoints `keep` remain (at least 2; default
    $WINDLASS_CHECKPOINT_KEEP, else 3).

    A step of an attempt is saved once: a second save of it keeps the first. Raises
    `CheckpointFenced` when this attempt is over, `CheckpointError` when it could not be saved;
    the previous one is then still there. An exception in the block passes through and leaves
    nothing behind.
    """
    here = context()
    step = int(step)
    if step < 0:
        raise ValueError("a checkpoint's step is 0 or more, found %d" % step)
    if ranks not in ("one", "all"):
        raise ValueError('ranks is "one" or "all", found %r' % (ranks,))
    kept = max(2, here.checkpoint_keep if keep is None else int(keep))
    try:
        _make_directory(here.checkpoint_dir)
        if ranks == "all":
            gang = Gang(here, step, timeout_seconds)
            path = gang.enter()
        else:
            path = here.checkpoint_dir / _temporary_name(here.attempt, step)
            path.mkdir()
    except OSError as error:
        raise _not_saved(step, error) from error

    try:
        yield path
    except BaseException as error:
        if ranks == "all":
            gang.fail(error)
        _discard(path)
        raise

    try:
        if ranks == "all":
            gang.leave(lambda tree, files: _commit(here, step, tree, files, kept))
        else:
            _commit(here, step, path, list_and_sync(path), kept)
    except OSError as error:
        _discard(path)
        raise _not_saved(step, error) from error
    except BaseException:
        _discard(path)
        raise


def resume_from(local: bool = False) -> Optional[Path]:
    """The checkpoint to start from, its digests checked just now, or None to start afresh.

    On the platform it is the one the platform chose; when that turns out to be bad, the newest
    good one, and the bad one is reported. Off the platform nothing, unless `local`: then the
    newest good one that earlier runs of this script left under `./windlass-runs/`.
    """
    here = context()
    if here.resume_from is not None:
        try:
            return verify(here.resume_from).path
        except BadCheckpoint as error:
            _report_bad(here.resume_from, str(error))
        return _newest_and_report(here.checkpoint_dir, here.resume_from)
    if here.on_platform or not local:
        return None
    for run_dir in local_run_dirs(here):
        found = _newest_and_report(run_dir / "checkpoints", None)
        if found is not None:
            return found
    return None


def _commit(here: Context, step: int, tree: Path, files: List[FileEntry], keep: int) -> Checkpoint:
    """Make a checkpoint of a tree whose files are on the disk already."""
    if not files:
        raise CheckpointError("checkpoint of step %d: nothing was written into its folder" % step)
    if any(entry["path"] == MANIFEST for entry in files):
        raise CheckpointError("a checkpoint's own %s is ours: choose another name" % MANIFEST)
    digest = write_manifest(tree, job_id=here.job_id, attempt=here.attempt, step=step, files=files)
    final = here.checkpoint_dir / name_of(step, here.attempt)
    fresh = _place(tree, final, digest)
    if fresh:
        try:
            sync_directory(here.checkpoint_dir)
        except OSError:
            _withdraw(final, here.attempt, step)
            raise
    saved = Checkpoint(
        path=final,
        step=step,
        attempt=here.attempt,
        digest=digest,
        size_bytes=sum(entry["bytes"] for entry in files),
        created_ms=0,
    )
    if not fresh:
        _discard(tree)
        saved = verify(final)
    try:
        registered = register(here, saved)
    except CheckpointFenced:
        if fresh:
            _withdraw(final, here.attempt, step)
        raise
    _prune(here, saved, registered, keep)
    return saved


def _place(tree: Path, final: Path, digest: str) -> bool:
    """Give the tree its final name. False when this attempt has a good one of this step."""
    for _ in range(2):
        try:
            os.rename(str(tree), str(final))
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES):
                raise
            if not final.exists():
                raise
        try:
            first = verify(final)
        except BadCheckpoint as error:
            _report_bad(final, str(error))
            _withdraw(final, *_numbers(final))
            continue
        if first.digest != digest:
            say(
                "step %d was already saved by this attempt; the first checkpoint is kept "
                '(give each save its own step; in a gang save on one rank, or with ranks="all")'
                % first.step
            )
        return False
    raise CheckpointError("%s could not be replaced" % final)


_newest_registered: Dict[str, str] = {}
"""Per checkpoint directory, the name of the newest one the server took from this process."""


def _prune(here: Context, saved: Checkpoint, registered: bool, keep: int) -> None:
    """Remove old checkpoints, never the newest registered one; if that is unknown, none."""
    directory = here.checkpoint_dir
    if registered:
        _newest_registered[str(directory)] = saved.path.name
    protected = _newest_registered.get(str(directory))
    if protected is None and here.resume_from is not None:
        protected = here.resume_from.name
    if protected is None:
        return
    for old in _in_order(directory)[keep:]:
        if old.name not in (protected, saved.path.name):
            _withdraw(old, *_numbers(old))


def _withdraw(path: Path, attempt: int, step: int) -> None:
    """Make a checkpoint vanish at once, then remove it: half removed it would look bad."""
    aside = path.parent / _temporary_name(attempt, step)
    try:
        os.rename(str(path), str(aside))
    except OSError:
        try:
            (path / MANIFEST).unlink()
        except OSError as error:
            say("could not remove %s: %s" % (path, error))
            return
        aside = path
    _discard(aside)


def _discard(tree: Path) -> None:
    """Remove what is not a checkpoint. What resists is swept at the next attempt's start."""
    shutil.rmtree(str(tree), ignore_errors=True)


def _newest_and_report(directory: Path, known_bad: Optional[Path]) -> Optional[Path]:
    scan = newest(directory)
    for bad in scan.bad:
        if known_bad is None or bad.path.name != known_bad.name:
            _report_bad(bad.path, bad.reason)
    return scan.newest.path if scan.newest else None


def _report_bad(path: Path, reason: str) -> None:
    say("checkpoint %s is not used: %s" % (path, reason))
    note("bad-checkpoint", path=str(path), reason=reason)


def _make_directory(directory: Path) -> None:
    if directory.is_dir():
        return
    directory.mkdir(parents=True, exist_ok=True)
    sync_directory(directory.parent)


def _temporary_name(attempt: int, step: int) -> str:
    return ".tmp-%d-%d-%s" % (attempt, step, secrets.token_hex(8))


def _numbers(path: Path) -> List[int]:
    """[attempt, step] of a checkpoint's path."""
    _, step, attempt = path.name.split("-")
    return [int(attempt), int(step)]


def _not_saved(step: int, error: OSError) -> CheckpointError:
    return CheckpointError(
        "checkpoint of step %d was not saved: %s; the one before it is untouched" % (step, error)
    )
