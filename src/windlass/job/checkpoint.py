"""The one writer of checkpoints, and where to resume from.

    with windlass.checkpoint(step) as path:        path is an empty folder
        torch.save(state, path / "model.pt")       write whatever files you like
                                                   leaving the block makes it a checkpoint
    kept = windlass.checkpoint(model=model, …)     what to save, said once (`checkpointer.py`)

The order is the promise; a kill or a failing disk at any point leaves the one before untouched:

    files, folders → disk      manifest with sizes and digests → disk
    rename to its final name   parent folder → disk
    register with the server (an attempt that is over is refused, and takes it back)
    old ones go, `keep` stay; on the platform the server sees to that, which knows who starts from
    which, and which are the best

An error of the disk is never retried as a success: after a failed fsync the kernel may have
dropped the data and would call the next fsync a success.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Set,
    Tuple,
    Union,
    overload,
)

from windlass.job.checkpointer import Checkpointer
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
    ranks_in,
    sweep,
    sync_directory,
    verify,
    write_manifest,
)
from windlass.job.manifest import in_order as _in_order
from windlass.job.registry import MANAGED, UNKNOWN, CheckpointFenced, register
from windlass.job.spool import say

__all__ = [
    "BadCheckpoint",
    "Checkpoint",
    "CheckpointError",
    "CheckpointFenced",
    "Checkpointer",
    "checkpoint",
    "gathered",
    "newest",
    "newest_good",
    "resume_from",
    "sweep",
    "verify",
]


@overload
def checkpoint(
    step: int,
    *,
    ranks: str = ...,
    keep: Optional[int] = ...,
    timeout_seconds: float = ...,
    folder: Union[None, str, "os.PathLike[str]"] = ...,
) -> ContextManager[Path]: ...


@overload
def checkpoint(
    *,
    save: Optional[Callable[[Path], Any]] = ...,
    load: Optional[Callable[[Path], Any]] = ...,
    resume: Optional[bool] = ...,
    ranks: str = ...,
    keep: Optional[int] = ...,
    timeout_seconds: float = ...,
    folder: Union[None, str, "os.PathLike[str]"] = ...,
    **things: Any,
) -> Checkpointer: ...


def checkpoint(
    step: Optional[int] = None,
    *,
    save: Optional[Callable[[Path], Any]] = None,
    load: Optional[Callable[[Path], Any]] = None,
    resume: Optional[bool] = None,
    ranks: str = "one",
    keep: Optional[int] = None,
    timeout_seconds: float = 600.0,
    folder: Union[None, str, "os.PathLike[str]"] = None,
    **things: Any,
) -> Union[ContextManager[Path], Checkpointer]:
    """With a step: save one, as a block (below). Without: a `Checkpointer` of the objects that are
    named, or of two functions that write into and read from a folder.

    The block gets an empty folder, and what is put there is kept, whole or not at all.

    `ranks="one"`: call it on one rank. `ranks="all"`: call it on every rank of the gang; each
    gets a folder `rank-<rank>` of its own inside the same checkpoint, and the block ends on all
    of them when rank 0 has committed all parts, or raises on all of them. `timeout_seconds`
    limits that wait. Of older checkpoints `keep` remain (at least 2; default
    $WINDLASS_CHECKPOINT_KEEP, else 3).

    `folder` holds the checkpoints off the platform (default: one of this run's own); on it they
    lie where the platform finds them.

    A step of an attempt is saved once: a second save of it keeps the first. Raises
    `CheckpointFenced` when this attempt is over, `CheckpointError` when it could not be saved;
    the previous one is then still there. An exception in the block passes through and leaves
    nothing behind.
    """
    if step is None:
        if save is None and load is None and not things:
            raise TypeError(
                "checkpoint(): give a step (with windlass.checkpoint(step) as folder: …), or what "
                "to save: checkpoint(model=model, optimizer=optimizer), checkpoint(save=…, load=…)"
            )
        return Checkpointer(
            things, save=save, load=load, resume=resume, ranks=ranks, keep=keep,
            timeout_seconds=timeout_seconds, folder=folder,
        )  # fmt: skip
    if save is not None or load is not None or resume is not None or things:
        raise TypeError("checkpoint(step) takes no objects: name them without a step")
    if ranks not in ("one", "all"):
        raise ValueError('ranks is "one" or "all", found %r' % (ranks,))
    return _written(step, ranks, keep, timeout_seconds, folder)


@contextmanager
def _written(
    step: int,
    ranks: str,
    keep: Optional[int],
    timeout_seconds: float,
    folder: Union[None, str, "os.PathLike[str]"],
) -> Iterator[Path]:
    if ranks == "one":
        with gathered(step, {}, keep=keep, folder=folder) as path:
            yield path
        return
    here, step, kept = _settings(step, keep, folder)
    if here.mirrored and here.num_nodes > 1:
        raise CheckpointError(
            'ranks="all" needs a folder that all %d nodes share, and here each has its own: '
            'save on one rank (ranks="one"), or run where the home is shared' % here.num_nodes
        )
    try:
        _make_directory(here.checkpoint_dir)
        gang = Gang(here, step, timeout_seconds)
        path = gang.enter()
    except OSError as error:
        raise _not_saved(step, error) from error
    try:
        yield path
    except BaseException as error:
        gang.fail(error)
        _discard(path)
        raise
    with _kept_or_discarded(step, path):
        gang.leave(lambda tree, files: _commit(here, step, tree, files, kept))


@contextmanager
def gathered(
    step: int,
    known: Mapping[str, FileEntry],
    *,
    keep: Optional[int] = None,
    folder: Union[None, str, "os.PathLike[str]"] = None,
) -> Iterator[Path]:
    """The same for a folder that other processes, with whom the caller has agreed on it, write
    into as well. By the end of the block `known` has the entries, by path, of the files that they
    brought to the disk themselves (`entry_of`): these are not read again.
    """
    here, step, kept = _settings(step, keep, folder)
    try:
        _make_directory(here.checkpoint_dir)
        path = here.checkpoint_dir / _temporary_name(here.attempt, step)
        path.mkdir()
    except OSError as error:
        raise _not_saved(step, error) from error
    try:
        yield path
    except BaseException:
        _discard(path)
        raise
    with _kept_or_discarded(step, path):
        files = list_and_sync(path, known=known)
        absent = sorted(set(known) - {entry["path"] for entry in files})
        if absent:
            raise CheckpointError(
                "checkpoint of step %d was not saved: %d files that other processes wrote are not "
                "here, the first is %s; all nodes must share the folder of checkpoints"
                % (step, len(absent), absent[0])
            )
        _commit(here, step, path, files, kept)


def _settings(
    step: int, keep: Optional[int], folder: Union[None, str, "os.PathLike[str]"]
) -> Tuple[Context, int, int]:
    """Where, at which step, and how many stay."""
    here = context()
    if folder is not None and not here.on_platform:
        here = replace(here, checkpoint_dir=Path(folder))
    step = int(step)
    if step < 0:
        raise ValueError("a checkpoint's step is 0 or more, found %d" % step)
    return here, step, max(2, here.checkpoint_keep if keep is None else int(keep))


@contextmanager
def _kept_or_discarded(step: int, path: Path) -> Iterator[None]:
    try:
        yield
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
        return newest_good(here.checkpoint_dir, here.resume_from)
    if here.on_platform or not local:
        return None
    for run_dir in local_run_dirs(here):
        found = newest_good(run_dir / "checkpoints")
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
        ranks=ranks_in(files),
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
_unregistered: Dict[str, Set[str]] = {}
"""Per checkpoint directory, the names that the server has not heard of from this process."""


def _prune(here: Context, saved: Checkpoint, registered: str, keep: int) -> None:
    """Remove old checkpoints, never the newest registered one. On the platform that is the
    server's to do; while it is away only those go that it has never heard of."""
    directory = here.checkpoint_dir
    unheard = _unregistered.setdefault(str(directory), set())
    if registered == UNKNOWN:
        unheard.add(saved.path.name)
    else:
        _newest_registered[str(directory)] = saved.path.name
    if registered == MANAGED:
        return
    protected = _newest_registered.get(str(directory))
    for old in _in_order(directory)[keep:]:
        if registered == UNKNOWN and old.name not in unheard:
            continue
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


def newest_good(directory: Path, known_bad: Optional[Path] = None) -> Optional[Path]:
    """The newest checkpoint of a directory whose digests hold. Those passed over on the way to it
    are reported, but `known_bad`, which was."""
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
