"""Notices checkpoints that a script writes by itself, and calls them so once they are finished.

A set of files (`filesets`) is finished when it has not changed for a while, nobody has any of it
open to write, and its digest is the same twice. Then a manifest is written beside it, in
`.windlass/`, and the server is told; the files themselves are not touched.

A writer that is killed leaves a file that looks the same: quiet, and closed. So a set counts only
if whoever was seen to write it still lives, or was a rank that ended well; and while no rank has
failed since the set last changed. What is in doubt is left alone: the one before it counts.
"""

from __future__ import annotations

import json
import os
import threading
import time

from windlass.worker import beneath, processes
from windlass.worker.filesets import FileSet, found
from windlass.worker.formats import whole
from windlass.worker.handed import NOTICED
from windlass.worker.writers import writers_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from windlass.worker.launch import Launch
    from windlass.worker.ranks import Rank

LOOK_SECONDS = 1.0
QUIET_SECONDS = 2.0
FAR_SECONDS = 15.0
"""Where ranks run on other nodes too, whose open files cannot be seen from here."""
_PIECE = 1 << 20


class _Watched:
    """A set that was seen and is not called a checkpoint yet."""

    def __init__(self, fileset: FileSet, now: float) -> None:
        self.entries = fileset.entries
        self.since = now
        self.writers: Dict[int, int] = {}
        """Who was seen to write it: pid → when that process started."""


class Noticing:
    """`note` sends a word to the server; called from a thread of its own."""

    def __init__(
        self,
        launch: Launch,
        ranks: List[Rank],
        note: Callable[[Dict[str, Any]], None],
        uid: Optional[int],
        nodes: int,
    ) -> None:
        """Before the ranks start: what lies there now was judged by an earlier attempt."""
        self._launch = launch
        self._ranks = ranks
        self._note = note
        self._uid = uid
        self._quiet = QUIET_SECONDS if nodes == 1 else FAR_SECONDS
        self._watched: Dict[str, _Watched] = {}
        before = found(launch.checkpoint_dir) if launch.checkpoint_dir else {}
        self._known: Dict[str, Tuple[Any, ...]] = {
            name: tuple(fileset.entries) for name, fileset in before.items()
        }
        self._paths: Dict[str, str] = {}
        self._losses = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="noticing", daemon=True)

    def start(self) -> None:
        if self._launch.checkpoint_dir:
            self._thread.start()

    def stop(self) -> None:
        """The ranks have ended, or will now; who still writes is seen a last time."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
            self._try(judge=False)

    def finish(self) -> None:
        """Nothing of the job runs any more: what the ranks left counts if all ended well."""
        if self._thread.ident is not None and self._ranks and not self._failed():
            self._try(at_the_end=True)

    def _try(self, at_the_end: bool = False, judge: bool = True) -> None:
        try:
            self._look(at_the_end, judge)
        except OSError as err:  # the disk's trouble; the next look may do better
            print("checkpoints of the script's own: %s" % err, flush=True)

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            self._try()

    def _look(self, at_the_end: bool, judge: bool) -> None:
        directory = self._launch.checkpoint_dir
        assert directory is not None
        now = time.monotonic()
        sets = found(directory)
        self._tell_of_gone(sets)
        for name, fileset in sets.items():
            watched = self._watched.get(name)
            if self._known.get(name) == tuple(fileset.entries):
                self._watched.pop(name, None)
            elif watched is None or watched.entries != fileset.entries:
                fresh = self._watched[name] = _Watched(fileset, now)
                fresh.writers = watched.writers if watched else {}
        for name in set(self._watched) - set(sets):
            del self._watched[name]
        self._doubt_after_losses(sets)
        if self._watched and not at_the_end:
            self._look_for_writers(sets)
        for name, watched in list(self._watched.items()) if judge else ():
            if self._is_finished(watched, now, at_the_end):
                self._call_it_one(name, sets[name])

    def _doubt_after_losses(self, sets: Dict[str, FileSet]) -> None:
        """What a rank may have been writing when it failed is no checkpoint, unless it is written
        anew."""
        losses = sum(rank.restarts + (1 if _ended_badly(rank) else 0) for rank in self._ranks)
        if losses > self._losses:
            self._losses = losses
            for name in self._watched:
                self._known[name] = tuple(sets[name].entries)
            self._watched.clear()

    def _look_for_writers(self, sets: Dict[str, FileSet]) -> None:
        """Whoever writes now begins the wait anew, and is remembered."""
        places = {
            (entry[3], entry[4]): name for name in self._watched for entry in sets[name].entries
        }
        for place, pids in writers_of(places).items():
            watched = self._watched[places[place]]
            for pid in pids:
                watched.since = time.monotonic()
                watched.writers[pid] = processes.start_time(pid)

    def _is_finished(self, watched: _Watched, now: float, at_the_end: bool) -> bool:
        if self._failed() or (not at_the_end and now - watched.since < self._quiet):
            return False
        well = {rank.pid for rank in self._ranks if rank.exit == 0}
        return all(pid in well or _lives(pid, started) for pid, started in watched.writers.items())

    def _failed(self) -> bool:
        return any(_ended_badly(rank) for rank in self._ranks)

    def _call_it_one(self, name: str, fileset: FileSet) -> None:
        """Digests, twice; then the manifest, then the word. Whatever changes meanwhile makes it
        unfinished."""
        first = self._digests(fileset)
        if first is None or self._digests(fileset) != first or self._failed():
            return
        again = found(self._launch.checkpoint_dir or "").get(name)
        if again is None or again.entries != fileset.entries:
            return
        self._known[name] = tuple(fileset.entries)
        self._paths[name] = fileset.path
        self._watched.pop(name, None)
        manifest = self._manifest(fileset, first)
        self._write(manifest)
        self._note(
            {
                "kind": "checkpoint",
                "path": os.path.join(self._launch.checkpoint_dir or "", fileset.path),
                "step": fileset.step,
                "attempt": self._launch.attempt,
                "digest": manifest["digest"],
                "bytes": sum(entry["bytes"] for entry in first),
                "source": "files",
            }
        )

    def _digests(self, fileset: FileSet) -> Optional[List[Dict[str, Any]]]:
        """Size and digest of each file; None when one is not as it was, or is cut short."""
        from hashlib import sha256

        listed = []
        for path, size, mtime, _, inode in fileset.entries:
            opened = beneath.opened(self._launch.checkpoint_dir or "", path.split("/"))
            if opened is None:
                return None
            with open(opened, "rb") as file:
                digest = sha256()
                while True:
                    piece = file.read(_PIECE)
                    if not piece:
                        break
                    digest.update(piece)
                about = os.fstat(file.fileno())
                if (about.st_size, about.st_mtime_ns, about.st_ino) != (size, mtime, inode):
                    return None
                if not whole(path, file, size):
                    return None
            listed.append({"path": path, "bytes": size, "digest": digest.hexdigest()})
        return listed

    def _manifest(self, fileset: FileSet, files: List[Dict[str, Any]]) -> Dict[str, Any]:
        from hashlib import sha256

        canonical = json.dumps(files, sort_keys=True, separators=(",", ":"))
        return {
            "api": 1,
            "path": fileset.path,
            "job_id": self._launch.job_id,
            "attempt": self._launch.attempt,
            "step": fileset.step,
            "created_ms": int(time.time() * 1000),
            "files": files,
            "digest": sha256(canonical.encode("utf-8")).hexdigest(),
        }

    def _write(self, manifest: Dict[str, Any]) -> None:
        """Whole or not at all, by open folders: the script could put a link in the way."""
        from hashlib import sha256

        parent = os.open(self._launch.checkpoint_dir or "", beneath.FOLDER)
        folder = -1
        try:
            try:
                os.mkdir(NOTICED, 0o700, dir_fd=parent)
            except FileExistsError:
                pass
            folder = os.open(NOTICED, beneath.FOLDER, dir_fd=parent)
            which = sha256(manifest["path"].encode("utf-8", "surrogateescape")).hexdigest()[:8]
            name = "step-%012d-%06d-%s.json" % (manifest["step"], manifest["attempt"], which)
            draft = ".%s-%d" % (name, os.getpid())
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with open(os.open(draft, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(json.dumps(manifest, indent=1).encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
                if self._uid is not None:
                    os.fchown(file.fileno(), self._uid, self._uid)
            if self._uid is not None:
                os.fchown(folder, self._uid, self._uid)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            if folder >= 0:
                os.close(folder)
            os.close(parent)

    def _tell_of_gone(self, sets: Dict[str, FileSet]) -> None:
        """A script removes its old ones itself."""
        for name in set(self._paths) - set(sets):
            path = os.path.join(self._launch.checkpoint_dir or "", self._paths.pop(name))
            self._known.pop(name, None)
            self._note({"kind": "checkpoint-gone", "path": path})


def _ended_badly(rank: Rank) -> bool:
    return rank.ended_ms is not None and rank.exit != 0


def _lives(pid: int, started: int) -> bool:
    found = processes.stat(pid)
    return found is not None and found.start_time == started and found.state not in "ZX"
