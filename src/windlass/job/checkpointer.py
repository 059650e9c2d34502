"""`windlass.checkpoint(model=…, optimizer=…)`: what to save said once, resumed by itself.

    kept = windlass.checkpoint(model=model, optimizer=optimizer)    loaded, if there is one
    for step in kept.steps(1000, every=100):                        from where it stood
        train(step)

    kept = windlass.checkpoint(save=lambda folder: …, load=lambda folder: …)
    if kept.step is None: …                                         it begins afresh
    kept.save(step)

It writes by the one writer (`checkpoint.py`), so all that holds for that holds here: whole or not
at all, registered, digests checked before anything is loaded. On the platform it goes on from
what the platform chose; off it, from the newest in `folder`, if that is given.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional, Union

from windlass.job import states
from windlass.job.context import context
from windlass.job.manifest import CheckpointError, ranks_in, step_of
from windlass.job.stop import should_stop

Folder = Union[None, str, "os.PathLike[str]"]


class Checkpointer:
    """What is saved and loaded together. `step` is that of the checkpoint it went on from, or the
    last it saved; None before there is one."""

    def __init__(
        self,
        things: Dict[str, Any],
        *,
        save: Optional[Callable[[Path], Any]] = None,
        load: Optional[Callable[[Path], Any]] = None,
        resume: Optional[bool] = None,
        ranks: str = "one",
        keep: Optional[int] = None,
        timeout_seconds: float = 600.0,
        folder: Folder = None,
    ) -> None:
        if (save is None) != (load is None):
            raise TypeError("checkpoint(save=…, load=…): give both, or neither")
        if ranks not in ("one", "all"):
            raise ValueError('ranks is "one" or "all", found %r' % (ranks,))
        for name, thing in things.items():
            states.check(name, thing)
        self._things = things
        self._save, self._load = save, load
        self._ranks = ranks
        self._options: Dict[str, Any] = {
            "ranks": ranks, "keep": keep, "timeout_seconds": timeout_seconds, "folder": folder,
        }  # fmt: skip
        self.step: Optional[int] = None
        self.resumed: Optional[Path] = None
        """The checkpoint it went on from; None: it began afresh."""
        found = self._find(resume, folder)
        if found is not None:
            self.load(found)
            self.resumed, self.step = found, step_of(found)

    def save(self, step: int) -> None:
        """Save now, as step `step`. Of a gang every rank may call it: rank 0 saves (with
        `ranks="all"` each its own part). Raises `CheckpointError`, `CheckpointFenced`."""
        from windlass.job.checkpoint import checkpoint

        if self._ranks == "all" or context().rank == 0:
            with checkpoint(step, **self._options) as folder:
                for name, thing in self._things.items():
                    states.write(folder, name, thing)
                if self._save is not None:
                    self._save(folder)
        self.step = int(step)

    def load(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        """Load from a checkpoint's folder: of this job, or one that was handed over
        (`windlass.context().start_from`). Raises `CheckpointError` where it does not fit."""
        path = Path(folder)
        mine = self._mine(path)
        try:
            for name, thing in self._things.items():
                states.read(mine, name, thing)
        except FileNotFoundError as error:
            raise CheckpointError(
                "%s; it was saved with other names, or by other means" % error
            ) from error
        if self._load is not None:
            self._load(mine)

    def steps(self, total: int, every: int = 0) -> Iterator[int]:
        """The steps that are left, of 0 … total - 1. After each `every`th, after the last, and
        when the job is told to stop (which ends the loop) it saves. A checkpoint of step n is of
        n steps that are done."""
        context(watch_stop=True)
        done = self.step or 0
        while done < total:
            yield done
            done += 1
            stop = should_stop()
            if done == total or stop or (every > 0 and done % every == 0):
                self.save(done)
            if stop:
                return

    def _find(self, resume: Optional[bool], folder: Folder) -> Optional[Path]:
        from windlass.job.checkpoint import newest_good, resume_from

        if resume is False:
            return None
        if context().on_platform:
            return resume_from()
        if folder is not None:
            return newest_good(Path(folder))
        return resume_from(local=True) if resume else None

    def _mine(self, path: Path) -> Path:
        """This rank's part of it."""
        here = context()
        tops = [{"path": each.name} for each in path.iterdir()] if path.is_dir() else []
        saved = ranks_in(tops)
        if not saved:
            return path
        mine = path / ("rank-%d" % here.rank)
        if saved != here.world_size or not mine.is_dir():
            raise CheckpointError(
                "%s has the parts of %d ranks, and there are %d now: parts are each rank's own "
                'and cannot be dealt anew. Go on with %d, save with ranks="one", or train with '
                "windlass.train, whose checkpoints load at any size"
                % (path, saved, here.world_size, saved)
            )
        return mine
