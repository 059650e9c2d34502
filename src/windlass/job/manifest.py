"""What a checkpoint is on disk, and how to tell a whole one from a torn one.

    <directory>/
      step-000000000040-000003/      step 40, saved by attempt 3: files, and manifest.json
      .tmp-3-50-1f6c…/               being written, or left by a process that was killed
      ckpt-400.pt                    a script's own, written without us …
      .windlass/step-…-….json        … and its manifest, which the worker wrote when it was done

A checkpoint exists once its directory has its name: the rename comes after every file, every
folder and the manifest (sizes and SHA-256 of all files) are on the disk. Newest means the
highest attempt, then the highest step: an attempt that restarted from an earlier step is the
truth, whatever a dead one left behind with a higher number.

This file imports nothing of ours, so that it also runs alone, where this package is not installed:

    python manifest.py newest DIRECTORY            {"newest": {...} or null, "bad": [...]}
    python manifest.py verify CHECKPOINT           {"path", "step", ...}, or exit 1 and the reason
    python manifest.py sweep DIRECTORY ATTEMPT     {"removed": [...]}
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

MANIFEST = "manifest.json"
NOTICED = ".windlass"
"""Beside a script's own files: the manifests of those that the worker found finished."""
_DEEPEST = 4  # folders between a script's own files and the directory of checkpoints
_NAME = re.compile(r"step-(\d{12,})-(\d{6,})")
_NOTICED_NAME = re.compile(r"step-(\d{12,})-(\d{6,})(?:-[0-9a-f]+)?\.json")
_TEMPORARY = re.compile(r"\.tmp-(\d+)-(\d+)-.*")
_CHUNK_BYTES = 1 << 20

FileEntry = Dict[str, Any]
"""`{"path", "bytes", "digest"}`; the path is relative, with forward slashes."""


class CheckpointError(Exception):
    """A checkpoint could not be saved, or an existing one cannot be used."""


class BadCheckpoint(CheckpointError):
    """What lies at this path is not a whole checkpoint; the message says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest and digests held when it was looked at."""

    path: Path
    step: int
    attempt: int
    digest: str
    size_bytes: int
    created_ms: int
    ranks: int = 0
    """How many ranks saved a part each (`ranks="all"`); 0: it is not in parts."""

    def to_wire(self) -> Dict[str, Any]:
        """The words in which a checkpoint travels: in spool notes and to the server."""
        words = {
            "path": str(self.path),
            "step": self.step,
            "attempt": self.attempt,
            "digest": self.digest,
            "bytes": self.size_bytes,
        }
        return {**words, "ranks": self.ranks} if self.ranks else words


class Bad(NamedTuple):
    path: Path
    reason: str


class Scan(NamedTuple):
    newest: Optional[Checkpoint]
    bad: List[Bad]


def newest(directory: Path) -> Scan:
    """The newest checkpoint whose digests hold, and those passed over on the way to it."""
    bad: List[Bad] = []
    for path in _all_in_order(directory):
        try:
            return Scan(verify(path), bad)
        except BadCheckpoint as error:
            bad.append(Bad(path, str(error)))
    return Scan(None, bad)


def verify(path: Path) -> Checkpoint:
    """Read every byte of a checkpoint and compare. Raises `BadCheckpoint`."""
    named = _NAME.fullmatch(path.name)
    try:
        root, manifest = _manifest_of(path)
        files = manifest["files"]
        found = Checkpoint(
            path=path,
            step=manifest["step"],
            attempt=manifest["attempt"],
            digest=manifest["digest"],
            size_bytes=sum(entry["bytes"] for entry in files),
            created_ms=manifest["created_ms"],
            ranks=ranks_in(files),
        )
        if manifest["api"] != 1:
            raise BadCheckpoint("its manifest is of api %r, known is 1" % (manifest["api"],))
        if digest_of_list(files) != found.digest:
            raise BadCheckpoint("the digest in its manifest does not match its list of files")
        if named and (int(named[1]), int(named[2])) != (found.step, found.attempt):
            raise BadCheckpoint("its manifest is of another step or attempt than its name")
        for entry in files:
            _verify_file(root, entry)
    except OSError as error:
        raise BadCheckpoint("it cannot be read: %s" % error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadCheckpoint("its manifest makes no sense: %r" % error) from error
    return found


def in_order(directory: Path) -> List[Path]:
    """Everything in the directory that has a checkpoint's name, newest first."""
    try:
        entries = list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    named = [(match, path) for path in entries for match in [_NAME.fullmatch(path.name)] if match]
    named.sort(key=lambda pair: (int(pair[0][2]), int(pair[0][1])), reverse=True)
    return [path for _, path in named]


def _all_in_order(directory: Path) -> List[Path]:
    """The same, with the script's own files that were noticed."""
    found = [(_NAME.fullmatch(path.name), path) for path in in_order(directory)]
    try:
        files = sorted((directory / NOTICED).iterdir())
    except OSError:
        files = []
    for file in files:
        named = _NOTICED_NAME.fullmatch(file.name)
        if named:
            try:
                inner = json.loads(file.read_bytes().decode("utf-8"))["path"]
                found.append((named, directory.joinpath(*_parts(inner))))
            except (OSError, ValueError, KeyError, TypeError, AttributeError, BadCheckpoint):
                continue
    found.sort(key=lambda pair: (int(pair[0][2]), int(pair[0][1])) if pair[0] else (0, 0))
    return [path for _, path in reversed(found)]


def _manifest_of(path: Path) -> Tuple[Path, Dict[str, Any]]:
    """The folder that its files' paths begin at, and the manifest: inside for one of ours,
    beside for a script's own files."""
    if not _NAME.fullmatch(path.name):
        for root in list(path.parents)[:_DEEPEST]:
            for file in sorted((root / NOTICED).glob("step-*.json"), reverse=True):
                manifest = json.loads(file.read_bytes().decode("utf-8"))
                if root.joinpath(*_parts(manifest["path"])) == path:
                    return root, manifest
    return path, json.loads((path / MANIFEST).read_bytes().decode("utf-8"))


def ranks_in(files: List[FileEntry]) -> int:
    """How many ranks have a folder of their own among these files."""
    tops = {str(entry["path"]).split("/")[0] for entry in files}
    return len([top for top in tops if re.fullmatch(r"rank-\d+", top)])


def name_of(step: int, attempt: int) -> str:
    return "step-%012d-%06d" % (step, attempt)


def step_of(path: Path) -> Optional[int]:
    """The step of a checkpoint by its name, or by the manifest beside a script's own files; None
    for a path of another shape."""
    named = _NAME.fullmatch(path.name)
    if named:
        return int(named[1])
    try:
        return int(_manifest_of(path)[1]["step"])
    except (OSError, ValueError, KeyError, TypeError, BadCheckpoint):
        return None


def sweep(directory: Path, attempt: int) -> List[Path]:
    """Remove what attempts before `attempt` left half-written. Returns what it removed.

    A process of such an attempt that still writes meets its folder gone and fails: as it should.
    """
    removed: List[Path] = []
    try:
        entries = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return removed
    for path in entries:
        match = _TEMPORARY.fullmatch(path.name)
        if match and int(match[1]) < attempt:
            shutil.rmtree(str(path), ignore_errors=True)
            removed.append(path)
    return removed


def list_and_sync(
    root: Path, prefix: str = "", known: Optional[Mapping[str, FileEntry]] = None
) -> List[FileEntry]:
    """Bring a tree to the disk, files before the folders that name them; list the files.

    `known` are entries, by path, of files that whoever wrote them brought to the disk
    (`entry_of`): they are not read again. Raises OSError when the disk refuses anything, and
    `CheckpointError` for what is neither file nor folder, since a link would point out of what is
    digested, or for a known file that is not as its entry says.
    """
    files: List[FileEntry] = []
    for entry in sorted(os.scandir(str(root)), key=lambda found: found.name):
        relative = prefix + entry.name
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            files.extend(list_and_sync(Path(entry.path), relative + "/", known))
        elif not stat.S_ISREG(found.st_mode):
            raise CheckpointError("a checkpoint holds files and folders only, found %s" % relative)
        elif known is not None and relative in known:
            if known[relative]["bytes"] != found.st_size:
                raise CheckpointError(
                    "%s has %d bytes, who wrote it says %d"
                    % (relative, found.st_size, known[relative]["bytes"])
                )
            files.append(known[relative])
        else:
            size, digest = _sync_and_digest(Path(entry.path))
            files.append({"path": relative, "bytes": size, "digest": digest})
    sync_directory(root)
    return files


def entry_of(root: Path, relative: str) -> FileEntry:
    """Bring one file to the disk; its entry in the manifest of `root`."""
    size, digest = _sync_and_digest(root / relative)
    return {"path": relative, "bytes": size, "digest": digest}


def write_manifest(
    root: Path, *, job_id: str, attempt: int, step: int, files: List[FileEntry]
) -> str:
    """Write and sync the manifest of a tree whose files are on the disk. Returns the digest."""
    files = sorted(files, key=lambda entry: str(entry["path"]))
    digest = digest_of_list(files)
    manifest = {
        "api": 1,
        "job_id": job_id,
        "attempt": attempt,
        "step": step,
        "created_ms": time.time_ns() // 1_000_000,
        "files": files,
        "digest": digest,
    }
    write_and_sync(root / MANIFEST, json.dumps(manifest, indent=1).encode("utf-8"))
    sync_directory(root)
    return digest


def digest_of_list(files: List[FileEntry]) -> str:
    """SHA-256 of the canonical list of files: sorted by path, keys sorted, no spaces."""
    ordered = sorted(files, key=lambda entry: str(entry["path"]))
    canonical = json.dumps(ordered, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def write_and_sync(path: Path, data: bytes) -> None:
    with open(str(path), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Bring a folder's list of names to the disk."""
    if os.name == "nt":
        return  # Windows opens no folders; its file systems journal names by themselves.
    descriptor = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_and_digest(path: Path) -> Tuple[int, str]:
    # Windows syncs only what is open for writing; elsewhere a file may be read-only by now.
    with open(str(path), "rb+" if os.name == "nt" else "rb") as file:
        os.fsync(file.fileno())
        return _digest(file)


def _verify_file(root: Path, entry: FileEntry) -> None:
    relative = entry["path"]
    path = root.joinpath(*_parts(relative))
    if not stat.S_ISREG(os.lstat(str(path)).st_mode):
        raise BadCheckpoint("%s is no ordinary file" % relative)
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise BadCheckpoint(
            "%s has %d bytes, its manifest says %d" % (relative, size, entry["bytes"])
        )
    with open(str(path), "rb") as file:
        if _digest(file)[1] != entry["digest"]:
            raise BadCheckpoint("the digest of %s does not match" % relative)


def _parts(relative: str) -> List[str]:
    parts = relative.split("/")
    if relative.startswith("/") or ".." in parts or "" in parts:
        raise BadCheckpoint("its manifest names %r, a path outside of it" % relative)
    return parts


def _digest(file: Any) -> Tuple[int, str]:
    total, sha = 0, hashlib.sha256()
    for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
        total += len(chunk)
        sha.update(chunk)
    return total, sha.hexdigest()


def main(arguments: List[str]) -> int:
    command, target = arguments[0], Path(arguments[1])
    if command == "newest":
        scan = newest(target)
        answer: Dict[str, Any] = {
            "newest": scan.newest.to_wire() if scan.newest else None,
            "bad": [{"path": str(bad.path), "reason": bad.reason} for bad in scan.bad],
        }
    elif command == "sweep":
        answer = {"removed": [str(path) for path in sweep(target, int(arguments[2]))]}
    elif command == "verify":
        try:
            answer = verify(target).to_wire()
        except BadCheckpoint as error:
            print("%s: %s" % (target, error), file=sys.stderr)
            return 1
    else:
        print("known are newest, verify and sweep; found %r" % command, file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
