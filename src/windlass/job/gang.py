"""How the ranks of a gang make one checkpoint together, over nothing but a shared folder.

    .tmp-<attempt>-<step>-gang/     all ranks know this name without talking
      open.json                     rank 0: this try's nonce
      data/rank-<rank>/…            each rank: its files
      part-<rank>.json              other ranks: nonce; list of files once they are on the disk
      result.json                   rank 0: nonce, saved or why not

Rank 0 waits for every part of its own nonce, then commits `data/`: all parts in one manifest, or
no checkpoint. The nonce is what makes a second try of the same step safe: parts left by a first
one carry another, so rank 0 never takes files that their rank is just writing again, and a rank
never takes an earlier try (it knows the nonce from its own old part) for this one. Nothing in
a gang's folder is removed by another rank while it may be in use: rank 0 removes the folders of
earlier steps after a commit, when every rank has shown, by its part, that it left them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from windlass.job.context import Context
from windlass.job.manifest import CheckpointError, FileEntry, list_and_sync, sync_directory
from windlass.job.registry import CheckpointFenced

Commit = Callable[[Path, List[FileEntry]], Any]
Record = Dict[str, Any]


class Gang:
    """One rank's side of one save. `enter`, then `leave` or `fail`, each once."""

    def __init__(self, here: Context, step: int, timeout_seconds: float) -> None:
        self.here = here
        self.step = step
        self.timeout_seconds = timeout_seconds
        self.root = here.checkpoint_dir / (".tmp-%d-%d-gang" % (here.attempt, step))
        self.data = self.root / "data"
        self.own = self.data / ("rank-%d" % here.rank)
        self.nonce = secrets.token_hex(8)
        self.stale: Optional[str] = None  # the nonce of an earlier try that this rank was in

    def enter(self) -> Path:
        """This rank's empty folder."""
        shutil.rmtree(str(self.own), ignore_errors=True)
        self.own.mkdir(parents=True)
        if self.here.rank == 0:
            self._publish("open.json", {"nonce": self.nonce})
        else:
            earlier = _read(self._part(self.here.rank))
            self.stale = earlier["nonce"] if earlier else None
            self._publish(self._part(self.here.rank).name, {"nonce": self._opened()})
        return self.own

    def leave(self, commit: Commit) -> None:
        """Publish this rank's part and wait for the whole. What fails on one raises on all."""
        try:
            files = list_and_sync(self.own, self.own.name + "/")
            sync_directory(self.data)
        except BaseException as error:
            self.fail(error)
            raise
        if self.here.rank == 0:
            self._commit(files, commit)
        else:
            self._wait_for_result(files)

    def fail(self, error: BaseException) -> None:
        """Tell the others at once, so that none waits out the time limit. Never raises."""
        reason = "%s: %s" % (type(error).__name__, error)
        try:
            if self.here.rank == 0:
                self._publish_failure(error)
            else:
                part = {"nonce": self._opened(), "failed": reason}
                self._publish(self._part(self.here.rank).name, part)
        except OSError:
            pass  # The disk that failed the save may fail this too: the time limit tells them.

    def _commit(self, files: List[FileEntry], commit: Commit) -> None:
        try:
            files = files + self._gather()
            self._keep_only_this_gang()
            earlier = self._earlier()  # now, since the others may begin their next one at once
            commit(self.data, files)
        except BaseException as error:
            self.fail(error)
            raise
        self._publish("result.json", {"nonce": self.nonce, "saved": True})
        for path in earlier:
            shutil.rmtree(str(path), ignore_errors=True)

    def _gather(self) -> List[FileEntry]:
        """Rank 0: everyone else's files, when all have come."""
        files: List[FileEntry] = []
        missing = set(range(1, self.here.world_size))
        pause = _Pause(self.timeout_seconds)
        while missing:
            for rank in sorted(missing):
                part = _read(self._part(rank))
                if part is None:
                    continue
                # A failure before rank 0 opened has no nonce to carry.
                if "failed" in part and part["nonce"] in (self.nonce, None):
                    raise self._error("rank %d failed: %s" % (rank, part["failed"]))
                if part["nonce"] == self.nonce and "files" in part:
                    self._check_size(rank, part)
                    files.extend(part["files"])
                    missing.discard(rank)
            if missing and not pause.wait():
                raise self._error(
                    "no part came within %g s from rank %s of %d; all ranks must call it with "
                    "the same step, on a folder they share (%s)"
                    % (
                        self.timeout_seconds,
                        ", ".join(str(rank) for rank in sorted(missing)),
                        self.here.world_size,
                        self.here.checkpoint_dir,
                    )
                )
        return files

    def _wait_for_result(self, files: List[FileEntry]) -> None:
        """Another rank: hand in the part under rank 0's nonce, again if rank 0 begins anew."""
        handed_in: Optional[str] = None
        pause = _Pause(self.timeout_seconds)
        while True:
            result = _read(self.root / "result.json")
            if result is not None and handed_in is not None and result["nonce"] == handed_in:
                return self._take(result)
            opened = self._opened()
            if opened is not None and opened != handed_in:
                handed_in = opened
                part = {"nonce": opened, "files": files, "world_size": self.here.world_size}
                self._publish(self._part(self.here.rank).name, part)
                continue
            if not pause.wait():
                did = "begin" if handed_in is None else "commit"
                raise self._error("rank 0 did not %s within %g s" % (did, self.timeout_seconds))

    def _take(self, result: Record) -> None:
        if result.get("fenced"):
            raise CheckpointFenced(result["reason"])
        if not result["saved"]:
            raise CheckpointError(result["reason"])

    def _check_size(self, rank: int, part: Record) -> None:
        if part["world_size"] != self.here.world_size:
            raise self._error(
                "rank %d counts %d ranks, rank 0 counts %d"
                % (rank, part["world_size"], self.here.world_size)
            )

    def _keep_only_this_gang(self) -> None:
        """An earlier try in this attempt may have had more ranks: their files go."""
        ranks = {"rank-%d" % rank for rank in range(self.here.world_size)}
        for path in self.data.iterdir():
            if path.name not in ranks:
                shutil.rmtree(str(path)) if path.is_dir() else path.unlink()

    def _earlier(self) -> List[Path]:
        """The folders of other saves that are there while every rank waits for this one."""
        pattern = re.compile(r"\.tmp-(\d+)-\d+-gang")
        found = []
        for path in self.here.checkpoint_dir.iterdir():
            match = pattern.fullmatch(path.name)
            if match and int(match[1]) <= self.here.attempt and path != self.root:
                found.append(path)
        return found

    def _publish_failure(self, error: BaseException) -> None:
        reason = str(error) if isinstance(error, CheckpointError) else ""
        reason = reason or str(
            self._error("rank 0 failed: %s: %s" % (type(error).__name__, error))
        )
        fenced = isinstance(error, CheckpointFenced)
        result = {"nonce": self.nonce, "saved": False, "fenced": fenced, "reason": reason}
        self._publish("result.json", result)

    def _error(self, reason: str) -> CheckpointError:
        return CheckpointError(
            "checkpoint of step %d was not saved: %s; the one before it is untouched"
            % (self.step, reason)
        )

    def _opened(self) -> Optional[str]:
        """The nonce of rank 0's present try; None before it has begun one."""
        opened = _read(self.root / "open.json")
        return None if opened is None or opened["nonce"] == self.stale else str(opened["nonce"])

    def _part(self, rank: int) -> Path:
        return self.root / ("part-%d.json" % rank)

    def _publish(self, name: str, record: Record) -> None:
        """Whole or not at all. No fsync: it is word between living processes."""
        temporary = self.root / (".%s-%s" % (name, secrets.token_hex(4)))
        temporary.write_text(json.dumps(record), encoding="utf-8")
        os.replace(str(temporary), str(self.root / name))


class _Pause:
    """Waits a little longer each time, and says when the time is up."""

    def __init__(self, limit_seconds: float) -> None:
        self._ends = time.monotonic() + limit_seconds
        self._seconds = 0.002

    def wait(self) -> bool:
        left = self._ends - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(self._seconds, left))
        self._seconds = min(self._seconds * 1.5, 0.1)
        return True


def _read(path: Path) -> Optional[Record]:
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        return record
    except FileNotFoundError:
        return None
